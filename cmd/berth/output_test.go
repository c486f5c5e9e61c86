package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	berthsdk "github.com/berthdev/berth/sdk/go"
)

func TestListingsAreArraysOfSnakeCaseObjectsWithoutSecrets(t *testing.T) {
	t.Parallel()
	member := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	for name, list := range map[string]listing{
		"tenants":  tenantListing([]berth.Tenant{{ID: "t-1", DefaultRegion: "eu"}}),
		"regions":  regionListing([]berth.Region{{ID: "eu", Spill: []string{"us"}}}),
		"keys":     keyListing([]postgres.StoredKey{{KeyRecord: auth.KeyRecord{ID: "k1", Hash: []byte("hash")}}}),
		"sessions": sessionListing([]*berthsdk.Session{{ID: "s-1"}}),
		"workers":  workerListing([]*berthsdk.Worker{{ID: "w-1"}}),
	} {
		var out bytes.Buffer
		if err := list.print(&out, "json"); err != nil {
			t.Fatal(err)
		}
		var rows []map[string]any
		if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 {
			t.Errorf("%s: %v: %s", name, err, &out)
			continue
		}
		for key := range rows[0] {
			if !member.MatchString(key) || key == "hash" {
				t.Errorf("%s: member %q", name, key)
			}
		}
		if len(list.rows) != 1 || len(list.rows[0]) != len(list.header) {
			t.Errorf("%s: table %q under %q", name, list.rows, list.header)
		}
	}
}

func TestEmptyListingsAreEmptyArrays(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]listing{
		"tenants": tenantListing(nil), "regions": regionListing(nil), "keys": keyListing(nil),
		"sessions": sessionListing(nil), "workers": workerListing(nil),
	} {
		var out bytes.Buffer
		if err := list.print(&out, "json"); err != nil || out.String() != "[]\n" {
			t.Errorf("%s: %v: %q", name, err, &out)
		}
	}
}

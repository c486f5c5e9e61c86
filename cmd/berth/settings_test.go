package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/config"
)

// TestEverySettingIsRead holds the promise of package config that a variable which is accepted is acted on. It reads the
// source: a setting is used where its field is selected, by itself or from a group that is passed on whole.
func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	source := ownSource(t)
	for _, spec := range []any{config.API{}, config.Worker{}, config.Migrate{}, config.Tool{}, config.Local{}} {
		process := reflect.TypeOf(spec)
		for group := range process.Fields() {
			for field := range group.Type.Fields() {
				whole := regexp.MustCompile(`settings\.`+group.Name+`[,)]`).MatchString(source) &&
					regexp.MustCompile(`settings\.`+field.Name+`\b`).MatchString(source)
				if alone := strings.Contains(source, "settings."+group.Name+"."+field.Name); !alone && !whole {
					t.Errorf("%s is accepted by %s, but nothing reads %s.%s", field.Tag.Get("env"), process.Name(), group.Name, field.Name)
				}
			}
		}
	}
}

// ownSource is the text of this package's files that are no tests.
func ownSource(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}

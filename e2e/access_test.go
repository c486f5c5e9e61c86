package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
)

// door is one call and who may make it.
type door struct {
	method, path, body string
	tenant, operator   int // status with a key of that role
}

func TestKeysOpenWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	w := q.startWorker(t, q.name("w"), 4)
	placed := q.place(t, `{"id":"mine"}`)
	rejoin := fmt.Sprintf(`{"generation":%d}`, placed.Generation)
	for _, d := range []door{
		{"POST", "/v1/sessions", `{"id":"mine"}`, 200, 403},
		{"GET", "/v1/sessions/mine", "", 200, 400}, // an operator says whose
		{"GET", "/v1/sessions/mine?tenant=" + q.tenant, "", 200, 200},
		{"POST", "/v1/sessions/mine/peers", `{"id":"p"}`, 201, 403},
		{"POST", "/v1/sessions/mine/rejoin", rejoin, 200, 403},
		{"GET", "/v1/sessions?limit=1", "", 200, 200},
		{"GET", "/v1/workers", "", 403, 200},
		{"GET", "/v1/workers/" + w.id, "", 403, 200},
		{"GET", "/v1/workers/none", "", 403, 404},
		{"POST", "/v1/workers/none/drain", "", 403, 404},
		{"DELETE", "/v1/workers/none/drain", "", 403, 404},
		{"DELETE", "/v1/sessions/none", "", 404, 400},
	} {
		what := d.method + " " + d.path
		if r := q.call(t, d.method, d.path, d.body); r.status != d.tenant {
			t.Errorf("%s with a tenant's key: %d %s, want %d", what, r.status, r.body, d.tenant)
		}
		if r := q.operate(t, d.method, d.path, d.body); r.status != d.operator {
			t.Errorf("%s with an operator's key: %d %s, want %d", what, r.status, r.body, d.operator)
		}
		for name, key := range map[string]string{
			"no key": "", "nonsense": "nonsense", "a key that was never made": forged(q.key), "a cut key": q.key[:len(q.key)-1],
		} {
			if r := call(t, d.method, q.APIURL+d.path, key, d.body); r.status != 401 || r.code(t) != "unauthenticated" {
				t.Errorf("%s with %s: %d %s", what, name, r.status, r.body)
			}
		}
	}
}

// forged has the public part of a key and another secret.
func forged(key string) string {
	public, secret := key[:strings.LastIndex(key, "_")+1], key[strings.LastIndex(key, "_")+1:]
	return public + strings.Map(func(r rune) rune {
		if r == 'A' {
			return 'B'
		}
		return 'A'
	}, secret)
}

func TestAnotherTenantsSessionIsNotFound(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	placed := q.place(t, `{"id":"hidden"}`)
	stranger := newQuarter(t, q.stack, nil)
	for _, d := range []door{
		{"GET", "/v1/sessions/hidden", "", 404, 0},
		{"DELETE", "/v1/sessions/hidden", "", 404, 0},
		{"POST", "/v1/sessions/hidden/peers", `{}`, 404, 0},
		{"POST", "/v1/sessions/hidden/rejoin", fmt.Sprintf(`{"generation":%d}`, placed.Generation), 404, 0},
		{"GET", "/v1/sessions/hidden?tenant=" + q.tenant, "", 403, 0},
		{"GET", "/v1/sessions?tenant=" + q.tenant, "", 403, 0},
	} {
		if r := stranger.call(t, d.method, d.path, d.body); r.status != d.tenant {
			t.Errorf("%s %s: %d %s, want %d", d.method, d.path, r.status, r.body, d.tenant)
		}
	}
	if r := stranger.call(t, "GET", "/v1/sessions", ""); strings.Contains(r.body, "hidden") {
		t.Errorf("listed for a stranger: %s", r.body)
	}
	// the id is free for other tenants: it is unique among a tenant's own
	stranger.startWorker(t, stranger.name("w"), 1)
	if got := stranger.place(t, `{"id":"hidden"}`); got.Generation == placed.Generation {
		t.Errorf("two tenants share a placement: %+v", got)
	}
	if row := q.call(t, "GET", "/v1/sessions/hidden", ""); parse[placement](t, row).Generation != placed.Generation {
		t.Errorf("the first tenant's session is now %s", row.body)
	}
}

func TestARevokedKeyStopsWorking(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	key := q.newKey(t, auth.RoleTenant, q.tenant)
	list := func() int { return call(t, "GET", q.APIURL+"/v1/sessions", key, "").status }
	if status := list(); status != 200 {
		t.Fatalf("with a fresh key: %d", status)
	}
	began := time.Now()
	if err := q.store.RevokeKey(t.Context(), strings.Split(key, "_")[2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if status := list(); status != 401 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	if took := time.Since(began); took > 11*time.Second {
		t.Errorf("it worked for %v after it was revoked", took)
	}
	if r := q.call(t, "GET", "/v1/sessions", ""); r.status != 200 {
		t.Errorf("the other key: %d %s", r.status, r.body)
	}
}

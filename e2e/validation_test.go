package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// refused sends bodies to POST /v1/sessions, checks that each is refused with 400 in the name of its field, and that
// no row and no slot came of any.
func (q *quarter) refused(t *testing.T, cases map[string]string) {
	t.Helper()
	for body, field := range cases {
		q.refusedBy(t, q.call(t, "POST", "/v1/sessions", body), body, field)
	}
	q.nothingStored(t)
}

func (q *quarter) refusedBy(t *testing.T, r reply, what, field string) {
	t.Helper()
	if r.status != http.StatusBadRequest {
		t.Errorf("%.100q: %d %s", what, r.status, r.body)
		return
	}
	refusal := parse[problem](t, r)
	if refusal.Code != "invalid_argument" || refusal.RequestID == "" || len(refusal.Errors) == 0 ||
		refusal.Errors[0].Field != field || refusal.Errors[0].Reason == "" {
		t.Errorf("%.100q: %s, want invalid_argument naming %q", what, r.body, field)
	}
}

func (q *quarter) nothingStored(t *testing.T) {
	t.Helper()
	if sessions, used := q.sessions(t), q.used(t); sessions != 0 || used != 0 {
		t.Errorf("%d rows and %d slots came of what was refused", sessions, used)
	}
}

func TestScenario_V01_EscapedNULIsRefused(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	q.refused(t, map[string]string{
		`{"id":"a\u0000b"}`:                             "id",
		`{"peer":{"id":"p\u0000"}}`:                     "peer.id",
		`{"tenant":"t\u0000"}`:                          "tenant",
		`{"region":"eu\u0000"}`:                         "region",
		`{"handler":"echo\u0000"}`:                      "handler",
		`{"metadata":{"a\u0000b":1}}`:                   "metadata.?",
		`{"metadata":{"a":{"b":["x",{"c":"\u0000"}]}}}`: "metadata.a.b.1.c",
	})
	for _, path := range []string{"/v1/sessions/a%00b", "/v1/sessions/%00"} {
		q.refusedBy(t, q.call(t, "GET", path, ""), path, "id")
		q.refusedBy(t, q.call(t, "DELETE", path, ""), path, "id")
	}
	q.refusedBy(t, q.operate(t, "GET", "/v1/workers/w%00", ""), "worker", "id")
}

func TestScenario_V03_IdsThatDifferInAnInvalidByteAreRefused(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	q.refused(t, map[string]string{
		"{\"id\":\"x\xff\"}":                  "id",
		"{\"id\":\"x\xfe\"}":                  "id",
		"{\"metadata\":{\"k\":\"\xc3\x28\"}}": "metadata.k",
		`{"id":"x\ud800"}`:                    "id",
	})
}

func TestScenario_V05_OtherSpellingsOverrideNothing(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	q.refused(t, map[string]string{
		`{"id":"a","Id":"b"}`:         "Id",
		`{"id":"a","id":"b"}`:         "id",
		`{"tenant":"t-1","Tenant":2}`: "tenant",
		`{"tenant_id":"t-2"}`:         "tenant_id",
		`{"ttl_ſeconds":20}`:          "?",
		`{"metadata":{"a":1,"a":2}}`:  "metadata.a",
	})
}

func TestScenario_V06_WhatFollowsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	q.refused(t, map[string]string{
		`{"id":"a"}{"id":"b"}`:     "body",
		`{"id":"a"} xyz`:           "body",
		`{"id":"a"}` + "\x00":      "body",
		`[{"id":"a"}]`:             "body",
		`null`:                     "body",
		`{"id":"a"`:                "body",
		`{"id":"a"},{"id":"b"}`:    "body",
		`{"id":"a"}` + "\n" + `{}`: "body",
	})
	for _, id := range []string{"a", "b"} {
		if r := q.call(t, "GET", "/v1/sessions/"+id, ""); r.status != 404 {
			t.Errorf("session %s: %d %s", id, r.status, r.body)
		}
	}
}

func TestScenario_V08_TooLargeBodyIs413(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	large := `{"metadata":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`
	for name, prepare := range map[string]func(*http.Request){
		"Content-Length":       func(*http.Request) {},
		"chunked":              func(r *http.Request) { r.ContentLength = -1; r.Body = io.NopCloser(strings.NewReader(large)) },
		"Expect: 100-continue": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
	} {
		request := newRequest(t, "POST", q.APIURL+"/v1/sessions", q.key, strings.NewReader(large))
		prepare(request)
		if r := send(t, request); r.status != http.StatusRequestEntityTooLarge || r.code(t) != "too_large" || !r.closed {
			t.Errorf("%s: %d, connection closed: %v: %s", name, r.status, r.closed, r.body)
		}
	}
	q.nothingStored(t)
}

// TestScenario_V08_SlowSenderIsCut sends a byte a second until the server has had enough.
func TestScenario_V08_SlowSenderIsCut(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	connection, err := net.Dial("tcp", strings.TrimPrefix(q.APIURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()            // read to its end
	_ = connection.SetDeadline(time.Now().Add(patience)) // a TCP connection has deadlines
	_, err = fmt.Fprintf(connection, "POST /v1/sessions HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n{", q.key)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stop := make(chan struct{})
	var dribble sync.WaitGroup
	dribble.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_, _ = connection.Write([]byte(" ")) // fails once the server has closed
			case <-stop:
				return
			}
		}
	})
	defer dribble.Wait()
	defer close(stop)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	defer func() { _ = response.Body.Close() }() // the connection is closed anyway
	if took := time.Since(began); response.StatusCode != http.StatusBadRequest || !response.Close || took > patience/2 {
		t.Errorf("status %d, connection closed: %v, after %v", response.StatusCode, response.Close, took)
	}
	q.nothingStored(t)
}

func TestScenario_V10_LifetimesAreExactAndNeverClamped(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	bodies := map[string]string{}
	for _, value := range []string{"0", "-1", "1", "9", "86401", "1.5", `"30"`, "3e1", "true", "null", "1e12", "2147483648", "99999999999999999999"} {
		bodies[`{"ttl_seconds":`+value+`}`] = "ttl_seconds"
		bodies[`{"idle_timeout_seconds":`+strings.Replace(value, "9", "4", 1)+`}`] = "idle_timeout_seconds"
	}
	delete(bodies, `{"idle_timeout_seconds":46401}`)
	q.refused(t, bodies)
	for _, seconds := range []int{10, 86400} {
		id := q.name(fmt.Sprint(seconds))
		q.place(t, fmt.Sprintf(`{"id":%q,"ttl_seconds":%d}`, id, seconds))
		got := query[float64](t, q.stack, "select extract(epoch from expires_at - created_at)::float8 from berth.sessions where id = $1", id)
		if got != float64(seconds) {
			t.Errorf("ttl of %d s became %v s", seconds, got)
		}
	}
}

func TestScenario_V11_EverySessionCanBeAddressed(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 8)
	ids := []string{"a/b", "a%2Fb", "..", ".", "é", "a b", "", "-a", "a?b", "a#b", "%41", strings.Repeat("a", 129)}
	bodies := map[string]string{}
	for _, id := range ids {
		bodies[fmt.Sprintf(`{"id":%q}`, id)] = "id"
	}
	q.refused(t, bodies)
	for _, id := range ids {
		for _, path := range []string{url.PathEscape(id), url.PathEscape(id) + "/"} {
			for _, method := range []string{"GET", "DELETE"} {
				if r := q.call(t, method, "/v1/sessions/"+path, ""); r.status != 400 && r.status != 404 {
					// a path that is empty or climbs is another path
					if !slices.Contains([]int{301, 405, 200}, r.status) || id != "" && id != "." && id != ".." {
						t.Errorf("%s /v1/sessions/%s: %d %s", method, path, r.status, r.body)
					}
				}
			}
		}
	}
	for _, id := range []string{"a", "A.b_c~d-e", "0", "a..b", "rejoin", strings.Repeat("z", 128)} {
		q.place(t, fmt.Sprintf(`{"id":%q}`, id))
		for _, step := range []struct {
			method, suffix string
			status         int
		}{{"GET", "", 200}, {"GET", "/", 404}, {"DELETE", "/", 404}, {"DELETE", "", 204}} {
			if r := q.call(t, step.method, "/v1/sessions/"+id+step.suffix, ""); r.status != step.status {
				t.Errorf("%s %s%s: %d, want %d", step.method, id, step.suffix, r.status, step.status)
			}
		}
	}
	if live := query[int](t, q.stack, "select sum(live_sessions)::int from berth.tenant_lanes where tenant_id = $1", q.tenant); live != 0 {
		t.Errorf("%d sessions live on that nobody could address", live)
	}
}

func TestScenario_V13_WorkerWithImpossibleSlotsDoesNotStart(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	for _, slots := range []string{"-1", "0", "2147483648", "1e12", `"4"`, "", "null", "4.0", "0x10", " 4", "+4", "010"} {
		w := q.launchWorkerWith(t, q.name("w"), "BERTH_WORKER_SLOTS="+slots)
		code, err := w.wait()
		if err != nil || code != 2 || !strings.Contains(w.errors(), "BERTH_WORKER_SLOTS") {
			t.Errorf("slots %q: exit code %d, %v, says %q", slots, code, err, w.errors())
		}
	}
	if n := query[int](t, q.stack, "select count(*) from berth.workers where region = $1", q.region); n != 0 {
		t.Errorf("%d of them registered", n)
	}
}

func TestScenario_V15_EachWayToNameARegionHasOneAnswer(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	other := newQuarter(t, q.stack, nil)
	other.startWorker(t, other.name("w"), 4)
	q.refused(t, map[string]string{
		`{"region":""}`:              "region",
		`{"region":" "}`:             "region",
		`{"region":"EU-West"}`:       "region",
		`{"region":"no-such-place"}`: "region",
	})
	// configured but empty: refused here, since nothing is said about spilling
	if r := q.call(t, "POST", "/v1/sessions", `{}`); r.status != 503 || r.code(t) != "at_capacity" {
		t.Errorf("no worker in the default region: %d %s", r.status, r.body)
	}
	q.startWorker(t, q.name("w"), 4)
	if got := q.place(t, `{}`); got.Region != q.region || got.Spilled {
		t.Errorf("no region: %+v, want the tenant's own %s", got, q.region)
	}
	if got := q.place(t, fmt.Sprintf(`{"region":%q}`, other.region)); got.Region != other.region || got.Spilled {
		t.Errorf("region %s: %+v", other.region, got)
	}
}

// TestScenario_V15_WorkerWithoutARegionStandsInTheDefaultOne starts a worker that is told no region.
func TestScenario_V15_WorkerWithoutARegionStandsInTheDefaultOne(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	w := q.launchWorkerWith(t, q.name("w"))
	q.awaitReady(t, w, 0)
	got := q.place(t, `{"region":"default"}`)
	if got.Owner.WorkerID != w.id || got.Region != "default" {
		t.Errorf("placed %+v, want on %s", got, w.id)
	}
}

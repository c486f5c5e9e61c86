package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// refused sends a body to POST /v1/sessions and checks that it is refused with 400 in the name of field, and that
// nothing reached the store.
func (r *rig) refused(body, field string) {
	r.t.Helper()
	r.refusedBy(r.call(http.MethodPost, "/v1/sessions", r.tenant, body), body, field)
}

func (r *rig) refusedBy(a reply, body, field string) {
	r.t.Helper()
	problem := a.problem(r.t)
	if a.status != http.StatusBadRequest || problem.Code != "invalid_argument" || problem.Errors == nil {
		r.t.Errorf("%.80q: %d %s", body, a.status, a.body)
		return
	}
	if got := (*problem.Errors)[0]; got.Field != field || got.Reason == "" {
		r.t.Errorf("%.80q: names %q (%s), want %q", body, got.Field, got.Reason, field)
	}
	if n := r.store.calls.Load(); n != 0 {
		r.t.Errorf("%.80q: %d calls reached the store", body, n)
	}
}

func TestScenario_V01_EscapedNULIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for body, field := range map[string]string{
		`{"id":"a\u0000b"}`:                             "id",
		`{"id":"\u0000"}`:                               "id",
		`{"region":"eu\u0000"}`:                         "region",
		`{"handler":"echo\u0000"}`:                      "handler",
		`{"kind":"media\u0000"}`:                        "kind",
		`{"peer":{"id":"p\u0000"}}`:                     "peer.id",
		`{"peer":{"role":"\u0000"}}`:                    "peer.role",
		`{"on_worker_loss":"end\u0000"}`:                "on_worker_loss",
		`{"metadata":{"a\u0000b":1}}`:                   "metadata.?",
		`{"metadata":{"a":{"b":["x",{"c":"\u0000"}]}}}`: "metadata.a.b.1.c",
		`{"tenant\u0000":"t-2"}`:                        "?",
		`{"strategy":"pack\u0000"}`:                     "strategy",
		`{"selector":{"gpu":"a\u0000"}}`:                "selector.gpu",
		`{"selector":{"g\u0000":"a"}}`:                  "selector.?",
	} {
		r.refused(body, field)
	}
	for _, path := range []string{"/v1/sessions/a%00b", "/v1/sessions/%00"} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			r.refusedBy(r.call(method, path, r.tenant, ""), path, "id")
		}
	}
	r.refusedBy(r.call("GET", "/v1/sessions?worker=a%00", r.tenant, ""), "query", "worker")
	r.refusedBy(r.call("GET", "/v1/sessions?tenant=%00", r.operator, ""), "query", "tenant")
}

func TestScenario_V03_InvalidUTF8IsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.refused("{\"id\":\"x\xff\"}", "id")
	r.refused("{\"id\":\"x\xfe\"}", "id")
	r.refused("{\"metadata\":{\"k\":\"\xc3\x28\"}}", "metadata.k")
	r.refused("{\"metadata\":{\"\xff\":1}}", "metadata")
	r.refused(`{"metadata":{"k":"\ud800"}}`, "metadata.k")
	r.refused("{\"selector\":{\"gpu\":\"\xff\"}}", "selector.gpu")
	r.refused("{\"strategy\":\"\xfe\"}", "strategy")
	r.refusedBy(r.call("GET", "/v1/sessions/x%FF", r.tenant, ""), "path", "id")
}

func TestScenario_V05_OtherSpellingsOfAMemberAreUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for body, field := range map[string]string{
		`{"id":"a","ID":"b"}`:                           "ID",
		`{"id":"a","Id":"b"}`:                           "Id",
		`{"id":"a","id":"b"}`:                           "id",
		`{"id":"a","\u0069d":"b"}`:                      "id",
		`{"tenant":"t-2"}`:                              "tenant",
		`{"tenant_id":"t-2"}`:                           "tenant_id",
		`{"TTL_seconds":20}`:                            "TTL_seconds",
		`{"ttl_ſeconds":20}`:                            "?",
		`{"peer":{"id":"p","Role":"x"}}`:                "peer.Role",
		`{"metadata":{"a":1,"a":2}}`:                    "metadata.a",
		`{"metadata":{"a":{"b":1,"b":2}}}`:              "metadata.a.b",
		`{"turn":true}`:                                 "turn", // later features are unknown until they exist
		`{"Slots":2}`:                                   "Slots",
		`{"ſlots":2}`:                                   "?",
		`{"slots":1,"slots":2}`:                         "slots",
		`{"slots":null}`:                                "slots",
		`{"strategy":null}`:                             "strategy",
		`{"strategy":"spread","Strategy":"pack"}`:       "Strategy",
		`{"selector":null}`:                             "selector",
		`{"selector":{"gpu":null}}`:                     "selector.gpu",
		`{"selector":{"gpu":"a","gpu":"b"}}`:            "selector.gpu",
		`{"selector":{"gpu":"a","g\u0070u":"b"}}`:       "selector.gpu",
		`{"id":null}`:                                   "id",
		`{"metadata":null}`:                             "metadata",
		`{"peer":{"role":null}}`:                        "peer.role",
		`{"ttl_seconds":null,"idle_timeout_seconds":5}`: "ttl_seconds",
	} {
		r.refused(body, field)
	}
}

func TestScenario_V06_TextAfterTheDocumentIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, body := range []string{
		`{"id":"a"}{"id":"b"}`, `{"id":"a"} xyz`, `{"id":"a"},`, `{"id":"a"}]`, `{} {}`, `{"id":"a"`, `{`, `null`, `[]`, `[{"id":"a"}]`,
		`"a"`, `1`, `true`, ` `, `xyz`, "\ufeff{}", `{"id":"a"}` + "\x00",
	} {
		r.refused(body, "body")
	}
}

func TestScenario_V08_TooLargeBodyIs413HoweverItIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	large := `{"metadata":{"a":"` + strings.Repeat("x", maxBody) + `"}}`
	for name, prepare := range map[string]func(*http.Request){
		"Content-Length": func(*http.Request) {},
		"chunked":        func(q *http.Request) { q.ContentLength = -1; q.Header.Set("Content-Type", "application/json") },
		"Expect":         func(q *http.Request) { q.Header.Set("Expect", "100-continue") },
		"Expect chunked": func(q *http.Request) { q.ContentLength = -1; q.Header.Set("Expect", "100-continue") },
	} {
		request := r.request(http.MethodPost, "/v1/sessions", r.tenant, strings.NewReader(large))
		prepare(request)
		a := r.send(request)
		if a.status != http.StatusRequestEntityTooLarge || !a.Close || a.problem(t).Code != "too_large" {
			t.Errorf("%s: %d, connection closed: %v: %s", name, a.status, a.Close, a.body)
		}
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
	exact := `{"id":"fits"}`
	if a := r.call("POST", "/v1/sessions", r.tenant, exact+strings.Repeat(" ", maxBody-len(exact))); a.status != 201 {
		t.Errorf("a body of exactly the limit: %d", a.status)
	}
}

func TestScenario_V08_SlowSenderIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.BodyTimeout = 200 * time.Millisecond })
	connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	began := time.Now()
	_, err = fmt.Fprintf(connection, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", r.tenant)
	if err != nil {
		t.Fatal(err)
	}
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusBadRequest || !response.Close {
		t.Errorf("%d, closed: %v", response.StatusCode, response.Close)
	}
	if _, err := reader.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("cut after %v", took)
	}
}

func TestScenario_V08_SenderThatIsAnsweredBeforeItsBodyIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, want := range map[string]struct {
		key    string
		status int
	}{
		"too large": {r.tenant, http.StatusRequestEntityTooLarge},
		"no key":    {"nobody", http.StatusUnauthorized},
	} {
		connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = fmt.Fprintf(connection, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", want.key, maxBody+1)
		if err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want.status {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
		if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection is not closed: %v", name, err)
		}
		_ = connection.Close()
	}
}

func TestScenario_V10_IntegersAreExactAndNeverClamped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, value := range []string{"0", "-1", "-0", "86401", "1.5", `"30"`, "3e1", "30.0", "true", "[]", "{}", "1e12", "2147483648", "99999999999999999999", "-30"} {
		r.refused(`{"ttl_seconds":`+value+`}`, "ttl_seconds")
		r.refusedBy(r.call("POST", "/v1/workers/w-1/drain", r.operator, `{"deadline_seconds":`+value+`}`), value, "deadline_seconds")
	}
	r.refused(`{"ttl_seconds":1}`, "ttl_seconds")
	r.refused(`{"ttl_seconds":9}`, "ttl_seconds")
	for _, value := range []string{"4", "3601", "0", `"60"`} {
		r.refused(`{"idle_timeout_seconds":`+value+`}`, "idle_timeout_seconds")
	}
	for _, value := range []string{"0", "-1", "-0", "65", "1.5", `"2"`, "2.0", "1e1", "true", "[]", "2147483648", "99999999999999999999"} {
		r.refused(`{"slots":`+value+`}`, "slots")
	}
	for seconds := range map[int]bool{10: true, 86400: true, 3599: true} {
		placed := r.place(fmt.Sprintf(`{"ttl_seconds":%d}`, seconds))
		if got := placed.ExpiresAt.Sub(placed.CreatedAt); got != time.Duration(seconds)*time.Second {
			t.Errorf("ttl %d became %v", seconds, got)
		}
	}
}

func TestScenario_V11_NoSessionExistsThatCannotBeAddressed(t *testing.T) {
	t.Parallel()
	ids := []string{"a/b", "a%2Fb", "..", ".", "é", "a b", "", "a\nb", "-a", ".a", "a?b", "a#b", "a;b", "a:b", "a\\b", "%41", strings.Repeat("a", 129)}
	r := newRig(t, nil)
	for _, id := range ids {
		r.refused(fmt.Sprintf(`{"id":%q}`, id), "id")
		r.refused(fmt.Sprintf(`{"peer":{"id":%q}}`, id), "peer.id")
		escaped := url.PathEscape(id)
		for _, path := range []string{escaped, escaped + "/", url.PathEscape(escaped), url.PathEscape(escaped) + "/", strings.ReplaceAll(escaped, ".", "%2E")} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				a := r.call(method, "/v1/sessions/"+path, r.tenant, "")
				if a.status != http.StatusBadRequest && a.status != http.StatusNotFound {
					t.Errorf("%s /v1/sessions/%s: %d", method, path, a.status)
				}
			}
		}
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
	for _, id := range []string{"a", "A.b_c~d-e", "0", "a..b", "drain", "rejoin", strings.Repeat("z", 128)} {
		r.place(fmt.Sprintf(`{"id":%q}`, id))
		if a := r.call("GET", "/v1/sessions/"+id, r.tenant, ""); a.status != 200 {
			t.Errorf("GET %s: %d", id, a.status)
		}
		if a := r.call("DELETE", "/v1/sessions/"+id, r.tenant, ""); a.status != 204 {
			t.Errorf("DELETE %s: %d", id, a.status)
		}
	}
	// a second decoding would make this the id "A"
	if a := r.call("GET", "/v1/sessions/%2541", r.tenant, ""); a.status != 400 {
		t.Errorf("doubly escaped: %d", a.status)
	}
}

func TestScenario_V15_EachWayToNameARegionHasOneAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, region := range []string{"", " ", "EU-West", "eu_west", "-eu", "é", strings.Repeat("a", 33)} {
		r.refused(fmt.Sprintf(`{"region":%q}`, region), "region")
	}
	if a := r.call("POST", "/v1/sessions", r.tenant, `{"region":"nowhere"}`); a.status != 400 || (*a.problem(t).Errors)[0].Field != "region" {
		t.Errorf("unknown region: %d %s", a.status, a.body)
	}
	if placed := r.place(`{}`); placed.RequestedRegion != nil || placed.Spilled {
		t.Errorf("no region: %+v", placed)
	}
	placed := r.place(`{"region":"eu-north"}`)
	if placed.RequestedRegion == nil || *placed.RequestedRegion != "eu-north" || !placed.Spilled || placed.Region != "local" {
		t.Errorf("spilled: %+v", placed)
	}
}

func TestEveryFieldThatIsWrongIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.call("POST", "/v1/sessions", r.tenant, `{"id":"!","kind":"room","peer":{"role":"A"},"region":"X","handler":"sfu","ttl_seconds":1,"on_worker_loss":"keep","metadata":[],"slots":65,"strategy":"random","selector":{"gpu":""}}`)
	var fields []string
	for _, e := range *a.problem(t).Errors {
		fields = append(fields, e.Field)
		if e.Field == "handler" && e.Reason != "must be one of echo, play" {
			t.Errorf("handler: %q", e.Reason)
		}
	}
	slices.Sort(fields)
	if want := []string{"handler", "id", "kind", "metadata", "on_worker_loss", "peer.role", "region", "selector.gpu", "slots", "strategy", "ttl_seconds"}; !slices.Equal(fields, want) {
		t.Errorf("named %q, want %q", fields, want)
	}
}

func TestMetadataIsBoundedAndKeptAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	nested := func(levels int) string {
		return `{"metadata":` + strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1) + `}`
	}
	r.refused(nested(33), "metadata.a.a.a.a.a.a.a....")
	r.refused(nested(10000), "metadata.a.a.a.a.a.a.a....")
	r.refused(`{"metadata":`+strings.Repeat("[", 20000), "metadata.0.0.0.0.0.0.0....")
	r.refused(`{"metadata":{"a":"`+strings.Repeat("x", berth.MaxMetadataBytes-7)+`"}}`, "metadata")
	r.refused(`{"metadata":"text"}`, "metadata")
	r.place(nested(32))
	r.place(`{"metadata":{"a":"` + strings.Repeat("x", berth.MaxMetadataBytes-8) + `"}}`)
	r.place(`{"id":"m","metadata": { "n": 1e131072, "big": 12345678901234567890, "null": null, "é": "<&>" } }`)
	a := r.call("GET", "/v1/sessions/m", r.tenant, "")
	for _, kept := range []string{`1e131072`, `12345678901234567890`, `"null":null`} {
		if !strings.Contains(string(a.body), kept) {
			t.Errorf("%s is not in %s", kept, a.body)
		}
	}
}

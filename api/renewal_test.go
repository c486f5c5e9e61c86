package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// secretOf is a row of the renewal secrets.
type secretOf struct {
	workerID string
	berth.RenewalSecret
}

// RenewalSecrets implements Renewals.
func (s *store) RenewalSecrets(ctx context.Context, workerID string) ([]berth.RenewalSecret, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []berth.RenewalSecret
	for _, x := range s.secrets {
		if x.workerID == workerID {
			found = append(found, x.RenewalSecret)
		}
	}
	return found, nil
}

// Renew implements Renewals.
func (s *store) Renew(ctx context.Context, renewal berth.Renewal) (berth.RenewalAnswer, error) {
	if err := s.enter(ctx); err != nil {
		return berth.RenewalAnswer{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewals = append(s.renewals, renewal)
	return s.renewed, nil
}

// Reconcile implements Renewals.
func (s *store) Reconcile(ctx context.Context, _ string, _ berth.Instance, held []berth.Held) ([]berth.Dropped, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconciled = append(s.reconciled, held)
	return s.dropped, nil
}

// secret registers an instance of a worker.
func (r *rig) secret(workerID string, instance berth.Instance) string {
	secret, hash := auth.NewRenewalSecret()
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.secrets = append(r.store.secrets, secretOf{workerID, berth.RenewalSecret{Instance: instance, Hash: hash}})
	return secret
}

// renewalBody is what a worker sends that serves held; the list goes along if listed.
func renewalBody(instance int, held []berth.Held, listed bool) string {
	request := map[string]any{
		"instance": instance, "count": len(held), "digest": fmt.Sprintf("%016x", berth.Digest(held)), "lease_ms": 6000,
	}
	if listed {
		list := make([]map[string]any, len(held))
		for i, h := range held {
			list[i] = map[string]any{"key": h.Key, "generation": h.Generation}
		}
		request["held"] = list
	}
	body, _ := json.Marshal(request) //nolint:errchkjson // made of what can be encoded
	return string(body)
}

const renewalPath = "/v1/workers/w-1/renewal"

func TestReplicaRenewsAndAnswersWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	secret := r.secret("w-1", 7)
	held := []berth.Held{{Key: 1, Generation: 101}, {Key: 2, Generation: 1 << 60}}
	deadline := r.store.now.Add(time.Hour)
	for _, want := range []berth.RenewalAnswer{
		{Verdict: berth.RenewalYours, State: berth.WorkerReady, Matched: true, At: r.store.now, ExpiresAt: r.store.now.Add(6 * time.Second)},
		{Verdict: berth.RenewalYours, State: berth.WorkerDraining, DrainDeadline: deadline, At: r.store.now, ExpiresAt: deadline},
		{Verdict: berth.RenewalReplaced, At: r.store.now},
		{Verdict: berth.RenewalOver, At: r.store.now},
	} {
		r.store.renewed = want
		a := r.call("POST", renewalPath, secret, renewalBody(7, held, false))
		got := parse[wire.Renewal](t, a)
		if a.status != 200 || string(got.Verdict) != string(want.Verdict) || got.Matched != want.Matched || !got.At.Equal(want.At) || len(got.Dropped) != 0 {
			t.Errorf("%+v: %d %s", want, a.status, a.body)
		}
		if (got.DrainDeadline == nil) != want.DrainDeadline.IsZero() || (got.ExpiresAt == nil) != want.ExpiresAt.IsZero() {
			t.Errorf("%+v: %s", want, a.body)
		}
	}
	want := berth.Renewal{WorkerID: "w-1", Instance: 7, Count: 2, Digest: berth.Digest(held), Lease: 6 * time.Second, Relayed: true}
	if got := r.store.renewals[0]; got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
	if len(r.store.reconciled) != 0 {
		t.Error("compared lists, though there was none")
	}
}

func TestReplicaComparesTheListWhenItDiffers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	secret := r.secret("w-1", 7)
	held := make([]berth.Held, 20_000) // more than any other body may hold
	for i := range held {
		held[i] = berth.Held{Key: berth.SessionKey(1_000_000 + i), Generation: berth.Generation(10_000_000 + i)}
	}
	r.store.renewed = berth.RenewalAnswer{Verdict: berth.RenewalYours, State: berth.WorkerReady, At: r.store.now}
	r.store.dropped = []berth.Dropped{{Held: held[3]}, {Held: held[5], Ended: true, Reason: berth.EndedDeleted}}
	a := r.call("POST", renewalPath, secret, renewalBody(7, held, true))
	got := parse[wire.Renewal](t, a)
	if a.status != 200 || len(got.Dropped) != 2 || got.Dropped[0].Ended || got.Dropped[0].Key != int64(held[3].Key) ||
		!got.Dropped[1].Ended || *got.Dropped[1].Reason != wire.EndedReason("deleted") {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	if len(r.store.reconciled) != 1 || !slices.Equal(r.store.reconciled[0], held) {
		t.Error("the list did not arrive")
	}
	r.store.renewed.Matched = true
	r.call("POST", renewalPath, secret, renewalBody(7, held, true))
	r.store.renewed = berth.RenewalAnswer{Verdict: berth.RenewalOver, At: r.store.now}
	r.call("POST", renewalPath, secret, renewalBody(7, held, true))
	if len(r.store.reconciled) != 1 {
		t.Error("compared lists that match, or of an instance that is over")
	}
	if a := r.call("POST", renewalPath, secret, strings.Repeat(" ", maxRenewalBody)+"{}"); a.status != 413 {
		t.Errorf("larger than 1 MiB: %d", a.status)
	}
}

func TestRenewalIsForTheSecretOfTheInstanceAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	secret, other := r.secret("w-1", 7), r.secret("w-2", 8)
	unknown, _ := auth.NewRenewalSecret()
	body := renewalBody(7, nil, false)
	for name, key := range map[string]string{
		"none": "", "a tenant's": r.tenant, "an operator's": r.operator, "unknown": unknown, "another worker's": other,
		"cut": secret[:len(secret)-1], "longer": secret + "A", "no secret": "berth_renewal_", "odd": "berth_renewal_" + strings.Repeat("é", 60),
	} {
		for range 2 { // also once another call made it known
			a := r.call("POST", renewalPath, key, body)
			if a.status != 401 || key != "" && strings.Contains(string(a.body), key) {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
			r.call("POST", "/v1/workers/w-2/renewal", other, renewalBody(8, nil, false))
		}
	}
	if a := r.call("POST", "/v1/workers/w-2/renewal", secret, body); a.status != 401 {
		t.Errorf("at another worker: %d", a.status)
	}
	if a := r.call("POST", "/v1/workers/a%2Fb/renewal", secret, body); a.status != 401 {
		t.Errorf("at no worker: %d", a.status)
	}
	for _, path := range []string{"/v1/workers", "/v1/sessions"} {
		if a := r.call("GET", path, secret, ""); a.status != 401 {
			t.Errorf("GET %s with a worker's secret: %d", path, a.status)
		}
	}
	for _, renewal := range r.store.renewals {
		if renewal.WorkerID != "w-2" {
			t.Errorf("renewed %+v", renewal)
		}
	}
}

func TestRenewalNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	secret := r.secret("w-1", 7)
	const digest = `"digest":"0000000000000000"`
	for body, field := range map[string]string{
		`{"instance":8,"count":0,` + digest + `,"lease_ms":6000}`:                                         "instance",
		`{"instance":7,"count":-1,` + digest + `,"lease_ms":6000}`:                                        "count",
		`{"instance":7,"count":0,"digest":"0","lease_ms":6000}`:                                           "digest",
		`{"instance":7,"count":0,"digest":"x000000000000000","lease_ms":6000}`:                            "digest",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":499}`:                                          "lease_ms",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":300001}`:                                       "lease_ms",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":9223372036854775807}`:                          "lease_ms",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":6000,"held":[{"key":1,"generation":1}]}`:       "held",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":6000,"held":"x"}`:                              "held",
		`{"instance":7,"count":0,` + digest + `,"lease_ms":6000,"more":1}`:                                "more",
		`{"instance":7,"count":1,` + digest + `,"lease_ms":6000,"held":[{"key":1,"generation":1,"x":1}]}`: "held.0.x",
	} {
		a := r.call("POST", renewalPath, secret, body)
		problem := a.problem(t)
		if a.status != 400 || problem.Errors == nil || (*problem.Errors)[0].Field != field {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if len(r.store.renewals) != 0 {
		t.Errorf("renewed %+v", r.store.renewals)
	}
}

func TestReplicaSaysSoonThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stranger, friend := r.secret("w-1", 7), r.secret("w-1", 8)
	if a := r.call("POST", renewalPath, friend, renewalBody(8, nil, false)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	away := func(how string) {
		t.Helper()
		for secret, instance := range map[string]int{stranger: 7, friend: 8} {
			began := time.Now()
			a := r.call("POST", renewalPath, secret, renewalBody(instance, nil, false))
			if a.status != 503 || a.problem(t).Code != "unavailable" || a.problem(t).Detail != "The database is away." {
				t.Errorf("%s: %d %s", how, a.status, a.body)
			}
			if took := time.Since(began); took > 2*renewWithin {
				t.Errorf("%s: answered after %v", how, took)
			}
		}
	}
	r.store.frozen.Store(true)
	away("it hangs")
	r.store.frozen.Store(false)
	r.store.setFail(fmt.Errorf("dial: %w", berth.ErrUnavailable))
	away("it refuses")
	r.store.setFail(nil)
	if a := r.call("POST", renewalPath, stranger, renewalBody(7, nil, false)); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

func TestRenewalsAreLimitedByInstanceAndGuessesByProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	eager, calm := r.secret("w-1", 7), r.secret("w-2", 8)
	calmly := func() {
		t.Helper()
		if a := r.call("POST", "/v1/workers/w-2/renewal", calm, renewalBody(8, nil, false)); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	calmly()
	refused := 0
	for range 2 * renewalBurst {
		if a := r.call("POST", renewalPath, eager, renewalBody(7, nil, false)); a.status == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused == 0 {
		t.Error("one instance may renew as often as it likes")
	}
	calmly()
	before := r.store.calls.Load()
	refused = 0
	for i := range 2 * strangersBurst {
		if r.guess(t, fmt.Sprintf("192.0.2.%d:1", i%250)) == berth.CodeUnavailable {
			refused++
		}
	}
	if asked := r.store.calls.Load() - before; refused == 0 || int(asked)+refused != 2*strangersBurst {
		t.Errorf("%d of the guesses were refused unseen, %d looked up", refused, asked)
	}
	calmly() // who proved itself before is no stranger
}

// guess tries a secret from an address, and says how it was refused.
func (r *rig) guess(t *testing.T, from string, forwarded ...string) berth.Code {
	t.Helper()
	secret, _ := auth.NewRenewalSecret()
	request := httptest.NewRequestWithContext(t.Context(), "POST", renewalPath, nil)
	request.RemoteAddr = from
	request.Header["X-Forwarded-For"] = forwarded
	request.Header.Set("Authorization", "Bearer "+secret)
	_, err := r.server.service.relay.authenticate(request, "w-1")
	if err == nil {
		t.Error("a guess was right")
	}
	return berth.RefusalCode(err)
}

func TestGuessesFromOneAddressLeaveOthersTheirTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	refused := 0
	for i := range 4 * addressBurst {
		from := fmt.Sprintf("[2001:db8::%x]:%d", i, 1+i) // addresses of one host
		if i%2 == 0 {
			from = fmt.Sprintf("203.0.113.1:%d", 1+i)
		}
		if r.guess(t, from) == berth.CodeUnavailable {
			refused++
		}
	}
	if looked := 4*addressBurst - refused; looked < 2*addressBurst || looked > 3*addressBurst {
		t.Errorf("%d guesses of two hosts were looked up, want about %d", looked, 2*addressBurst)
	}
	if code := r.guess(t, "[2001:db8:0:1::1]:1"); code == berth.CodeUnavailable {
		t.Error("another network has no turn")
	}
	if a := r.call("POST", renewalPath, r.secret("w-1", 7), renewalBody(7, nil, false)); a.status != 200 {
		t.Errorf("a worker that nobody knew: %d %s", a.status, a.body)
	}
}

func TestGuessesThroughTrustedProxiesCountForTheirClients(t *testing.T) {
	t.Parallel()
	for _, trusts := range []bool{false, true} {
		r := newRig(t, func(c *Config, _ *store) {
			if trusts {
				c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			}
		})
		for i := range 2 * addressBurst {
			r.guess(t, "10.0.0.1:1", fmt.Sprintf("192.0.2.%d, 203.0.113.1", i)) // what it writes itself does not matter
		}
		if refused := r.guess(t, "10.0.0.1:1", "203.0.113.2") == berth.CodeUnavailable; refused == trusts {
			t.Errorf("the proxy is trusted: %v, another client behind it is refused: %v", trusts, refused)
		}
	}
}

func TestLookUpsThatHangHoldUpNoRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	friend := r.secret("w-1", 7)
	if a := r.call("POST", renewalPath, friend, renewalBody(7, nil, false)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for range lookUpsAtOnce {
		release, err := r.server.service.relay.lookUps.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if a := r.call("POST", renewalPath, friend, renewalBody(7, nil, false)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

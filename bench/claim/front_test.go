package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/bench/front"
)

const (
	fewServers = 5
	fewSlots   = 2
	testLimit  = time.Minute
)

// stores starts Redis and Postgres, as a measurement of these subjects does.
func stores(t *testing.T, subjects ...string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testLimit)
	t.Cleanup(cancel)
	r, err := openRig(ctx, Config{Binary: "none", Subjects: subjects, Workers: fewServers, Slots: fewSlots}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// testFront is a front that runs in this process.
type testFront struct {
	url   string
	scene *scene // for its audit; without servers
}

func (r *rig) testFront(t *testing.T, kind string) *testFront {
	t.Helper()
	s, err := r.raise(t.Context(), kind, naiveTemplate, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &testFront{serveFront(t, front.Config{Kind: kind, StoreURL: s.storeURL(), Slots: fewSlots}), s}
}

// serveFront serves until the test ends.
func serveFront(t *testing.T, cfg front.Config) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- front.Serve(ctx, listener, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// place asks for a session; status and owner tell what came of it.
func (f *testFront) place(t *testing.T, id string) (status int, owner string) {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"id":%q,"region":%q}`, id, region))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/sessions", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Owner string }
	if response.StatusCode == http.StatusCreated && len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return response.StatusCode, answer.Owner
}

func TestFrontsPlaceWhereTheLoadIsLeastUntilAllIsFull(t *testing.T) {
	t.Parallel()
	kinds := []string{front.RedisArticle, front.RedisLua, front.RedisLuaLiteral, front.PGNaive}
	r := stores(t, kinds...)
	for _, kind := range kinds { // one after another: they share Redis
		f := r.testFront(t, kind)
		for level := range fewSlots {
			var owners []string
			for i := range fewServers {
				status, owner := f.place(t, fmt.Sprintf("s-%d-%d", level, i))
				if status != http.StatusCreated {
					t.Fatalf("%s: status %d", kind, status)
				}
				owners = append(owners, owner)
			}
			slices.Sort(owners)
			if distinct := slices.Compact(owners); len(distinct) != fewServers || distinct[0] == "" {
				t.Errorf("%s: level %d of the servers is %q, want each once", kind, level, distinct)
			}
		}
		if status, _ := f.place(t, "one-too-many"); status != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d when all is full", kind, status)
		}
		if err := f.scene.audit(t.Context(), fewServers*fewSlots); err != nil {
			t.Error(err)
		}
		if err := f.scene.audit(t.Context(), fewServers*fewSlots+1); err == nil {
			t.Errorf("%s: the audit misses a session that was answered and is not stored", kind)
		}
	}
}

func TestFrontsOnRedisKeepOwnersAndSkipWhoDrains(t *testing.T) {
	t.Parallel()
	kinds := []string{front.RedisArticle, front.RedisLua, front.RedisLuaLiteral}
	r := stores(t, kinds...)
	for _, kind := range kinds { // one after another: they share Redis
		f := r.testFront(t, kind)
		for i := range fewServers - 1 {
			if err := r.redis.Client.SAdd(t.Context(), "draining", workerID(i)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		only := workerID(fewServers - 1)
		for range 3 {
			if status, owner := f.place(t, "s-1"); status != http.StatusCreated || owner != only {
				t.Errorf("%s: status %d, owner %q, want %q again and again", kind, status, owner, only)
			}
		}
		if load, err := r.redis.Client.ZScore(t.Context(), "servers:"+region, only).Result(); err != nil || load != 1 {
			t.Errorf("%s: load %v, %v: one session came back twice", kind, load, err)
		}
	}
}

func TestEmptyFrontAnswers(t *testing.T) {
	t.Parallel()
	f := &testFront{url: serveFront(t, front.Config{Kind: front.HTTPNull})}
	if status, owner := f.place(t, "s-1"); status != http.StatusCreated || owner != "" {
		t.Errorf("status %d, owner %q", status, owner)
	}
}

func TestUnknownFrontIsNotServed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := front.Serve(t.Context(), listener, front.Config{Kind: "etcd"}); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Error(err)
	}
}

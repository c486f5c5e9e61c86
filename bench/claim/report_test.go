package claim

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/bench/front"
)

// sample is a report of two rounds: number n of a subject is n times its place.
func sample() *Report {
	r := &Report{Subjects: map[string]*Subject{}, order: Subjects()}
	for i, name := range Subjects() {
		place := float64(i + 1)
		rounds := []measurement{{RPS: 90 * place, P50: 1, P99: 3}, {RPS: 110 * place, P50: 2, P99: 5}, {RPS: 100 * place, P50: 9, P99: 4}}
		r.Subjects[name] = &Subject{Median: medians(rounds), Rounds: rounds}
	}
	r.compare()
	return r
}

func TestShortFormHasThreeNumbersForEachOfSixSubjects(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(sample().Short())
	if err != nil {
		t.Fatal(err)
	}
	var short map[string]map[string]float64
	if err := json.Unmarshal(text, &short); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(short))
	if want := []string{"berth", "berth_lifecycle", "http_null", "pg_naive", "redis_article", "redis_lua"}; !slices.Equal(names, want) {
		t.Errorf("subjects %q, want %q", names, want)
	}
	if want := map[string]float64{"rps": 200, "p50_ms": 2, "p99_ms": 4}; !maps.Equal(short[front.RedisArticle], want) {
		t.Errorf("numbers %v, want %v", short[front.RedisArticle], want)
	}
}

func TestRatiosCompareBerthWithOtherWaysToPlace(t *testing.T) {
	t.Parallel()
	want := map[string]float64{
		"berth/redis_article": 3, "berth/redis_lua_literal": 2, "berth/redis_lua": 1.5, "berth/pg_naive": 1.2,
	}
	if got := sample().Ratios; !maps.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
}

func TestTableHasARowForEachSubject(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sample().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	rows = rows[len(rows)-len(Subjects()):]
	for i, name := range Subjects() {
		if fields := strings.Fields(rows[i]); fields[0] != name || len(fields) != 8 {
			t.Errorf("row %q, want that of %s", rows[i], name)
		}
	}
}

func TestContrastTellsTheShareThatIsLeft(t *testing.T) {
	t.Parallel()
	cases := map[string]*Subject{
		caseEmpty: {Median: measurement{RPS: 1000}}, caseLive: {Median: measurement{RPS: 900, P50: 1, P99: 2}},
	}
	c := &Contrast{Cases: cases, Ratio: 0.9, question: caseLive, other: caseEmpty}
	text, err := json.Marshal(c.Short())
	if want := `{"empty":{"rps":1000,"p50_ms":0,"p99_ms":0},"live":{"rps":900,"p50_ms":1,"p99_ms":2},"ratio":0.9}`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	var out bytes.Buffer
	if err := c.WriteTable(&out); err != nil || !strings.Contains(out.String(), "0.90x") {
		t.Errorf("%s, %v", &out, err)
	}
}

func TestLoneRequestsAreComparedInPairs(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	// The second half of the round was slow for both.
	lone := newLone([]time.Duration{2 * ms, 3 * ms, 12 * ms, 13 * ms, 12 * ms}, []time.Duration{1 * ms, 1 * ms, 11 * ms, 11 * ms, 11 * ms})
	if lone.Pairs != 5 || lone.Difference != 1 {
		t.Errorf("difference %v of %d pairs, want 1 ms of 5", lone.Difference, lone.Pairs)
	}
	if want := 13.0 / 11; lone.P99Ratio != want {
		t.Errorf("ratio %v, want %v", lone.P99Ratio, want)
	}
	report := LoneReport{Median: loneMedians([]Lone{{Difference: 3}, lone, {Difference: 0.5}})}
	var out bytes.Buffer
	if err := report.WriteTable(&out); err != nil || !strings.Contains(out.String(), "median difference 1.00 ms") {
		t.Errorf("%s, %v", &out, err)
	}
}

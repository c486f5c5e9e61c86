package failover

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The histograms that are read.
const (
	metricTick = "berth_reaper_tick_seconds"
	metricLook = "berth_detector_look_seconds"
)

// scrapePause is between scrapes: shorter than a tick, so that most differences are of one tick.
const scrapePause = 200 * time.Millisecond

// total is the sum and the count of a histogram, over all its labels.
type total struct {
	sum   float64 // seconds
	count float64
}

// scrape reads histograms of a process, by name.
func scrape(ctx context.Context, client *http.Client, address string) (map[string]total, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape: status %d", response.StatusCode)
	}
	return readTotals(response.Body, metricTick, metricLook)
}

// readTotals reads the text format of Prometheus.
func readTotals(r io.Reader, names ...string) (map[string]total, error) {
	totals := map[string]total{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		for _, name := range names {
			rest, found := strings.CutPrefix(lines.Text(), name)
			if !found {
				continue
			}
			fields := strings.Fields(rest)
			if len(fields) < 2 {
				continue
			}
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			t := totals[name]
			switch suffix, _, _ := strings.Cut(fields[0], "{"); suffix {
			case "_sum":
				t.sum += value
			case "_count":
				t.count += value
			}
			totals[name] = t
		}
	}
	return totals, lines.Err()
}

// watch scrapes the API processes until so many ticks acted, and returns how long each took: the difference of two
// scrapes, in milliseconds. Several between two scrapes count as so many of their mean.
func (s *scene) watch(ctx context.Context, ticks int) (durations map[string][]float64, err error) {
	durations = map[string][]float64{}
	before := map[*member]map[string]total{}
	deadline := time.Now().Add(time.Duration(10+4*ticks) * max(s.tuning.tick, defaultTick))
	for len(durations[metricTick]) < ticks {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("there were %d ticks where %d should be", len(durations[metricTick]), ticks)
		}
		for _, m := range s.apis {
			now, err := scrape(ctx, s.client.http, m.address)
			if err != nil {
				return nil, err
			}
			if last, known := before[m]; known {
				differ(durations, last, now)
			}
			before[m] = now
		}
		if err := rest(ctx, scrapePause); err != nil {
			return nil, err
		}
	}
	return durations, nil
}

func differ(durations map[string][]float64, before, now map[string]total) {
	for name, t := range now {
		n := t.count - before[name].count
		for range int(n) {
			durations[name] = append(durations[name], 1000*(t.sum-before[name].sum)/n)
		}
	}
}

package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are the values of a process by name and labels, as they stand in its page of metrics.
type Metrics map[string]float64

// Scrape reads the metrics of a process at the address of its HTTP server. No connection stays.
func Scrape(ctx context.Context, address string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape: status %d", response.StatusCode)
	}
	return ReadMetrics(response.Body)
}

// ReadMetrics reads the text format of Prometheus, without timestamps.
func ReadMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		m[line[:at]] = value
	}
	return m, lines.Err()
}

// Sum adds the values of a metric, over all its labels or those that a part of the text between the braces selects.
func (m Metrics) Sum(name, label string) float64 {
	sum := 0.0
	for key, value := range m {
		rest, found := strings.CutPrefix(key, name)
		if found && (rest == "" || rest[0] == '{') && strings.Contains(rest, label) {
			sum += value
		}
	}
	return sum
}

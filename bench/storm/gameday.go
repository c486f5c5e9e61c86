package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// GameDayClients is how many clients a game day has by default: a laptop should not notice.
const GameDayClients = 500

// gameDayTolerated is the p99 of round trips that nobody notices, in milliseconds.
const gameDayTolerated = 100

// GameDay makes a storm at a running `berth dev`: it kills the worker that has most of the clients, as the demo page does. The
// configuration says how many there are, and how long things take; the fleet is there already.
func GameDay(ctx context.Context, address string, cfg Config) (c Case, err error) {
	if cfg.N == 0 {
		cfg.N = GameDayClients
	}
	cfg = cfg.withDefaults()
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" || base.Host == "" {
		return c, fmt.Errorf("%q is no URL of `berth dev`, such as http://127.0.0.1:8080", address)
	}
	if err := room(cfg.N); err != nil {
		return c, err
	}
	// The demo page's calls are for pages of this machine.
	header := http.Header{"Origin": {base.Scheme + "://" + base.Host}}
	b := newBackend([]string{base.Scheme + "://" + base.Host}, "/demo/sessions", "", header)
	defer b.close()
	crowd := newCrowd(b, cfg, runName("gameday"), manner{})
	defer func() { err = errors.Join(err, crowd.close()) }()
	if err := crowd.fill(ctx, cfg.N); err != nil {
		return c, fmt.Errorf("is `berth dev` running at %s? %w", address, err)
	}
	workers := crowd.workers()
	if len(workers) < 2 {
		return c, errors.New("`berth dev` has one worker: nobody could take its clients. Start it with --workers 3")
	}
	victim := workers[0]
	storm := storm{
		crowd: crowd, victim: victim,
		kill: func(ctx context.Context) error {
			return b.post(ctx, "/demo/kill", map[string]any{"worker_id": victim}, nil)
		},
	}
	if c, err = storm.run(ctx, CaseKill); err != nil {
		return c, err
	}
	c.Tolerated = gameDayTolerated
	model := newModel(c.Lost, (len(workers)-1)*cfg.UpgradeRate, cfg.RejoinRate, c.Filled)
	c.Model, c.Ratio = &model, c.ClearedS/model.ClearsS
	return c, nil
}

// WriteWords says what happened in a game day, and whether that is good.
func (c Case) WriteWords(w io.Writer) error {
	verdict := "All of that is good.\n"
	if faults := c.Faults(); len(faults) > 0 {
		verdict = "That is not good:\n"
		for _, fault := range faults {
			verdict += "  - " + fault + "\n"
		}
	}
	_, err := fmt.Fprintf(w, `%d clients were connected. A worker was killed, and with it %d of their connections (%s).
All %d that came back were back after %.1f s: half of them within %.1f s, by %s.
The article's model says %.1f s: %d clients within a window of %.0f s are %.0f per second, and the others take %.0f.
The survivors were asked for %.0f things per second at most, refused %d, and called %d tokens wrong.
Clients of other workers: %d lost their connection. What is published reached them within %.0f ms (p99), before within %.0f ms.
Of %d messages, %d were missed or came twice.
%s`,
		c.Clients, c.Lost, counts(c.Codes), c.Back, c.ClearedS, c.Away.P50, counts(c.Ways), c.modelled(), c.Lost,
		lostWindow.Seconds(), c.Model.Arrivals, c.Model.Capacity, c.Asked, c.refusals(), c.FailedAuth, c.OthersLost,
		c.RoundTrip.During.P99, c.RoundTrip.Before.P99, c.Messages, c.Missed, verdict)
	return err
}

package claim

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Contrast is Berth measured in two situations, in turn.
type Contrast struct {
	Machine Machine             `json:"machine"`
	Cases   map[string]*Subject `json:"cases"`
	// Ratio is the median throughput of the case in question, divided by that of the other.
	Ratio float64 `json:"ratio"`

	question, other string
}

// contrast runs the rounds of two cases.
func (r *rig) contrast(
	ctx context.Context, question, other string, once func(context.Context, string) (measurement, error),
) (*Contrast, error) {
	machine, err := r.machine(ctx)
	if err != nil {
		return nil, err
	}
	cases, err := r.rounds(ctx, []string{other, question}, once)
	if err != nil {
		return nil, err
	}
	return &Contrast{
		Machine: machine, Cases: cases, question: question, other: other,
		Ratio: cases[question].Median.RPS / cases[other].Median.RPS,
	}, nil
}

// Short is the medians of both cases, and the ratio.
func (c *Contrast) Short() any {
	short := map[string]any{"ratio": c.Ratio}
	for name, s := range c.Cases {
		short[name] = s.figure()
	}
	return short
}

// WriteTable writes the contrast for people.
func (c *Contrast) WriteTable(w io.Writer) error {
	order := []string{c.other, c.question}
	return writeTable(w, c.Machine, order, c.Cases, "OF THE FIRST", func(name string) string {
		if name != c.question {
			return "-"
		}
		return fmt.Sprintf("%.2fx", c.Ratio)
	})
}

// withRig runs a measurement of Berth alone.
func withRig[R any](ctx context.Context, cfg Config, run func(*rig) (R, error)) (result R, err error) {
	cfg = cfg.withDefaults()
	cfg.Subjects = []string{Berth}
	r, err := openRig(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	return run(r)
}

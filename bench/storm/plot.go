package storm

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/berthdev/berth/bench/chart"
)

// WritePlot draws the storms of the report into an SVG file: who was back when, and what the survivors were asked. It draws
// nothing, and says so, if there was none.
func (r *Report) WritePlot(name string) (drawn bool, err error) {
	storms := r.storms()
	if len(storms) == 0 {
		return false, nil
	}
	curve, err := plotBack(storms)
	if err != nil {
		return false, err
	}
	requests, err := plotRequests(storms)
	if err != nil {
		return false, err
	}
	return true, chart.Save(name, curve, requests)
}

// storms are the cases in which a worker was killed.
func (r *Report) storms() (storms []Case) {
	for _, c := range r.Cases {
		if !c.Planned() && len(c.Curve) > 0 && c.Lost > 0 {
			storms = append(storms, c)
		}
	}
	return storms
}

// said is a case in a legend.
func (c Case) said() string {
	switch c.Name {
	case CaseExpired:
		return "tokens expired"
	case CaseNoJitter:
		return "without jitter"
	case CaseKill:
		return "full jitter"
	default:
		return c.Name
	}
}

func (c Case) color() color.Color {
	switch c.Name {
	case CaseExpired:
		return chart.Orange()
	case CaseNoJitter:
		return chart.Red()
	default:
		return chart.Blue()
	}
}

// longest is how long the plots are, in seconds.
func longest(storms []Case) (s float64) {
	for _, c := range storms {
		s = max(s, c.ClearedS, c.modelled())
	}
	return 1.05 * s
}

func plotBack(storms []Case) (*plot.Plot, error) {
	first := storms[0]
	p := chart.New(fmt.Sprintf("kill -9 of a worker with %d of %d clients", first.Lost, first.Clients), "", "clients that are back (%)")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, longest(storms), 0, 104
	p.Y.Tick.Marker = chart.Labelled(0, 25, 50, 75, 100)
	p.Legend.Left = true
	for _, c := range storms {
		points := plotter.XYs{{X: 0, Y: 0}}
		for _, at := range c.Curve {
			points = append(points, plotter.XY{X: at.S, Y: 100 * float64(at.Back) / float64(c.Lost)})
		}
		if err := chart.Line(p, fmt.Sprintf("%s: %.1f s", c.said(), c.ClearedS), c.color(), false, points); err != nil {
			return nil, err
		}
	}
	if m := first.Model; m != nil {
		points := plotter.XYs{{X: 0, Y: 0}, {X: m.ClearsS, Y: 100}}
		if err := chart.Line(p, fmt.Sprintf("the article's model: %.1f s", m.ClearsS), color.Gray{Y: 110}, true, points); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// plotRequests draws steps: each point is what was asked for within its tenth of a second.
func plotRequests(storms []Case) (*plot.Plot, error) {
	p := chart.New("", "time since the kill (seconds)", "rejoins and handshakes asked for per second")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, longest(storms), 0, 1
	for _, c := range storms {
		points := plotter.XYs{}
		for _, at := range c.Curve {
			y := float64(at.Requests) / pointEvery.Seconds()
			p.Y.Max = max(p.Y.Max, 1.25*y) // room for the legend
			points = append(points, plotter.XY{X: at.S - pointEvery.Seconds(), Y: y}, plotter.XY{X: at.S, Y: y})
		}
		if err := chart.Line(p, c.said(), c.color(), false, points); err != nil {
			return nil, err
		}
	}
	return p, nil
}

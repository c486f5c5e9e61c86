package failover

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/berthdev/berth/bench/chart"
)

// plotDetection draws how many survivors knew how soon.
func (r *Report) plotDetection() (*plot.Plot, error) {
	p := chart.New("From kill -9 of a worker until its survivors know", "time since the kill (seconds, log scale)",
		"survivors that were told (%)")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, secondTicks()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.02, 20, 0, 104
	p.Y.Tick.Marker = chart.Labelled(0, 25, 50, 75, 100)
	p.Legend.Left = true
	drawn := false
	add := func(name string, c Case, dashed bool) error {
		points := cumulative(c.notified())
		if len(points) == 0 {
			return nil
		}
		drawn = true
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = colorOf(c.Detector), vg.Points(2)
		if dashed {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(line)
		p.Legend.Add(name, line)
		return nil
	}
	for _, c := range r.Cases {
		if c.Part == PartKills {
			if err := add(c.Detector, c, false); err != nil {
				return nil, err
			}
		}
	}
	if r.Article != nil {
		for _, c := range r.Article.Cases {
			if err := add(c.Detector+", article's numbers", c, true); err != nil {
				return nil, err
			}
		}
	}
	if !drawn {
		return nil, nil //nolint:nilnil // nothing to draw
	}
	return p, nil
}

// secondTicks are readable on a logarithmic scale.
func secondTicks() plot.ConstantTicks {
	return chart.Labelled(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
}

// plotPauses draws the part of sessions that pauses cost.
func (r *Report) plotPauses() (*plot.Plot, error) {
	if len(r.Pauses) == 0 {
		return nil, nil //nolint:nilnil // nothing to draw
	}
	p := chart.New("A worker is stopped and goes on: sessions lost", "length of the pause (seconds)", "sessions of the worker that were lost (%)")
	p.Y.Min, p.Y.Max = 0, 110
	p.Y.Tick.Marker = chart.Labelled(0, 25, 50, 75, 100)
	p.Legend.Left = true
	const width = 14
	for i, detector := range detectorsOf(r.Pauses, func(p Pause) string { return p.Detector }) {
		var shares plotter.Values
		for _, pause := range r.Pauses {
			if pause.Detector == detector {
				// A sliver shows that zero was measured.
				shares = append(shares, max(0.6, 100*float64(pause.SessionsLost)/float64(max(pause.Sessions, 1))))
			}
		}
		bars, err := plotter.NewBarChart(shares, vg.Points(width))
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = colorOf(detector), 0
		bars.Offset = vg.Points(float64(width+1) * float64(i-1))
		p.Add(bars)
		p.Legend.Add(detector, bars)
	}
	p.NominalX(pauseNames(r.Pauses)...)
	return p, nil
}

func pauseNames(pauses []Pause) []string {
	var names []string
	for _, p := range pauses {
		if p.Detector == pauses[0].Detector {
			names = append(names, fmt.Sprintf("%g", p.Seconds))
		}
	}
	return names
}

// detectorsOf lists the detectors of some results, in the order of reports.
func detectorsOf[T any](results []T, of func(T) string) []string {
	return slices.DeleteFunc(Detectors(), func(detector string) bool {
		return !slices.ContainsFunc(results, func(result T) bool { return of(result) == detector })
	})
}

// plotCost draws the median tick over the number of sessions.
func (r *Report) plotCost() (*plot.Plot, error) {
	series := r.costSeries()
	if len(series) == 0 {
		return nil, nil //nolint:nilnil // nothing to draw
	}
	p := chart.New("What one tick of the reaper takes", "live sessions (log scale)", "median tick (milliseconds)")
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = chart.Labelled(50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
	p.Y.Min = 0
	p.Legend.Left = true
	highest := 0.0
	for _, s := range series {
		for _, point := range s.points {
			highest = max(highest, point.Y)
		}
		if err := addLine(p, s.name, s.color, s.dashed, s.points); err != nil {
			return nil, err
		}
	}
	p.Y.Max = 1.5 * highest // room for the legend
	return p, nil
}

// series is one line of a plot.
type series struct {
	name   string
	color  color.Color
	dashed bool
	points plotter.XYs
}

// costSeries are live calls by detector, rows, and the article's numbers.
func (r *Report) costSeries() []series {
	var all []series
	add := func(costs []Cost, rows, dashed bool, note string) {
		for _, detector := range detectorsOf(costs, func(c Cost) string { return c.Detector }) {
			s := series{color: colorOf(detector), dashed: dashed}
			if rows {
				s.color = chart.Sky()
			}
			for _, c := range costs {
				if c.Detector == detector && c.Rows == rows {
					s.name = fmt.Sprintf("%s%s, %d workers", detector, note, c.Workers)
					s.points = append(s.points, plotter.XY{X: float64(c.Sessions), Y: c.Tick.P50})
				}
			}
			if len(s.points) > 0 {
				all = append(all, s)
			}
		}
	}
	add(r.Costs, false, false, "")
	add(r.Costs, true, false, " (rows only)")
	if r.Article != nil {
		add(r.Article.Costs, false, true, ", walking over sessions")
	}
	return all
}

// plotLengths draws detection over the length of the lease.
func (r *Report) plotLengths() (*plot.Plot, error) {
	if len(r.Lengths) == 0 {
		return nil, nil //nolint:nilnil // nothing to draw
	}
	p := chart.New("Detection by length of the lease", "length of the lease (seconds)", "from kill to notice (seconds)")
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Left = true
	for _, detector := range detectorsOf(r.Lengths, func(l Length) string { return l.Detector }) {
		var median, worst plotter.XYs
		for _, l := range r.Lengths {
			if l.Detector == detector {
				median = append(median, plotter.XY{X: l.Lease, Y: l.Notified.P50 / 1000})
				worst = append(worst, plotter.XY{X: l.Lease, Y: l.Notified.Max / 1000})
			}
		}
		if err := addLine(p, detector+", median", colorOf(detector), false, median); err != nil {
			return nil, err
		}
		if err := addLine(p, detector+", slowest", colorOf(detector), true, worst); err != nil {
			return nil, err
		}
	}
	return p, nil
}

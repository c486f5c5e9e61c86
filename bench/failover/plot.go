package failover

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/berthdev/berth/bench/chart"
)

// WritePlots draws what the report has into SVG files of a directory, and returns their names.
func (r *Report) WritePlots(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, drawing := range []struct {
		name string
		draw func() (*plot.Plot, error) // nil: there is nothing to draw
	}{
		{"failover-detection.svg", r.plotDetection},
		{"failover-pauses.svg", r.plotPauses},
		{"failover-cost.svg", r.plotCost},
		{"failover-lease.svg", r.plotLengths},
	} {
		p, err := drawing.draw()
		if err != nil {
			return names, fmt.Errorf("draw %s: %w", drawing.name, err)
		}
		if p == nil {
			continue
		}
		name := filepath.Join(dir, drawing.name)
		if err := chart.Save(name, p); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// colorOf a detector is the same in all plots, and can be told apart by people who see no red.
func colorOf(detector string) color.Color {
	switch detector {
	case "presence":
		return chart.Blue()
	case "sweep":
		return chart.Orange()
	default:
		return chart.Red()
	}
}

// addLine draws a line with marks, and names it in the legend.
func addLine(p *plot.Plot, name string, c color.Color, dashed bool, points plotter.XYs) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.6)
	marks.Color, marks.Shape, marks.Radius = c, draw.CircleGlyph{}, vg.Points(2.4)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}

// cumulative are the steps of the share of values that are at most x, in percent.
func cumulative(values []float64) plotter.XYs {
	sorted := slices.Sorted(slices.Values(values))
	points := plotter.XYs{}
	below := 0.0
	for i, v := range sorted {
		share := 100 * float64(i+1) / float64(len(sorted))
		points = append(points, plotter.XY{X: v / 1000, Y: below}, plotter.XY{X: v / 1000, Y: share})
		below = share
	}
	return points
}

package failover

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of plots.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 11 * vg.Centimeter
	plotMargin = 3 * vg.Millimeter
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
		if err := save(p, name); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

func save(p *plot.Plot, name string) error {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(canvas), plotMargin, -plotMargin, plotMargin, -plotMargin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// Who has not the font should see one like it.
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif"))
	return os.WriteFile(name, svg, 0o600)
}

// newPlot has a title, axes with units and a grid.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.BackgroundColor = color.White
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	return p
}

// colorOf a detector is the same in all plots, and can be told apart by people who see no red.
func colorOf(detector string) color.Color {
	switch detector {
	case "presence":
		return color.RGBA{R: 0, G: 114, B: 178, A: 255}
	case "sweep":
		return color.RGBA{R: 230, G: 159, B: 0, A: 255}
	default:
		return color.RGBA{R: 213, G: 94, B: 0, A: 255}
	}
}

// rowColor is that of sessions that are rows only.
func rowColor() color.Color { return color.RGBA{R: 86, G: 180, B: 233, A: 255} }

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

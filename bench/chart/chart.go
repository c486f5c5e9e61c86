// Package chart draws the plots of harnesses, so that they look alike.
package chart

import (
	"bytes"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of plots.
const (
	width  = 18 * vg.Centimeter
	height = 11 * vg.Centimeter
	margin = 3 * vg.Millimeter
)

// Blue is the first color. All of them can be told apart by people who see no red.
func Blue() color.Color { return color.RGBA{R: 0, G: 114, B: 178, A: 255} }

// Orange is the second color.
func Orange() color.Color { return color.RGBA{R: 230, G: 159, B: 0, A: 255} }

// Red is the third color, for what is worse.
func Red() color.Color { return color.RGBA{R: 213, G: 94, B: 0, A: 255} }

// Sky is the fourth color.
func Sky() color.Color { return color.RGBA{R: 86, G: 180, B: 233, A: 255} }

// New is a plot with a title, axes with units and a grid.
func New(title, x, y string) *plot.Plot {
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

// Line draws a line, and names it in the legend.
func Line(p *plot.Plot, name string, c color.Color, dashed bool, points plotter.XYs) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.8)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}

// Labelled are ticks at some values, named by them.
func Labelled(values ...float64) plot.ConstantTicks {
	ticks := plot.ConstantTicks{}
	for _, v := range values {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// Save draws plots below each other, with their axes aligned, into an SVG file.
func Save(name string, plots ...*plot.Plot) error {
	canvas := vgsvg.New(width, vg.Length(len(plots))*height)
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{
		Rows: len(plots), Cols: 1, PadY: 2 * margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin,
	}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		plots[i].Draw(row[0])
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// Who has not the font should see one like it.
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif"))
	return os.WriteFile(name, svg, 0o600)
}

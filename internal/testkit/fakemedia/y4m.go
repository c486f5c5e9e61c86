package fakemedia

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// The picture of WriteY4M.
const (
	// Width is in pixels.
	Width = 320
	// Height is in pixels.
	Height = 240
	// FramesPerSecond is the frame rate.
	FramesPerSecond = 15
	// Seconds is the length of both files.
	Seconds = 2
)

// WriteY4M writes two seconds of video: a gradient that moves sideways and a bright square that
// crosses the picture. The file has 3.5 MB.
func WriteY4M(path string) error {
	return writeFile(path, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "YUV4MPEG2 W%d H%d F%d:1 Ip A1:1 C420jpeg\n", Width, Height, FramesPerSecond); err != nil {
			return err
		}
		for n := range Seconds * FramesPerSecond {
			if err := writeFrame(w, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeFrame writes a frame in planes: luma for each pixel, then both chroma for each four.
func writeFrame(w io.Writer, n int) error {
	if _, err := io.WriteString(w, "FRAME\n"); err != nil {
		return err
	}
	const chroma = Width / 2 * (Height / 2)
	frame := make([]byte, 0, Width*Height+2*chroma)
	for y := range Height {
		for x := range Width {
			frame = append(frame, luma(x, y, n))
		}
	}
	for y := range Height / 2 {
		for range Width / 2 {
			frame = append(frame, byte(64+y)) // blue falls from top to bottom
		}
	}
	for range Height / 2 {
		for x := range Width / 2 {
			frame = append(frame, byte(64+(x+4*n)%128)) // red moves
		}
	}
	_, err := w.Write(frame)
	return err
}

// luma is the brightness of a pixel in frame n, between 16 and 235.
func luma(x, y, n int) byte {
	const square = 48
	left := n * (Width - square) / (Seconds*FramesPerSecond - 1)
	if x >= left && x < left+square && y >= (Height-square)/2 && y < (Height+square)/2 {
		return 235
	}
	return byte(16 + (x+y+8*n)%160)
}

// writeFile writes a file, buffered, and reports the first error of all steps.
func writeFile(path string, write func(w io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fakemedia: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("fakemedia: %w", cerr)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return fmt.Errorf("fakemedia: write %s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("fakemedia: write %s: %w", path, err)
	}
	return nil
}

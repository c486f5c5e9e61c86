package fakemedia_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/internal/testkit/fakemedia"
)

// written returns what a writer writes, and checks that it does so every time.
func written(t *testing.T, write func(path string) error) []byte {
	t.Helper()
	var content [2][]byte
	for i := range content {
		path := filepath.Join(t.TempDir(), "file")
		if err := write(path); err != nil {
			t.Fatal(err)
		}
		var err error
		if content[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(content[0], content[1]) {
		t.Fatal("two files differ")
	}
	return content[0]
}

func TestY4MHasFramesThatAllDiffer(t *testing.T) {
	t.Parallel()
	header, body, ok := bytes.Cut(written(t, fakemedia.WriteY4M), []byte("\n"))
	if !ok || string(header) != "YUV4MPEG2 W320 H240 F15:1 Ip A1:1 C420jpeg" {
		t.Fatalf("header: %q", header)
	}
	const size = len("FRAME\n") + 320*240*3/2
	if len(body) != 30*size {
		t.Fatalf("%d bytes of frames, want %d", len(body), 30*size)
	}
	seen := make(map[string]bool)
	for ; len(body) > 0; body = body[size:] {
		frame := body[:size]
		if !bytes.HasPrefix(frame, []byte("FRAME\n")) {
			t.Fatal("a frame has no marker")
		}
		seen[string(frame)] = true
	}
	if len(seen) != 30 {
		t.Errorf("%d different frames", len(seen))
	}
}

func TestWAVHoldsATone(t *testing.T) {
	t.Parallel()
	content := written(t, fakemedia.WriteWAV)
	if len(content) != 44+2*2*48000 || string(content[:4]) != "RIFF" || string(content[36:40]) != "data" {
		t.Fatalf("%d bytes that begin with %q", len(content), content[:44])
	}
	le := binary.LittleEndian
	if size := le.Uint32(content[4:]); int(size) != len(content)-8 {
		t.Errorf("RIFF size %d", size)
	}
	if rate, bits := le.Uint32(content[24:]), le.Uint16(content[34:]); rate != 48000 || bits != 16 {
		t.Errorf("%d samples a second of %d bits", rate, bits)
	}
	crossings, last := 0, int16(0)
	for data := content[44:]; len(data) > 0; data = data[2:] {
		sample := int16(le.Uint16(data))
		if last < 0 && sample >= 0 {
			crossings++
		}
		last = sample
	}
	if crossings < 870 || crossings > 880 {
		t.Errorf("%d waves in two seconds, want 880", crossings)
	}
}

func TestAPathThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "file")
	if fakemedia.WriteY4M(path) == nil || fakemedia.WriteWAV(path) == nil {
		t.Error("no error")
	}
}

package fakemedia

import (
	"encoding/binary"
	"io"
	"math"
)

// The sound of WriteWAV.
const (
	// SampleRate is in samples per second.
	SampleRate = 48000
	// ToneHertz is the pitch; a whole number of waves fits the file, so that it loops without a click.
	ToneHertz = 440
	// toneLevel is the amplitude relative to full scale.
	toneLevel = 0.25
)

// wavHeader is a RIFF header for 16-bit PCM with one channel.
type wavHeader struct {
	Riff          [4]byte
	Size          uint32
	Wave, Fmt     [4]byte
	FmtSize       uint32
	Format        uint16
	Channels      uint16
	SampleRate    uint32
	BytesPerSec   uint32
	BlockAlign    uint16
	BitsPerSample uint16
	Data          [4]byte
	DataSize      uint32
}

// WriteWAV writes two seconds of a tone: 16-bit PCM, mono. The file has 192 KB.
func WriteWAV(path string) error {
	const count = Seconds * SampleRate
	samples := make([]int16, count)
	for i := range samples {
		angle := 2 * math.Pi * ToneHertz * float64(i) / SampleRate
		samples[i] = int16(math.Round(toneLevel * math.MaxInt16 * math.Sin(angle)))
	}
	return writeFile(path, func(w io.Writer) error {
		if err := binary.Write(w, binary.LittleEndian, header(2*count)); err != nil {
			return err
		}
		return binary.Write(w, binary.LittleEndian, samples)
	})
}

// header describes size bytes of samples.
func header(size uint32) wavHeader {
	return wavHeader{
		Riff: [4]byte{'R', 'I', 'F', 'F'}, Size: 36 + size,
		Wave: [4]byte{'W', 'A', 'V', 'E'}, Fmt: [4]byte{'f', 'm', 't', ' '}, FmtSize: 16,
		Format: 1, Channels: 1, SampleRate: SampleRate, BytesPerSec: 2 * SampleRate, BlockAlign: 2, BitsPerSample: 16,
		Data: [4]byte{'d', 'a', 't', 'a'}, DataSize: size,
	}
}

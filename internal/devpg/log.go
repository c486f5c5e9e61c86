package devpg

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxTail bounds what of the server's log goes into an error.
const maxTail = 2 << 10

// serverLog is the file that takes what initdb and the server write.
type serverLog struct {
	file  *os.File
	start int64 // where the current attempt began
}

// openLog opens the log to append. The children inherit the descriptor, so
// their user needs no right to the file.
func openLog(path string) (*serverLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	return &serverLog{file: file}, nil
}

// mark begins an attempt: tail shows nothing from before.
func (l *serverLog) mark() {
	if size, err := l.file.Seek(0, io.SeekEnd); err == nil {
		l.start = size
	}
}

// tail returns the end of what was written since mark, ready to be appended to
// an error.
func (l *serverLog) tail() string {
	info, err := l.file.Stat()
	if err != nil {
		return ""
	}
	from := max(l.start, info.Size()-maxTail)
	buf := make([]byte, info.Size()-from)
	n, _ := l.file.ReadAt(buf, from) // what could be read is better than nothing
	text := strings.TrimSpace(string(buf[:n]))
	if text == "" {
		return ""
	}
	return "\n" + text
}

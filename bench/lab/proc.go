package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Resident is how much memory a process has in RAM, in bytes (VmRSS, see proc(5)); zero where there is no /proc, or it is gone.
func Resident(pid int) int64 {
	kib, _ := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return kib << 10
}

// Slab is what the kernel keeps for itself in small objects, sockets among them, in bytes: of all processes together.
func Slab() int64 {
	kib, _ := field("/proc/meminfo", "Slab:")
	return kib << 10
}

// SocketBuffers is what waits in the buffers of all TCP sockets, in bytes.
func SocketBuffers() int64 {
	for line := range strings.Lines(FileText("/proc/net/sockstat")) {
		words := strings.Fields(line)
		for i, word := range words[:max(0, len(words)-1)] {
			if words[0] == "TCP:" && word == "mem" {
				pages, _ := strconv.ParseInt(words[i+1], 10, 64)
				return pages * int64(os.Getpagesize())
			}
		}
	}
	return 0
}

// Waits is how often the threads of a process stopped to wait for something so far. Whoever sleeps until there is work has
// been woken as often.
func Waits(pid int) int64 {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0
	}
	var sum int64
	for _, file := range files {
		n, _ := field(file, "voluntary_ctxt_switches:")
		sum += n
	}
	return sum
}

// field is the number after a name at the beginning of a line.
func field(file, name string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte(name)); found {
			words := bytes.Fields(rest)
			if len(words) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(string(words[0]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

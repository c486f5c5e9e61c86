package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Resident is how much memory a process has in RAM, in bytes (VmRSS, see proc(5)); zero where there is no /proc, or it is gone.
func Resident(pid int) int64 {
	kib, _ := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return kib << 10
}

// How SocketMemory knows.
const (
	ByCaches = "slabinfo"     // the caches that hold sockets and their files, see slabinfo(5)
	BySlab   = "meminfo Slab" // all that the kernel keeps in small objects, of whatever kind
)

// SocketMemory is what the kernel keeps for all sockets of this machine, in bytes, with what waits in the buffers of TCP
// (/proc/net/sockstat). Without the right to read /proc/slabinfo it is more than that, so only a difference means something.
func SocketMemory() (size int64, how string) {
	if text, err := os.ReadFile("/proc/slabinfo"); err == nil {
		return cacheBytes(string(text)) + socketBuffers(), ByCaches
	}
	kib, _ := field("/proc/meminfo", "Slab:")
	return kib<<10 + socketBuffers(), BySlab
}

// socketCaches are those with an object or more for each TCP socket, its file and its place in an epoll. Names of files
// (dentry, about 200 bytes) are left out: the rest of the machine makes too many.
func socketCaches() []string {
	return []string{"TCP", "TCPv6", "sock_inode_cache", "filp", "eventpoll_epi"}
}

// cacheBytes sums the objects in use: the second and the fourth word of a cache's line.
func cacheBytes(slabinfo string) int64 {
	var sum int64
	for line := range strings.Lines(slabinfo) {
		words := strings.Fields(line)
		if len(words) < 4 || !slices.Contains(socketCaches(), words[0]) {
			continue
		}
		objects, _ := strconv.ParseInt(words[1], 10, 64)
		size, _ := strconv.ParseInt(words[3], 10, 64)
		sum += objects * size
	}
	return sum
}

// socketBuffers is what waits in the buffers of all TCP sockets.
func socketBuffers() int64 { return bufferBytes(FileText("/proc/net/sockstat")) }

func bufferBytes(sockstat string) int64 {
	for line := range strings.Lines(sockstat) {
		words := strings.Fields(line)
		for i, word := range words {
			if words[0] == "TCP:" && word == "mem" && i+1 < len(words) {
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

package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// userHZ is the unit of CPU time in /proc: the kernel's interface has 100 ticks a second on every architecture that
// Go runs on.
const userHZ = 100

// processTimes is a line of /proc/PID/stat.
type processTimes struct {
	pid, parent int
	own         time.Duration
	children    time.Duration // of those that ended and were waited for
}

// parseStat reads a line of /proc/PID/stat, see proc(5). The command in it may contain spaces and parentheses.
func parseStat(line []byte) (processTimes, error) {
	open, closed := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || closed < open {
		return processTimes{}, fmt.Errorf("no command in %q", line)
	}
	fields := bytes.Fields(line[closed+1:]) // from field 3, the state
	if len(fields) < 15 {
		return processTimes{}, fmt.Errorf("too few fields in %q", line)
	}
	numbers := make([]int, 0, 6)
	for _, text := range [][]byte{bytes.TrimSpace(line[:open]), fields[1], fields[11], fields[12], fields[13], fields[14]} {
		number, err := strconv.Atoi(string(text))
		if err != nil {
			return processTimes{}, fmt.Errorf("%q is no number", text)
		}
		numbers = append(numbers, number)
	}
	ticks := func(n int) time.Duration { return time.Duration(n) * time.Second / userHZ }
	return processTimes{
		pid: numbers[0], parent: numbers[1],
		own: ticks(numbers[2] + numbers[3]), children: ticks(numbers[4] + numbers[5]),
	}, nil
}

// ProcessCPU is the time of one process; zero where there is no /proc, or it is gone.
func ProcessCPU(pid int) time.Duration {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	times, err := parseStat(line)
	if err != nil {
		return 0
	}
	return times.own
}

// FamilyCPU is the time of a process and its children, those that ended included.
func FamilyCPU(pid int) time.Duration {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it ended since
		}
		switch times, err := parseStat(line); {
		case err != nil:
		case times.pid == pid:
			sum += times.own + times.children
		case times.parent == pid:
			sum += times.own
		}
	}
	return sum
}

// Family is a process and its children, by id.
func Family(pid int) []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var family []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it ended since
		}
		if times, err := parseStat(line); err == nil && (times.pid == pid || times.parent == pid) {
			family = append(family, times.pid)
		}
	}
	return family
}

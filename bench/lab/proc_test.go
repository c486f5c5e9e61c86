package lab

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestProcTellsOfThisProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // there is no /proc, and all is zero
	}
	if got := Resident(os.Getpid()); got < 1<<20 {
		t.Errorf("resident %d bytes", got)
	}
	if size, how := SocketMemory(); size <= 0 || how == "" {
		t.Errorf("%d bytes of sockets by %q", size, how)
	}
	if Waits(os.Getpid()) == 0 {
		t.Error("this process never waited")
	}
	if Resident(-1) != 0 || Waits(-1) != 0 {
		t.Error("a process that is not there has memory, or waited")
	}
}

func TestMetricsAreSummedOverLabels(t *testing.T) {
	t.Parallel()
	m, err := ReadMetrics(strings.NewReader("# HELP a b\na 1\na{kind=\"x y\"} 2.5e3\na{kind=\"z\"} 4\na_total 7\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := [3]float64{m.Sum("a", ""), m.Sum("a", `kind="z"`), m.Sum("b", "")}; got != [3]float64{2505, 4, 0} {
		t.Errorf("%v", got)
	}
	if _, err := ReadMetrics(strings.NewReader("a b\n")); err == nil {
		t.Error("no number was read")
	}
}

func TestSocketMemoryIsReadFromItsCaches(t *testing.T) {
	t.Parallel()
	const slabinfo = `slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab>
tw_sock_TCP         9147   9232    256   16    1 : tunables
TCP                  300    611   2368   13    8 : tunables
filp                 100   7749    192   21    1 : tunables
`
	if got := cacheBytes(slabinfo); got != 300*2368+100*192 {
		t.Errorf("%d bytes", got)
	}
	const sockstat = "sockets: used 13\nTCP: inuse 1 orphan 0 tw 1264 alloc 1 mem 3\nUDP: inuse 0 mem 175"
	if got := bufferBytes(sockstat); got != int64(3*os.Getpagesize()) {
		t.Errorf("%d bytes", got)
	}
}

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
	if Slab() < 1<<20 {
		t.Errorf("slab %d bytes", Slab())
	}
	if SocketBuffers() < 0 || Waits(os.Getpid()) == 0 {
		t.Errorf("buffers %d bytes, %d waits", SocketBuffers(), Waits(os.Getpid()))
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

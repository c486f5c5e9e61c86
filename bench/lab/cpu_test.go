package lab

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestStatIsReadWhateverTheCommandIsCalled(t *testing.T) {
	t.Parallel()
	const rest = " S 41 1 1 0 -1 4194304 9 8 7 6 150 50 30 20 20 0 1 0 100 1000 10 0"
	want := processTimes{pid: 42, parent: 41, own: 2 * time.Second, children: 500 * time.Millisecond}
	for _, command := range []string{"(postgres)", "(a b)", "(a) (b)", "(()", "()"} {
		got, err := parseStat([]byte("42 " + command + rest))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", command, got, err)
		}
	}
	for _, line := range []string{"", "42", "42 (x) S 41", "42 (x) S x 1 1 0 -1 0 0 0 0 0 1 1 1 1 0 0", ")42("} {
		if got, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q was read as %+v", line, got)
		}
	}
}

func TestOwnProcessSpendsTime(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // there is no /proc, and the report says zero
	}
	before := ProcessCPU(os.Getpid())
	for deadline := time.Now().Add(10 * time.Second); ProcessCPU(os.Getpid()) <= before; {
		if time.Now().After(deadline) {
			t.Fatal("no time was spent")
		}
	}
	if family := FamilyCPU(os.Getpid()); family < before {
		t.Errorf("family %v, itself %v before", family, before)
	}
	if family := Family(os.Getpid()); !slices.Contains(family, os.Getpid()) {
		t.Errorf("%v: a process is of its family", family)
	}
	if gone := ProcessCPU(-1); gone != 0 {
		t.Errorf("a process that is not there spent %v", gone)
	}
}

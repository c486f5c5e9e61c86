package lab

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestServersDoNotInheritSettings(t *testing.T) {
	t.Parallel()
	got := Inherited([]string{"PATH=/bin", "BERTH_DATABASE_URL=postgres://prod/berth", "BERTH_LEASE=30s"})
	if len(got) != 1 || got[0] != "PATH=/bin" {
		t.Errorf("environment %q", got)
	}
}

func TestChildIsAwaitedAndExplainsItsEnd(t *testing.T) {
	t.Parallel()
	ended, err := StartChild(exec.Command("sh", "-c", "echo no luck; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Kill()
	err = ended.Await(t.Context(), func(context.Context) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("%v", err)
	}
	if _, err := StartChild(exec.Command("/nowhere/berth")); err == nil {
		t.Error("a binary that is not there was started")
	}
}

func TestFreeAddressesDiffer(t *testing.T) {
	t.Parallel()
	addresses, err := FreeAddresses(t.Context(), 20)
	if err != nil || len(addresses) != 20 || len(slices.Compact(slices.Sorted(slices.Values(addresses)))) != 20 {
		t.Errorf("%q, %v", addresses, err)
	}
}

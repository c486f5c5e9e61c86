package berth_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func TestRefusalsAreComparedByCode(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("place: %w", &berth.Refusal{Code: berth.CodeAtCapacity, Detail: "full"})
	if !errors.Is(err, &berth.Refusal{Code: berth.CodeAtCapacity}) || errors.Is(err, &berth.Refusal{Code: berth.CodeConflict}) ||
		errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	for want, err := range map[berth.Code]error{
		berth.CodeAtCapacity: err, "": berth.ErrStale, berth.CodeInvalidArgument: berth.Invalid("id", "is empty"),
	} {
		if got := berth.RefusalCode(err); got != want {
			t.Errorf("%v: got %q", err, got)
		}
	}
	if got := berth.RefusalCode(nil); got != "" {
		t.Errorf("of nil: %q", got)
	}
}

func TestRefusalNamesTheField(t *testing.T) {
	t.Parallel()
	if got := berth.Invalid("region", "is not configured").Error(); got != "invalid_argument: region: is not configured" {
		t.Errorf("got %q", got)
	}
	if got := berth.Refuse(berth.CodeConflict, "Taken.").Error(); got != "conflict: Taken." {
		t.Errorf("got %q", got)
	}
}

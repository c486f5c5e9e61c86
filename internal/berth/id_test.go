package berth_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

func TestValidIDs(t *testing.T) {
	t.Parallel()
	for id, valid := range map[string]bool{
		"a": true, "7": true, "s-7f3k": true, "A.b_c~d-e": true, strings.Repeat("x", berth.MaxIDLength): true,
		"": false, strings.Repeat("x", berth.MaxIDLength+1): false, "-a": false, ".": false, "..": false, "_a": false, "~a": false,
		"a/b": false, "a%2Fb": false, "a b": false, "é": false, "a\x00": false, "a\xff": false, "a\n": false, "\na": false,
		"a:b": false, "a?b": false, "a#b": false, "ａ": false,
	} {
		if berth.ValidID(id) != valid {
			t.Errorf("%q: got %v", id, !valid)
		}
	}
}

func TestValidRegions(t *testing.T) {
	t.Parallel()
	for region, valid := range map[string]bool{
		"eu": true, "eu-west-1": true, "7": true, strings.Repeat("x", berth.MaxRegionLength): true,
		"": false, " ": false, "EU": false, "eu_west": false, "-eu": false, "eu.west": false, "eu\n": false,
		strings.Repeat("x", berth.MaxRegionLength+1): false,
	} {
		if berth.ValidRegion(region) != valid {
			t.Errorf("%q: got %v", region, !valid)
		}
	}
}

// A valid id never needs escaping, wherever it is put in a path.
func TestValidIDsAreUnreserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~-]{0,140}`)).Draw(t, "id")
		unreserved := strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-") == ""
		if berth.ValidID(id) && (!unreserved || len(id) > berth.MaxIDLength || id == "." || id == "..") {
			t.Fatalf("%q is valid", id)
		}
	})
}

func TestNewIDsAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := berth.NewID("s")
		if !berth.ValidID(id) || !strings.HasPrefix(id, "s-") || len(id) != 14 || seen[id] {
			t.Fatalf("got %q", id)
		}
		seen[id] = true
	}
}

func TestLabelsAreNamesAndValuesOfPlainCharacters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", berth.MaxLabelLength)
	for text, want := range map[string]struct{ name, value bool }{
		"gpu": {true, true}, "example.com/gpu-model": {true, true}, "A100": {true, true}, "1.5": {true, true}, long: {true, true},
		"h264+av1": {false, true}, "v1~2": {false, true},
		"": {}, "-a": {}, ".a": {}, "a b": {}, "a\n": {}, "a=b": {}, "é": {}, "a\x00": {}, long + "a": {},
	} {
		if name, value := berth.ValidLabelName(text), berth.ValidLabelValue(text); name != want.name || value != want.value {
			t.Errorf("%q: name %v, value %v", text, name, value)
		}
	}
}

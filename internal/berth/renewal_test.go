package berth_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

func anyHeld(t *rapid.T) []berth.Held {
	number := rapid.Int64Range(0, 1<<62)
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) berth.Held {
		return berth.Held{Key: berth.SessionKey(number.Draw(t, "key")), Generation: berth.Generation(number.Draw(t, "generation"))}
	}), 1, 50, func(h berth.Held) berth.SessionKey { return h.Key }).Draw(t, "held")
}

func TestDigestIsOfASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		held := anyHeld(t)
		shuffled := rapid.Permutation(held).Draw(t, "shuffled")
		if berth.Digest(held) != berth.Digest(shuffled) {
			t.Fatalf("%v and %v differ", held, shuffled)
		}
	})
}

func TestDigestTellsSetsApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		held := anyHeld(t)
		i := rapid.IntRange(0, len(held)-1).Draw(t, "changed")
		older := slices.Clone(held)
		older[i].Generation++
		fewer := slices.Delete(slices.Clone(held), i, i+1)
		if d := berth.Digest(held); d == berth.Digest(older) || d == berth.Digest(fewer) {
			t.Fatalf("%v has the digest of another set", held)
		}
	})
}

// The SQL function computes the same; these are its values.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	if got := berth.Digest(nil); got != 0 {
		t.Errorf("of nothing: %x", got)
	}
	// select encode(substr(sha256('1:2'), 1, 8), 'hex')
	if got := berth.Digest([]berth.Held{{Key: 1, Generation: 2}}); got != 0x673aeeb08cfbb00b {
		t.Errorf("of 1:2: %#x", got)
	}
}

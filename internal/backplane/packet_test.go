package backplane

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pack is what berth.publish makes of entries.
func pack(entries ...entry) string {
	text := strings.Builder{}
	for _, e := range entries {
		if e.data == nil {
			fmt.Fprintf(&text, "%s %s %d -\n", e.topic, e.tag, e.offset)
		} else {
			fmt.Fprintf(&text, "%s %s %d %d\n%s", e.topic, e.tag, e.offset, len(e.data), e.data)
		}
	}
	return text.String()
}

func TestParseReadsWhatPublishPacks(t *testing.T) {
	t.Parallel()
	want := []entry{
		{topic: "a", tag: "0123456789ab", offset: 1, data: []byte("b x 2 -\n")},
		{topic: "a", tag: "0123456789ab", offset: 2, data: []byte{}},
		{topic: "long", tag: "ba9876543210", offset: 1 << 62},
		{topic: "a", tag: "0123456789ab", offset: 3, data: []byte("\nü\U0001F6A2")},
	}
	got, err := parse(pack(want...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "a b 1 -\n", "a b 1 3\nxyz", "a b 1 4\nxyz", "a b -1 -\n", "a b 1 -1\n", "a b 1 65535\n", "a  1 -\n",
		"a b 9223372036854775808 -\n", "a b 1 1\nxa b 2 -\n", "a b c 1 -\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		entries, err := parse(payload)
		again, err2 := parse(pack(entries...))
		if err2 != nil {
			t.Fatalf("%q: %v", payload, err2)
		}
		if diff := cmp.Diff(entries, again, cmp.AllowUnexported(entry{})); diff != "" {
			t.Error(diff)
		}
		if err == nil && len(pack(entries...)) > len(payload) {
			t.Errorf("%q has more in it than was sent", payload)
		}
	})
}

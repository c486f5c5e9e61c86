package config

import (
	"cmp"
	"strconv"
	"testing"
	"time"
)

// TestEveryTagIsUsable proves what checkRange and the page rely on.
func TestEveryTagIsUsable(t *testing.T) {
	t.Parallel()
	for _, e := range catalog() {
		if meaning(e.name) == "" {
			t.Errorf("%s has no meaning", e.name)
		}
		if e.want() == "" {
			t.Errorf("%s: kind %q does not say what it wants", e.name, e.kind())
		}
		for _, key := range []string{"min", "max", "step"} {
			text, isSet := e.tag.Lookup(key)
			switch e.kind() {
			case kindInt:
				requireTag(t, e.name, key, isSet || key == "step", func() error { _, err := strconv.Atoi(orZero(text)); return err })
			case kindRate:
				requireTag(t, e.name, key, isSet || key == "step", func() error { return new(Rate).UnmarshalText([]byte(cmp.Or(text, "0/s"))) })
			case kindDuration:
				requireTag(t, e.name, key, isSet || key == "step", func() error { _, err := time.ParseDuration(orZero(text)); return err })
			}
		}
		p := &problems{}
		if standard := e.tag.Get("default"); standard != "" {
			set(e.variable, standard, p)
			checkItems(e.variable, p)
			checkRange(e.variable, p)
		}
		if err := p.err(); err != nil {
			t.Errorf("the default is refused: %v", err)
		}
	}
}

func requireTag(t *testing.T, name, key string, present bool, parse func() error) {
	t.Helper()
	if !present {
		t.Errorf("%s has no %s", name, key)
	}
	if err := parse(); err != nil {
		t.Errorf("%s: %s does not parse", name, key)
	}
}

func orZero(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// TestOneNameHasOneForm: processes may differ in whether they need a variable, in nothing else.
func TestOneNameHasOneForm(t *testing.T) {
	t.Parallel()
	first := map[string]variable{}
	for _, process := range processes() {
		for _, v := range variables(process.spec) {
			before, known := first[v.name]
			if !known {
				first[v.name] = v
				continue
			}
			if before.field.Type() != v.field.Type() || before.want() != v.want() || before.tag.Get("default") != v.tag.Get("default") {
				t.Errorf("%s differs between processes", v.name)
			}
		}
	}
}

func TestDistanceCountsEdits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

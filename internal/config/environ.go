package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// environment holds the BERTH_ variables by name.
type environment map[string]string

// Kubernetes adds variables to each pod for every Service in its namespace, so a Service named
// "berth" or "berth-api" makes names that look like ours. Values are checked too, because a person
// may well write BERTH_PORT=8080.
var (
	serviceName  = regexp.MustCompile(`^BERTH_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceValue = regexp.MustCompile(`^((tcp|udp|sctp)(://.+)?|[0-9]+|[0-9a-f.:]+)$`)
	linkName     = regexp.MustCompile(`^BERTH_([A-Z0-9_]+_)?PORT$`)
	linkValue    = regexp.MustCompile(`^(tcp|udp|sctp)://.+$`)
)

const (
	// testPrefix is reserved for Berth's own tests, whose variables the processes that they start inherit.
	testPrefix = prefix + "TEST_"
	// clockVar names a file with the offset of the wall clock. To a process that would ignore it, it is unknown.
	clockVar = testPrefix + "CLOCK_OFFSET"
)

// readEnviron picks the BERTH_ variables from lines of "NAME=value". The last of a name wins, as
// in exec.Cmd.Env. Names in lower or mixed case are picked as well, to be refused.
func readEnviron(environ []string) environment {
	env := make(environment)
	for _, line := range environ {
		name, value, found := strings.Cut(line, "=")
		switch {
		case !found || !strings.HasPrefix(strings.ToUpper(name), prefix):
		case ofTests(name) || fromKubernetes(name, value):
		default:
			env[name] = value
		}
	}
	return env
}

// ofTests reports whether a variable is one of Berth's own tests.
func ofTests(name string) bool {
	return strings.HasPrefix(name, testPrefix) && (shiftsClock || name != clockVar)
}

// fromKubernetes reports whether a variable describes a Service rather than Berth.
func fromKubernetes(name, value string) bool {
	if serviceName.MatchString(name) {
		return serviceValue.MatchString(value)
	}
	return linkName.MatchString(name) && linkValue.MatchString(value)
}

// checkNames reports the names that no Berth process knows.
func (env environment) checkNames(p *problems) {
	names := Names()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !slices.Contains(names, name) {
			p.add(name, "is not a variable of any Berth process", suggest(name, names))
		}
	}
}

// suggest says what to do about an unknown name.
func suggest(name string, names []string) string {
	upper := strings.ToUpper(name)
	if plain, ok := strings.CutSuffix(upper, fileSuffix); ok && slices.Contains(names, plain) {
		return "only secrets are read from files: set " + plain
	}
	best, least := "", len(name)
	for _, candidate := range names {
		if d := distance(upper, candidate); d < least {
			best, least = candidate, d
		}
	}
	if least > 1+(len(name)-len(prefix))/3 {
		return "remove it, or see docs/configuration.md for the names"
	}
	return "did you mean " + best + "?"
}

// distance is the Levenshtein distance: edits of one byte that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

package config

import (
	"errors"
	"strings"
)

// Problem is one thing that is wrong with one variable. It never holds the value.
type Problem struct {
	Variable string // full name, such as BERTH_LEASE
	Reason   string // what is wrong, to be read after the name
	Remedy   string // what to do about it
}

// Error returns "BERTH_X: reason; remedy".
func (p Problem) Error() string {
	return p.Variable + ": " + p.Reason + "; " + p.Remedy
}

// problems collects at most one problem for each variable: the first, since later ones follow
// from it.
type problems struct {
	list []error
	seen map[string]bool
}

// add records a problem unless the variable, or its file, has one.
func (p *problems) add(variable, reason, remedy string) {
	key := strings.TrimSuffix(variable, fileSuffix)
	if p.seen[key] {
		return
	}
	if p.seen == nil {
		p.seen = make(map[string]bool)
	}
	p.seen[key] = true
	p.list = append(p.list, Problem{Variable: variable, Reason: reason, Remedy: remedy})
}

// has reports whether the variable has a problem already.
func (p *problems) has(variable string) bool { return p.seen[variable] }

// err joins the problems, one a line; nil if there are none.
func (p *problems) err() error { return errors.Join(p.list...) }

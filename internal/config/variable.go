package config

import (
	"reflect"
	"slices"
	"strings"
)

const (
	prefix     = "BERTH_"
	fileSuffix = "_FILE"
)

// variable is one field of a process's struct that is read from the environment.
type variable struct {
	name  string
	tag   reflect.StructTag
	field reflect.Value // settable if the struct was passed by pointer
}

// variables lists the fields of the struct that spec points to, in order of declaration.
func variables(spec any) []variable { return walk(reflect.ValueOf(spec).Elem()) }

// walk descends into groups, which are the struct fields without an env tag.
func walk(group reflect.Value) []variable {
	var list []variable
	for i := range group.NumField() {
		field := group.Type().Field(i)
		if name := field.Tag.Get("env"); name != "" {
			list = append(list, variable{name: name, tag: field.Tag, field: group.Field(i)})
			continue
		}
		list = append(list, walk(group.Field(i))...)
	}
	return list
}

// isSecret reports whether the value is hidden and may come from a file.
func (v variable) isSecret() bool {
	switch v.field.Interface().(type) {
	case Secret, Secrets:
		return true
	default:
		return false
	}
}

// isList reports whether the value is written with commas.
func (v variable) isList() bool { return v.field.Kind() == reflect.Slice }

// choices lists the values that the tag oneof allows; none means any.
func (v variable) choices() []string { return strings.Fields(v.tag.Get("oneof")) }

// entry is a variable with the processes that read it.
type entry struct {
	variable
	commands []string
}

// catalog lists every variable once, in order of first appearance.
func catalog() []entry {
	var list []entry
	index := make(map[string]int)
	for _, process := range processes() {
		for _, v := range variables(process.spec) {
			at, known := index[v.name]
			if !known {
				at = len(list)
				index[v.name] = at
				list = append(list, entry{variable: v})
			}
			list[at].commands = append(list[at].commands, process.command)
		}
	}
	return list
}

// Names returns every name that some Berth process reads, sorted, with the _FILE names of
// secrets.
func Names() []string {
	var names []string
	for _, e := range catalog() {
		names = append(names, e.name)
		if e.isSecret() {
			names = append(names, e.name+fileSuffix)
		}
	}
	slices.Sort(names)
	return names
}

package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
)

// Setting is the effective value of one variable, in the form that the environment takes.
type Setting struct {
	Variable string `json:"variable"` // full name
	Value    string `json:"value"`    // "[redacted]" for a secret that is set, "" if not set
	Default  string `json:"default"`  // "" if there is none, or if it depends on other settings
}

// Describe lists the effective settings of a process in the order of its struct.
func Describe[P Process](cfg P) []Setting {
	var list []Setting
	for _, v := range variables(&cfg) {
		list = append(list, Setting{Variable: v.name, Value: format(v.field), Default: v.tag.Get("default")})
	}
	return list
}

// format writes a value as the environment takes it.
func format(field reflect.Value) string {
	if field.Kind() == reflect.Slice {
		texts := make([]string, field.Len())
		for i := range texts {
			texts[i] = format(field.Index(i))
		}
		return strings.Join(texts, ",")
	}
	if level, ok := reflect.TypeAssert[slog.Level](field); ok {
		return strings.ToLower(level.String())
	}
	return fmt.Sprint(field.Interface())
}

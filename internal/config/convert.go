package config

import (
	"encoding"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// nowhere is a prefix that no variable can have, because "=" ends a name.
const nowhere = "BERTH="

// decimalDuration is a duration as people write it: no sign, a unit after each number.
var decimalDuration = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)

// convert sets the field of v from text.
//
// envconfig does the conversion. It would read the environment of the process, know nothing of
// files, stop at its first problem and print the value in it. So each value is handed over alone,
// as the default of a one-field struct under a prefix that no environment can hold, and the text
// of envconfig's error is dropped.
func convert(v variable, text string) error {
	if v.isSecret() {
		return setSecret(v, text) // must not become part of a type, where envconfig reads defaults
	}
	if !hasForm(v, text) {
		return errors.New("not in the accepted form")
	}
	spec := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "Value",
		Type: v.field.Type(),
		Tag:  reflect.StructTag("default:" + strconv.Quote(text)),
	}}))
	if err := envconfig.Process(nowhere, spec.Interface()); err != nil {
		return errors.New("not convertible")
	}
	v.field.Set(spec.Elem().Field(0))
	return nil
}

// setSecret stores a secret as it is.
func setSecret(v variable, text string) error {
	target, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.field.Addr())
	if !ok {
		return errors.New("not a secret")
	}
	return target.UnmarshalText([]byte(text))
}

// hasForm refuses what envconfig would read in a way that surprises: octal and hexadecimal
// numbers, signs, "t" for true, names in another case.
func hasForm(v variable, text string) bool {
	if choices := v.choices(); len(choices) > 0 {
		return slices.Contains(choices, text)
	}
	switch v.kind() {
	case kindInt:
		return isDecimal(text)
	case kindDuration:
		return decimalDuration.MatchString(text)
	case kindBool:
		return text == "true" || text == "false"
	default:
		return true
	}
}

// trimItems removes the white space around the items of a list; false if one is empty.
func trimItems(text string) (string, bool) {
	items := strings.Split(text, ",")
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
		if items[i] == "" {
			return "", false
		}
	}
	return strings.Join(items, ","), true
}

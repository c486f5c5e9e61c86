package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/internal/berth"
)

// maxDepth is how deep a body may nest: metadata may have MaxMetadataDepth levels, inside the object that is the body.
const maxDepth = 1 + berth.MaxMetadataDepth

// decode reads the body as exactly one JSON object of T's members; see openapi.yaml for what strict means. Errors are
// our own text: the decoder's would repeat what was sent.
func decode[T any](s *service, w http.ResponseWriter, r *http.Request) (value T, err error) {
	body, err := readBody(w, r, s.cfg.BodyTimeout)
	if err != nil {
		return value, err
	}
	return parseBody[T](body)
}

// parseBody is decode for a body that was read.
func parseBody[T any](body []byte) (value T, err error) {
	if len(body) == 0 {
		return value, berth.Invalid(fieldBody, "must be a JSON object; {} is the smallest")
	}
	return value, unmarshal(body, &value)
}

// decodeOptional is decode for calls whose body may be absent, which means the same as {}.
func decodeOptional[T any](s *service, w http.ResponseWriter, r *http.Request) (value T, present bool, err error) {
	body, err := readBody(w, r, s.cfg.BodyTimeout)
	if err != nil || len(body) == 0 {
		return value, false, err
	}
	return value, true, unmarshal(body, &value)
}

func unmarshal(body []byte, value any) error {
	if err := scan(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, value, json.RejectUnknownMembers(true)); err != nil {
		return typeError(err)
	}
	return nil
}

// scan checks what the types do not: one object and nothing after it, valid UTF-8, no doubled names, no NUL, no null
// for a member of ours, and a bounded depth. What is inside metadata, and data as a whole, is the caller's.
func scan(body []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(body))
	if decoder.PeekKind() != '{' && json.Unmarshal(body, new(jsontext.Value)) == nil {
		return berth.Invalid(fieldBody, "must be a JSON object")
	}
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return syntaxError(err)
		}
		if err := checkToken(decoder, token); err != nil {
			return err
		}
		if decoder.StackDepth() == 0 {
			break
		}
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return berth.Invalid(fieldBody, "must end after the JSON object")
	}
	return nil
}

func checkToken(decoder *jsontext.Decoder, token jsontext.Token) error {
	where := decoder.StackPointer()
	switch token.Kind() {
	case '"':
		if strings.ContainsRune(token.String(), 0) {
			return berth.Invalid(fieldName(where), "must not contain the character U+0000")
		}
	case 'n':
		if !within(where, "metadata") && where != "/data" && !within(where, "data") {
			return berth.Invalid(fieldName(where), "must not be null; leave the member out")
		}
	case '{', '[':
		if decoder.StackDepth() > maxDepth {
			return berth.Invalid(fieldName(where), "must not nest more than 32 levels deep")
		}
	default: // the other kinds are checked by type
	}
	return nil
}

// within tells whether a pointer leads into (not to) a member of the body.
func within(pointer jsontext.Pointer, member string) bool {
	return strings.HasPrefix(string(pointer), "/"+member+"/")
}

func syntaxError(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case !errors.As(err, &syntax):
		return berth.Invalid(fieldBody, "must be a complete JSON object")
	case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return berth.Invalid(fieldName(syntax.JSONPointer), "must not be given twice")
	case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
		return berth.Invalid(fieldBody, "must be a complete JSON object")
	default:
		return berth.Invalid(fieldName(syntax.JSONPointer), "must be valid JSON in UTF-8")
	}
}

// typeError says what a member should have been.
func typeError(err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return berth.Invalid(fieldBody, "must be a JSON object of the documented members")
	}
	field := fieldName(semantic.JSONPointer)
	if errors.Is(semantic.Err, json.ErrUnknownName) {
		return berth.Invalid(field, "is not a member of this request; names are case-sensitive")
	}
	return berth.Invalid(field, expected(semantic.GoType))
}

func expected(goType reflect.Type) string {
	if goType == nil {
		return "must have the documented type"
	}
	switch goType.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "must be an integer in range, written as plain digits"
	case reflect.Bool:
		return "must be true or false"
	case reflect.String:
		return "must be a string"
	case reflect.Slice:
		return "must be an array"
	default:
		return "must be an object"
	}
}

// plainName is a member name that may be repeated in an answer.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._~/-]{1,64}$`)

// wordOr is the name itself, or "?" for one that is no plain word and might be anything.
func wordOr(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return "?"
}

// maxNamed is how many levels of a path are named in an answer.
const maxNamed = 8

// fieldName writes a JSON pointer as "metadata.a.b".
func fieldName(pointer jsontext.Pointer) string {
	if pointer == "" {
		return fieldBody
	}
	var names []string
	for name := range pointer.Tokens() {
		if len(names) == maxNamed {
			names = append(names, "...")
			break
		}
		names = append(names, wordOr(name))
	}
	return strings.Join(names, ".")
}

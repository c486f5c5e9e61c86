package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// ordered is a YAML mapping whose order is meant for readers.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Key   string
	Value T
}

// UnmarshalYAML keeps the order of the document.
func (o *ordered[T]) UnmarshalYAML(node *yaml.Node) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		var value T
		if err := node.Content[i+1].Decode(&value); err != nil {
			return err
		}
		*o = append(*o, entry[T]{Key: node.Content[i].Value, Value: value})
	}
	return nil
}

func (o ordered[T]) get(key string) (T, bool) {
	i := slices.IndexFunc(o, func(e entry[T]) bool { return e.Key == key })
	if i < 0 {
		var none T
		return none, false
	}
	return o[i].Value, true
}

// openAPI is the part of openapi.yaml that /docs shows.
type openAPI struct {
	Info struct {
		Title, Version, Summary, Description string
	}
	Tags []struct {
		Name, Description string
	}
	Security   []map[string][]string
	Paths      ordered[openPath]
	Components struct {
		Schemas    ordered[openSchema]
		Parameters ordered[openParameter]
		Responses  ordered[openResponse]
	}
}

// openPath holds the operations of a path under their methods, and "parameters" that they share.
type openPath struct {
	Parameters []openParameter
	Get        *openOperation
	Post       *openOperation
	Delete     *openOperation
	Options    *openOperation
}

type openOperation struct {
	OperationID string `yaml:"operationId"`
	Tags        []string
	Summary     string
	Description string
	Security    *[]map[string][]string
	Parameters  []openParameter
	RequestBody *struct {
		Required bool
		Content  ordered[struct{ Schema openSchema }]
	} `yaml:"requestBody"`
	Responses ordered[openResponse]
}

type openParameter struct {
	Ref             string `yaml:"$ref"`
	Name            string
	In, Description string
	Schema          openSchema
}

type openResponse struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     ordered[struct{ Schema openSchema }]
}

type openSchema struct {
	Ref         string `yaml:"$ref"`
	Type        string
	Description string
	Pattern     string
	Format      string
	Enum        []string
	Default     any
	Minimum     *int
	Maximum     *int
	Required    []string
	Properties  ordered[openSchema]
	Items       *openSchema
}

// reference is what the template of /docs shows.
type reference struct {
	Title, Version, Summary, Description string
	Groups                               []referenceGroup
	Schemas                              []referenceSchema
}

type referenceGroup struct {
	Name, Description string
	Operations        []referenceOperation
}

type referenceOperation struct {
	ID, Method, Path, Summary, Description string
	Key                                    string // which credential it needs
	Parameters                             []referenceMember
	Body                                   string // name of its schema; empty for none
	BodyOptional                           bool
	Responses                              []referenceResponse
}

type referenceResponse struct {
	Status, Description, Schema string
}

type referenceSchema struct {
	Name, Type, Description string
	Members                 []referenceMember
}

type referenceMember struct {
	Name, Type, Schema, Limits, Default, Description string
	Required                                         bool
}

func newReference(document []byte) (reference, error) {
	var api openAPI
	if err := yaml.Unmarshal(document, &api); err != nil {
		return reference{}, fmt.Errorf("api: read openapi.yaml: %w", err)
	}
	r := reference{Title: api.Info.Title, Version: api.Info.Version, Summary: api.Info.Summary, Description: api.Info.Description}
	for _, tag := range api.Tags {
		r.Groups = append(r.Groups, referenceGroup{Name: tag.Name, Description: tag.Description, Operations: api.operations(tag.Name)})
	}
	for _, schema := range api.Components.Schemas {
		r.Schemas = append(r.Schemas, referenceSchema{
			Name: schema.Key, Type: schema.Value.shortType(), Description: schema.Value.Description, Members: schema.Value.members(),
		})
	}
	return r, nil
}

func (a *openAPI) operations(tag string) []referenceOperation {
	var operations []referenceOperation
	for _, path := range a.Paths {
		for _, method := range []struct {
			name      string
			operation *openOperation
		}{
			{http.MethodPost, path.Value.Post},
			{http.MethodGet, path.Value.Get},
			{http.MethodDelete, path.Value.Delete},
			{http.MethodOptions, path.Value.Options},
		} {
			if method.operation != nil && slices.Contains(method.operation.Tags, tag) {
				operations = append(operations, a.operation(method.name, path.Key, path.Value, *method.operation))
			}
		}
	}
	return operations
}

func (a *openAPI) operation(method, path string, shared openPath, operation openOperation) referenceOperation {
	r := referenceOperation{
		ID: operation.OperationID, Method: method, Path: path, Summary: operation.Summary, Description: operation.Description,
		Key: a.credential(operation),
	}
	for _, parameter := range slices.Concat(shared.Parameters, operation.Parameters) {
		if full, ok := a.Components.Parameters.get(refName(parameter.Ref)); ok {
			parameter = full
		}
		member := parameter.Schema.member(parameter.Name, parameter.In == "path")
		member.Description = parameter.Description
		r.Parameters = append(r.Parameters, member)
	}
	if body := operation.RequestBody; body != nil && len(body.Content) > 0 {
		r.Body, r.BodyOptional = refName(body.Content[0].Value.Schema.Ref), !body.Required
	}
	for _, response := range operation.Responses {
		full := response.Value
		if shared, ok := a.Components.Responses.get(refName(full.Ref)); ok {
			full = shared
		}
		answer := referenceResponse{Status: response.Key, Description: full.Description}
		if len(full.Content) > 0 {
			answer.Schema = refName(full.Content[0].Value.Schema.Ref)
		}
		r.Responses = append(r.Responses, answer)
	}
	return r
}

// credential says what an operation asks for, in words.
func (a *openAPI) credential(operation openOperation) string {
	security := a.Security
	if operation.Security != nil {
		security = *operation.Security
	}
	var names []string
	for _, alternative := range security {
		for name := range alternative {
			names = append(names, map[string]string{"key": "API key", "rejoinToken": "rejoin token"}[name])
		}
	}
	return strings.Join(names, " or ")
}

func (s openSchema) members() []referenceMember {
	members := make([]referenceMember, len(s.Properties))
	for i, property := range s.Properties {
		members[i] = property.Value.member(property.Key, slices.Contains(s.Required, property.Key))
	}
	return members
}

func (s openSchema) member(name string, required bool) referenceMember {
	m := referenceMember{Name: name, Required: required, Type: s.shortType(), Schema: refName(s.Ref), Limits: s.limits(), Description: s.Description}
	if m.Schema == "" && s.Items != nil {
		m.Schema = refName(s.Items.Ref)
	}
	if s.Default != nil {
		m.Default = fmt.Sprint(s.Default)
	}
	return m
}

func (s openSchema) shortType() string {
	switch {
	case s.Ref != "":
		return refName(s.Ref)
	case s.Items != nil:
		return "array of " + s.Items.shortType()
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, ", ")
	case s.Pattern != "":
		return s.Type + " " + s.Pattern
	case s.Format != "":
		return s.Type + " (" + s.Format + ")"
	default:
		return s.Type
	}
}

func (s openSchema) limits() string {
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		return strconv.Itoa(*s.Minimum) + " to " + strconv.Itoa(*s.Maximum)
	case s.Minimum != nil:
		return strconv.Itoa(*s.Minimum) + " or more"
	default:
		return ""
	}
}

// refName is the last part of a reference: "#/components/schemas/Id" is "Id".
func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

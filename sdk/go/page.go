package berth

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
)

// page is one answer of a list.
type page[T any] struct {
	Data       []*T   `json:"data"`
	NextCursor string `json:"next_cursor"` // empty: the last page
}

// pages iterates over a list.
func pages[T any](ctx context.Context, c *Client, query url.Values, path ...string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		query := maps.Clone(query) // each iteration begins at the first page
		base, err := c.endpoint(path...)
		if err != nil {
			yield(nil, err)
			return
		}
		for {
			p, err := fetchPage[T](ctx, c, base, query)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range p.Data {
				if !yield(item, nil) {
					return
				}
			}
			if p.NextCursor == "" {
				return
			}
			query.Set("cursor", p.NextCursor)
		}
	}
}

func fetchPage[T any](ctx context.Context, c *Client, base string, query url.Values) (page[T], error) {
	var p page[T]
	u := base
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	err := c.do(ctx, call{method: http.MethodGet, url: u, token: c.apiKey, answer: &p})
	return p, err
}

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPublishAnswers(t *testing.T) {
	node, err := newNode(config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Shutdown(context.WithoutCancel(t.Context())) })
	handler := newHandler(node, config{ping: 10 * time.Second, pong: 8 * time.Second})
	for body, want := range map[string]int{`{"channel":"a","data":{"n":1}}`: http.StatusOK, `{"data":1}`: http.StatusBadRequest, `no`: http.StatusBadRequest} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/publish", strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

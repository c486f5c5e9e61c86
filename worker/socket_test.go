package worker

import (
	"net/http"
	"strings"
	"testing"
)

func TestSocketsAreToldToThePlatformOnly(t *testing.T) {
	t.Parallel()
	r := startWorker(t, Config{})
	r.join(1)
	ask := func(token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.control+"/sockets", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return do(t, request)
	}
	for _, token := range []string{"", "forged"} {
		if code, body := ask(token); code != http.StatusUnauthorized || strings.Contains(body, "sockets") && strings.Contains(body, "peer") {
			t.Errorf("%q: %d %s", token, code, body)
		}
	}
	code, body := ask("nudge")
	if code != http.StatusOK || !strings.Contains(body, `"worker_id":"`) || strings.Count(body, `"peer":`) != 1 || !strings.Contains(body, `"role":"`) {
		t.Errorf("%d %s", code, body)
	}
}

package load_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/bench/load"
)

// connect starts a server and a client of it.
func connect(t *testing.T, handler http.HandlerFunc) (*load.Client, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	return dial(t, host), host
}

func dial(t *testing.T, host string) *load.Client {
	t.Helper()
	client, err := load.Dial(t.Context(), host, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestClientSendsWhatAServerReads(t *testing.T) {
	t.Parallel()
	client, host := connect(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", r.Host, " ", r.URL.Path, " ", r.Header.Get("Authorization"), " ",
			r.Header.Get("Content-Type"), " ", string(body), " ", err)
	})
	for range 3 {
		request := load.AppendRequest(nil, http.MethodPost, host, "/v1/sessions", "key", []byte(`{"id":"s"}`))
		response, err := client.Do(request)
		want := "POST " + host + ` /v1/sessions Bearer key application/json {"id":"s"} <nil>`
		if err != nil || response.Status != http.StatusOK || string(response.Body) != want {
			t.Fatalf("%d %q, %v; want %q", response.Status, response.Body, err, want)
		}
	}
}

func TestClientReadsAnswersOfAnyLength(t *testing.T) {
	t.Parallel()
	client, host := connect(t, func(w http.ResponseWriter, r *http.Request) {
		length := len(r.URL.Path)
		w.WriteHeader(http.StatusCreated)
		if length%2 == 0 {
			http.NewResponseController(w).Flush()
		}
		for range length {
			_, _ = io.WriteString(w, strings.Repeat("x", length))
		}
	})
	for _, length := range []int{1, 2, 3, 50, 51, 200, 201} {
		path := "/" + strings.Repeat("p", length-1)
		response, err := client.Do(load.AppendRequest(nil, http.MethodGet, host, path, "", nil))
		if err != nil || response.Status != http.StatusCreated || string(response.Body) != strings.Repeat("x", length*length) {
			t.Fatalf("length %d: %d, %d bytes, %v", length*length, response.Status, len(response.Body), err)
		}
	}
}

func TestClientReportsRefusalsAsAnswers(t *testing.T) {
	t.Parallel()
	client, host := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "full", http.StatusServiceUnavailable)
	})
	response, err := client.Do(load.AppendRequest(nil, http.MethodGet, host, "/", "", nil))
	if err != nil || response.Status != http.StatusServiceUnavailable || string(response.Body) != "full\n" {
		t.Errorf("%d %q, %v", response.Status, response.Body, err)
	}
}

func TestClientRefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"another protocol":       "SSH-2.0-OpenSSH_9.2\r\n",
		"no status":              "HTTP/1.1 abc\r\n\r\n",
		"a length of words":      "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
		"a negative length":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"too much":               "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
		"a chunk of words":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nten\r\n",
		"an end in the middle":   "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"no answer":              "",
		"a connection that ends": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dial(t, answerOnce(t, answer))
			if response, err := client.Do([]byte("GET / HTTP/1.1\r\n\r\n")); err == nil {
				t.Errorf("took %d %q for an answer", response.Status, response.Body)
			}
		})
	}
}

// answerOnce listens for one connection, reads once, and answers before it closes.
func answerOnce(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-served
	})
	return listener.Addr().String()
}

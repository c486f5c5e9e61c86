package worker

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nginx is a real proxy before one server.
type nginx struct {
	t       *testing.T
	address string
	command *exec.Cmd
	log     string
}

// configuration is one that many sites have: one worker, upgrades passed on, addresses appended.
const configuration = `daemon off;
%[5]s
worker_processes 1;
pid %[1]s/pid;
error_log %[1]s/error.log;
worker_shutdown_timeout %[4]s;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s backlog=4096;
    location / {
      proxy_pass http://%[3]s;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_read_timeout %[6]dms;
    }
  }
}
`

// startNginx puts a proxy before the upstream that cuts connections after a silence, and lets old ones go on for a while
// when it is reloaded.
func startNginx(t *testing.T, upstream string, silence time.Duration, shutdown string) *nginx {
	t.Helper()
	binary := "/usr/sbin/nginx" // Debian keeps it off PATH
	if found, err := exec.LookPath("nginx"); err == nil {
		binary = found
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatal("no nginx found: run `make deps`")
	}
	free := listen(t)
	dir, n := t.TempDir(), &nginx{t: t, address: free.Addr().String()}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(configuration, dir, n.address, upstream, shutdown, user, silence.Milliseconds())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.log = filepath.Join(dir, "error.log")
	n.command = exec.CommandContext(t.Context(), binary, "-p", dir, "-e", n.log, "-c", file)
	n.command.Cancel = func() error { return n.command.Process.Signal(syscall.SIGTERM) }
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.stop)
	n.awaitUp()
	return n
}

func (n *nginx) stop() {
	_ = n.command.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = n.command.Wait()
	if n.t.Failed() {
		text, _ := os.ReadFile(n.log) // there is one, or it did not start
		n.t.Logf("nginx: %s", text)
	}
}

func (n *nginx) awaitUp() {
	n.t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(n.t, "nginx serves", func() bool {
		request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.address+"/livez", nil)
		if err != nil {
			n.t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
}

// reload has a new worker process take over, and waits until it has: the old one takes no new connections then.
func (n *nginx) reload() {
	n.t.Helper()
	before := n.children()
	if err := n.command.Process.Signal(syscall.SIGHUP); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, "a new worker process", func() bool { return n.children() != before })
}

// children names the worker processes.
func (n *nginx) children() string {
	out, err := exec.CommandContext(n.t.Context(), "ps", "-o", "pid=", "--ppid", fmt.Sprint(n.command.Process.Pid)).Output()
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

package devpg

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// These variables make a re-executed test binary a process that waits to be
// killed: the owner of a server by a Config as JSON, or of a tether to a pid.
const (
	ownerVar  = "DEVPG_TEST_OWNER"
	tetherVar = "DEVPG_TEST_TETHER"
)

// owned is what the owner of a server says about it.
type owned struct {
	PID     int
	Dir     string
	Scratch string
	URL     string
}

func TestMain(m *testing.M) {
	for name, role := range map[string]func(string) error{ownerVar: own, tetherVar: ownTether} {
		if value := os.Getenv(name); value != "" {
			fmt.Fprintln(os.Stderr, role(value))
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// reexec prepares this test binary to play a role.
func reexec(t *testing.T, name, value string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), name+"="+value)
	cmd.Stderr = os.Stderr
	return cmd
}

// own starts a server, reports it on stdout and blocks for ever.
func own(config string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	server, err := Start(context.Background(), cfg)
	if err != nil {
		return err
	}
	report := owned{PID: server.PID(), Dir: server.Dir(), Scratch: server.scratch.path, URL: server.URL("postgres")}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return err
	}
	<-server.Done()
	return server.Err()
}

// ownTether tethers a pid, reports that and blocks for ever.
func ownTether(text string) error {
	pid, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if _, err := tether(pid, syscall.SIGQUIT); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "tethered")
	select {}
}

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for another process. It is long because the race detector and a busy machine are slow.
const patience = time.Minute

var processes atomic.Int64

// process is a berth process that a test started. Its output goes to files, since a child that it leaves behind would
// keep a pipe open.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdout string // path
	stderr string // path
	done   chan struct{}
	err    error // of the end; read it after done
}

// startProcess starts berth with the arguments. dir is where it keeps temporary files, and the mark by which its children
// are found; environment is added to ours, of which nothing that starts with BERTH_ is passed on.
func startProcess(dir string, environment []string, args ...string) (*process, error) {
	build := run.binary
	if shifted(environment) {
		build = run.shifted
	}
	binary, err := build()
	if err != nil {
		return nil, err
	}
	out := filepath.Join(run.dir, fmt.Sprintf("%d-%s", processes.Add(1), args[0]))
	p := &process{
		name: "berth " + strings.Join(args, " "), cmd: exec.Command(binary, args...),
		stdout: out + ".out", stderr: out + ".err", done: make(chan struct{}),
	}
	p.cmd.Env = append(append(foreignEnvironment(), "TMPDIR="+dir), environment...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that interrupt reaches it and its group, and not the tests
	return p, p.start()
}

func foreignEnvironment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "BERTH_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

func (p *process) start() error {
	stdout, err := os.Create(p.stdout)
	if err != nil {
		return err
	}
	defer func() { _ = stdout.Close() }()
	stderr, err := os.Create(p.stderr)
	if err != nil {
		return err
	}
	defer func() { _ = stderr.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() { // ends with the process, for which every owner waits
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal; to a process that has ended it does nothing.
func (p *process) signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it reports that the process has ended, which wait tells too
}

// interrupt sends what Ctrl-C in a terminal does: SIGINT to the whole process group.
func (p *process) interrupt() { _ = syscall.Kill(-p.pid(), syscall.SIGINT) } // as for signal

// wait waits for the end and returns the exit code: -1 after a signal.
func (p *process) wait() (int, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("%s still runs after %v", p.name, patience)
	}
}

// stop asks the process to end and checks that it ended well.
func (p *process) stop(sig syscall.Signal) error {
	p.signal(sig)
	return p.endWell()
}

// endWell waits for a process that was asked to end, and checks its exit code and what it wrote.
func (p *process) endWell() error {
	code, err := p.wait()
	if err != nil {
		p.signal(syscall.SIGKILL)
		<-p.done
		return err
	}
	if code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", p.name, code, p.errors())
	}
	if race := p.race(); race != "" {
		err = fmt.Errorf("%s: data race:\n%s", p.name, race)
	}
	return err
}

func (p *process) output() string {
	text, _ := os.ReadFile(p.stdout) // there is one
	return string(text)
}

// errors is what the process and its children wrote to stderr.
func (p *process) errors() string {
	text, _ := os.ReadFile(p.stderr) // there is one
	return string(text)
}

// race is the race detector's first report.
func (p *process) race() string {
	_, report, found := strings.Cut(p.errors(), "WARNING: DATA RACE")
	if !found {
		return ""
	}
	first, _, _ := strings.Cut(report, "==================")
	return first
}

// showAfterFailure adds the end of what the process logged to the output of a test that failed.
func (p *process) showAfterFailure(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	const lines = 60
	all := bytes.Split([]byte(strings.TrimSpace(p.errors())), []byte("\n"))
	t.Logf("the last lines of %s (pid %d):\n%s", p.name, p.pid(), bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

package devpg

import (
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// tether signals pid when this process dies, where the kernel cannot: a shell
// blocks on a pipe whose other end only this process holds. The release ends
// the shell before it can signal, and waits for it; call it once.
func tether(pid int, sig syscall.Signal) (release func(), err error) {
	const script = `read -r line; kill "-$2" "$1"`
	shell := exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(pid), strconv.Itoa(int(sig))) //nolint:noctx // lives as long as pid does
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the watching shell: %w", err)
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("start the watching shell: %w", err)
	}
	return func() {
		_ = shell.Process.Kill() // before the pipe closes, or the shell would act
		_ = shell.Wait()         // reports the kill
		_ = pipe.Close()         // Wait has closed it already
	}, nil
}

package devpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const lockName = "owner.lock"

// errOwned means that a live process holds the lock of a place.
var errOwned = errors.New("owned by a live process")

// place is a directory that this process owns: it holds the flock on the lock
// file in it until close.
type place struct {
	path string
	lock *os.File
}

func (p *place) data() string     { return filepath.Join(p.path, "data") }
func (p *place) log() string      { return filepath.Join(p.path, "postgres.log") }
func (p *place) password() string { return filepath.Join(p.path, "password") }
func (p *place) run() string      { return filepath.Join(p.path, "run") }

// initialised reports whether a finished cluster is in the place.
func (p *place) initialised() bool {
	_, err := os.Stat(filepath.Join(p.data(), "PG_VERSION"))
	return err == nil
}

// claimPlace takes the lock of an existing directory, making the lock file if
// need be. It returns an error that wraps errOwned if somebody has it.
func claimPlace(path string) (*place, error) {
	name := filepath.Join(path, lockName)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(lock); err != nil {
		err = fmt.Errorf("%s: %w%s", name, err, ownerNote(lock))
		return nil, errors.Join(err, lock.Close())
	}
	p := &place{path: path, lock: lock}
	if err := p.sign(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func lockFile(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return errOwned
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// sign leaves the pid for people to read; nothing relies on it. A lock file
// without a name was removed by a sweeper who had the lock before.
func (p *place) sign() error {
	info, err := p.lock.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		return fs.ErrNotExist
	}
	if err := p.lock.Truncate(0); err != nil {
		return err
	}
	_, err = p.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// ownerNote names the process that signed a lock file.
func ownerNote(lock *os.File) string {
	var buf [32]byte
	n, _ := lock.ReadAt(buf[:], 0) // a short file is the usual case
	if pid := strings.TrimSpace(string(buf[:n])); pid != "" {
		return " (pid " + pid + ")"
	}
	return ""
}

// close gives the lock back and leaves the directory.
func (p *place) close() error { return p.lock.Close() }

// remove deletes the directory, with what a killed server in it left elsewhere,
// and gives the lock back last so that nobody else can own it in between.
func (p *place) remove() error {
	return errors.Join(removeSegment(p.data()), os.RemoveAll(p.path), p.close())
}

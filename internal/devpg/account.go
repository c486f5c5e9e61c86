package devpg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system user that the server runs as.
type account struct {
	uid, gid int
	// dropped is set if that is somebody other than this process's user.
	dropped bool
}

// serverAccount chooses the account for a cluster at data, which need not exist.
func serverAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if owner, ok := ownerOf(data); ok && owner.uid != 0 {
		return owner, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			return parseAccount(found)
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and neither user postgres nor nobody exists: " +
		"create user postgres, or run as another user")
}

func ownerOf(path string) (account, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return account{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return account{}, false
	}
	return account{uid: int(stat.Uid), gid: int(stat.Gid), dropped: true}, true
}

func parseAccount(found *user.User) (account, error) {
	uid, err := strconv.Atoi(found.Uid)
	if err != nil {
		return account{}, fmt.Errorf("uid of user %s: %w", found.Username, err)
	}
	gid, err := strconv.Atoi(found.Gid)
	if err != nil {
		return account{}, fmt.Errorf("gid of user %s: %w", found.Username, err)
	}
	return account{uid: uid, gid: gid, dropped: true}, nil
}

// attributes starts a child as the account, in a session of its own so that
// Ctrl-C at a terminal reaches only the owner, who then decides.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.dropped {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// mkdir makes a directory that only the account may enter.
func (a account) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if !a.dropped {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// outerMode is the mode of a directory that this process owns and the account
// passes through.
func (a account) outerMode() os.FileMode {
	if a.dropped {
		return 0o711
	}
	return 0o700
}

// reaches says whether the account can enter dir, and if not which directory on
// the way stops it.
func (a account) reaches(dir string) error {
	if !a.dropped {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if !a.mayEnter(info) {
			return fmt.Errorf("%s (mode %04o) does not let user id %d pass", at, info.Mode().Perm(), a.uid)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// mayEnter looks at the mode bits only. Access lists could say otherwise, and
// then the server's own error does.
func (a account) mayEnter(info os.FileInfo) bool {
	bit := os.FileMode(0o001)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case int(stat.Uid) == a.uid:
			bit = 0o100
		case int(stat.Gid) == a.gid:
			bit = 0o010
		}
	}
	return info.IsDir() && info.Mode()&bit != 0
}

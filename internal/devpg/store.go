package devpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// openStore makes dir if need be and owns it. It refuses a directory that holds
// something else, that another process uses, or that who cannot enter.
func openStore(dir string, who account) (*place, error) {
	made, err := makeStoreDir(dir, who)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := who.reaches(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w: choose one elsewhere, such as below /var/lib", dir, err)
	}
	if !made {
		if err := checkStoreDir(dir); err != nil {
			return nil, err
		}
	}
	store, err := claimPlace(dir)
	if errors.Is(err, errOwned) {
		return nil, fmt.Errorf("data directory %s is in use: stop that server first, or choose another directory: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return store, nil
}

// makeStoreDir reports whether it had to make dir. Missing parents are left
// open to everybody, as the server's user has to pass.
func makeStoreDir(dir string, who account) (made bool, err error) {
	if _, err := os.Stat(dir); err == nil {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return false, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, err
	}
	return true, os.Chmod(dir, who.outerMode())
}

// checkStoreDir accepts an empty directory or one that was a store before.
func checkStoreDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); err != nil {
		return fmt.Errorf("data directory %s holds something else: choose an empty or new directory", dir)
	}
	return nil
}

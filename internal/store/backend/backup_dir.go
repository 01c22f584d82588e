package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// Patterns, as for [os.CreateTemp], of what a command has beside a backup while it runs: the file
// until it is whole, and the directory of a trial. Both have the store's secrets.
const (
	UnfinishedBackup = ".heddle-backup-*"
	trialDir         = ".heddle-verify-*"
)

var unfinished = regexp.MustCompile(`^\.heddle-(backup|verify)-[0-9]+$`)

// EnterBackupDir is to be called before backups are made or tried in a directory, and leave after.
// It removes what commands that were killed have left there, unless another command is there now.
// The error says what of that stays; the caller may go on.
func EnterBackupDir(dir string) (leave func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil // the backup fails by itself
	} else if err != nil {
		return func() {}, err
	}
	leave = func() { f.Close() } // and with it, unlock
	switch locked := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); {
	case locked == nil:
		err = removeUnfinished(dir)
	case !errors.Is(locked, syscall.EWOULDBLOCK): // such as on NFS
		err = reportUnfinished(dir, locked)
	}
	_ = flock(f, syscall.LOCK_SH) // where it fails, the exclusive one does, and nothing is removed
	return leave, err
}

// flock locks a file, however often signals interrupt the wait.
func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// listUnfinished returns the paths of what commands have in a directory until they end.
func listUnfinished(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if unfinished.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

func removeUnfinished(dir string) error {
	paths, err := listUnfinished(dir)
	for _, path := range paths {
		if failed := os.RemoveAll(path); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s, which a killed command has left, has secrets of the store and cannot be removed (%w): remove it as root", path, failed))
		}
	}
	return err
}

// reportUnfinished returns an error that names what no command can tell to be in use.
func reportUnfinished(dir string, locked error) error {
	paths, err := listUnfinished(dir)
	for _, path := range paths {
		err = errors.Join(err, fmt.Errorf("%s: cannot tell whether a running command uses it, since %s cannot be locked (%w): if none does, remove it, since it has secrets of the store", path, dir, locked))
	}
	return err
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// permissionHint returns what to do about an error of a file that this process may not use, with a
// space before; "" for other errors, and those that say it themselves.
func permissionHint(err error) string {
	var at *fs.PathError
	if !errors.As(err, &at) || !errors.Is(at, fs.ErrPermission) || strings.Contains(err.Error(), "chown") || strings.Contains(err.Error(), "chmod") {
		return ""
	}
	info, statErr := os.Stat(at.Path)
	if statErr != nil { // a directory on the way, or what cannot be made
		return fmt.Sprintf(" (this is user %d: run it as root, or as the user that owns the directories on the way)", os.Geteuid())
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	return fmt.Sprintf(" (it belongs to user %d with mode %o, and this is user %d: run it as user %d, or chown %d %s)",
		owner, info.Mode().Perm(), os.Geteuid(), owner, os.Geteuid(), at.Path)
}

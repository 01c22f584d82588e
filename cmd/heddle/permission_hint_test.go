package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestPermissionHint: an error of a file of another user names the user, and what to do.
func TestPermissionHint(t *testing.T) {
	t.Parallel()
	file := write(t, "")
	denied := func(path string) error {
		return fmt.Errorf("read the key: %w", &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{denied(file), "it belongs to user 0 with mode 6"},
		{denied(file), "run it as user 0, or chown 0 " + file},
		{denied(filepath.Join(file, "below")), "run it as root, or as the user that owns the directories on the way"},
	} {
		if got := permissionHint(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
	for _, err := range []error{errors.New("other"), fmt.Errorf("%w: chown 5 it", denied(file)), &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}} {
		if got := permissionHint(err); got != "" {
			t.Errorf("%v: got %q, want nothing", err, got)
		}
	}
}

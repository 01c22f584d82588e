package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs terminal sessions: commands, what they print, and the files they read. Beside
// testscript's own commands there is "exits CODE COMMAND…".
func TestScripts(t *testing.T) {
	t.Parallel()
	p := scripts()
	p.Dir = filepath.Join("testdata", "script")
	testscript.Run(t, p)
}

// scripts configures script tests to have heddle in their path.
func scripts() testscript.Params {
	return testscript.Params{
		Setup: func(e *testscript.Env) error {
			bin := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			e.Setenv(runMain, "1")
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			return os.Symlink(self, filepath.Join(bin, "heddle"))
		},
		Condition: func(name string) (bool, error) { return name == "root" && os.Geteuid() == 0, nil },
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	}
}

// exits runs a command that must end with a code; stdout and stderr are looked at after.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

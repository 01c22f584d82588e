package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"heddle/internal/netlab"
)

// TestKilledBackupsAreRemoved: a backup that is killed leaves its file and its trial, which have
// the store's secrets, and so does a drill. The next backup, trial or drill in that directory
// removes them, but not those of a command that still runs.
func TestKilledBackupsAreRemoved(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "backup")
	data, dir := t.TempDir(), t.TempDir()
	start(t, ns, "serve", "--data", data)
	whole := filepath.Join(dir, "whole.db")
	succeed(t, ns, "backup", whole, "--data", data)
	files := func(pattern string) []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	startTrial := func(args ...string) *running {
		t.Helper()
		r := launch(t, ns, append(args, "--data", data)...)
		within(t, args[0]+" to begin a trial", func() bool { return len(files(".heddle-verify-*")) > 0 })
		return r
	}
	own := filepath.Join(dir, ".heddle-notes") // an operator's own
	writeFile(t, own, "keep")
	want := []string{own, whole}
	verified := []string{"backup", "--verify", filepath.Join(dir, "killed.db")}
	drill := []string{"drill", "--file", whole}
	for _, c := range []struct{ killed, next []string }{
		{verified, []string{"backup", whole, "--data", data}},
		{drill, []string{"restore", "--trial", whole}},
		{verified, []string{"drill", "--backups", dir, "--data", data}},
	} {
		startTrial(c.killed...).kill()
		succeed(t, ns, c.next...)
		if left := files("*"); !slices.Equal(left, want) {
			t.Errorf("after a killed %s, heddle %s leaves %q, want %q", c.killed[0], c.next[0], left, want)
		}
	}

	stopped := startTrial("backup", "--verify", filepath.Join(dir, "stopped.db"))
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	before := files(".heddle-*")
	succeed(t, ns, "backup", whole, "--data", data)
	if after := files(".heddle-*"); !slices.Equal(after, before) {
		t.Errorf("beside a backup that runs there is %q, want %q", after, before)
	}
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped.done; err != nil {
		t.Errorf("the backup that went on: %v: %s", err, stopped.text(t))
	}
	stopped.done <- nil
	if _, err := os.Stat(filepath.Join(dir, "stopped.db")); err != nil {
		t.Error(err)
	}
}

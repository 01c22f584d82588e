package main

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"heddle/internal/netlab"
)

// TestReaderOfLogEnds: a role goes on when the reader of its log has ended.
func TestReaderOfLogEnds(t *testing.T) {
	t.Parallel()
	ns, data := netlab.ForTest(t).MustNamespace(t, "serve"), t.TempDir()
	log, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--data", data}
	r := &running{ns: ns, cmd: heddle(args...), health: healthAddress(args), log: os.DevNull, done: make(chan error, 1)}
	r.cmd.Stderr = end
	if err := errors.Join(ns.Start(r.cmd), end.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	go func() { r.done <- r.cmd.Wait() }()
	if _, err := log.Read(make([]byte, 1)); err != nil { // its first line
		t.Error(err)
	}
	log.Close()
	r.waitReady(t)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil { // of which it writes
		t.Fatal(err)
	}
	err = <-r.done
	r.done <- err
	if err != nil {
		t.Errorf("the server has ended with %v", err)
	}
}

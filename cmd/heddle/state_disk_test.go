package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent starts again although the disk of its state directory is full, with another role too;
// what it cannot write it says.
func TestAgentStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	if err := os.MkdirAll(h.state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.state, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(h.state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	start(t, h.ns, h.agent("--join", s.token(t))...).stop(t)
	filler, err := os.Create(filepath.Join(h.state, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(bytes.Repeat([]byte("x"), 512))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	start(t, h.ns, h.agent()...).stop(t)
	agent := start(t, h.ns, h.agent("--policy", "--overlay")...)
	agent.waitLog(t, "cannot record this agent's settings")
}

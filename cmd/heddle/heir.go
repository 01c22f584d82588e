package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// holderFile, below the data directory, names the tunnel controller that had the embedded store open last: its process
// id and when that started, by the kernel's clock.
const holderFile = "tunnel-controller.pid"

// holdStore says in the data directory that this tunnel controller has the store open.
func holdStore(dataDir string) error {
	me, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	file := filepath.Join(dataDir, holderFile)
	if err := os.WriteFile(file+".new", []byte(me), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// processOf returns the process id and when the process started, in the kernel's ticks: no two processes share both.
func processOf(pid int) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name, in brackets, may hold anything; the start is the twentieth field after it: proc(5).
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: %d fields after the name, want 20", pid, len(fields))
	}
	return fmt.Sprintf("%d %s\n", pid, fields[19]), nil
}

// heir waits for the end of the tunnel controller that has the store open, since the store ends with it. It is a task.
type heir struct {
	process int // a pidfd
	ended   func()
	ready   chan struct{}
}

// heirOf returns the heir of the tunnel controller that has the store in dataDir open; nil: it is no tunnel controller,
// but a server, which will open its store again itself. ended is called when the controller has ended. The heir must be
// closed.
func heirOf(dataDir string, ended func()) (*heir, error) {
	named, err := os.ReadFile(filepath.Join(dataDir, holderFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	digits, _, _ := bytes.Cut(named, []byte(" "))
	pid, err := strconv.Atoi(string(digits))
	if err != nil {
		return nil, fmt.Errorf("%s: %q is no process id", filepath.Join(dataDir, holderFile), digits)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, nil // it has ended, and what has the store open is another
	}
	if now, err := processOf(pid); err != nil || now != string(named) {
		return nil, unix.Close(process)
	}
	return &heir{process: process, ended: ended, ready: make(chan struct{})}, nil
}

func (h *heir) String() string         { return "heir of the controller that has the store open" }
func (h *heir) Ready() <-chan struct{} { return h.ready }
func (h *heir) close()                 { _ = unix.Close(h.process) }

// Run waits until the controller or ctx ends.
func (h *heir) Run(ctx context.Context) error {
	close(h.ready)
	wake := make([]int, 2)
	if err := unix.Pipe2(wake, unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(wake[0])
	unhook := context.AfterFunc(ctx, func() { _ = unix.Close(wake[1]) })
	defer func() {
		if unhook() {
			_ = unix.Close(wake[1])
		}
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(h.process), Events: unix.POLLIN}, {Fd: int32(wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the end of a process: %w", err)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case fds[0].Revents != 0:
			h.ended()
			<-ctx.Done()
			return nil
		}
	}
}

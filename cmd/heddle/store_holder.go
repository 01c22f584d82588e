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

	"heddle/internal/api"
	"heddle/internal/task"
)

// holderFile, below the data directory, identifies the tunnel controller that opened the embedded
// store last: its process id and start time.
const holderFile = "tunnel-controller.pid"

// holdStore writes this process into the holder file.
func holdStore(dataDir string) error {
	me, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	return api.WriteFile(filepath.Join(dataDir, holderFile), []byte(me))
}

// processOf returns a process id with the process's start time in ticks, which together are unique.
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

// holderExit is a task that waits for the exit of the tunnel controller that has the store open,
// which closes the store.
type holderExit struct {
	task.Task
	process int // a pidfd
	ended   func()
}

// newHolderExit returns the task, or nil if no tunnel controller has the store in dataDir open, but
// a server, which will open it again. ended is called on the exit. The task must be closed.
func newHolderExit(dataDir string, ended func()) (*holderExit, error) {
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
	h := &holderExit{process: process, ended: ended}
	h.Task = newLoop("exit of the controller that has the store open", h.wait)
	return h, nil
}

func (h *holderExit) close() { _ = unix.Close(h.process) }

// wait returns when ctx ends.
func (h *holderExit) wait(ctx context.Context) error {
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

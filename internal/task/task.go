// Package task runs the parts of a process together until they are told to stop.
//
// A part is built by hand, started in order, and ends with the others: the first error ends all. A part that returns
// because its context ended has not failed.
package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Task is one long-running part. Constructors only construct: goroutines start in Run and are waited for there.
type Task interface {
	// Run works until ctx ends, or returns the error that ends the process. A stopped context is no error.
	Run(ctx context.Context) error
	// Ready is closed once the part does its work.
	Ready() <-chan struct{}
	// String names the part in logs and in readiness reports.
	String() string
}

// Run starts the tasks in order, each when the one before it is ready, and waits for all of them. When one returns an
// error, or ctx ends, the others are told to stop in reverse order, so that a part never outlives what it builds on.
func Run(ctx context.Context, tasks ...Task) error {
	type running struct {
		cancel context.CancelFunc
		done   chan struct{}
	}
	var (
		mu     sync.Mutex
		first  error
		failed = make(chan struct{})
		once   sync.Once
		live   []running
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		once.Do(func() { close(failed) })
	}

start:
	for _, t := range tasks {
		// Not derived from ctx: the end of ctx stops the parts one by one below, not all at once.
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{cancel: cancel, done: make(chan struct{})}
		live = append(live, r)
		go func() {
			defer close(r.done)
			err := t.Run(partCtx)
			stopped := partCtx.Err() != nil
			switch {
			case err != nil && !(stopped && errors.Is(err, context.Canceled)):
				fail(named(t, err))
			case !stopped:
				fail(fmt.Errorf("%s: ended without being told to", t))
			}
		}()
		select {
		case <-t.Ready():
		case <-failed:
			break start
		case <-ctx.Done():
			break start
		}
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	for i := len(live) - 1; i >= 0; i-- {
		live[i].cancel()
		<-live[i].done
	}
	mu.Lock()
	defer mu.Unlock()
	return first
}

// taskError is the error of a task.
type taskError struct {
	task string
	err  error
}

func (e *taskError) Unwrap() error { return e.err }

func (e *taskError) Error() string {
	if text := e.err.Error(); strings.HasPrefix(text, e.task+":") {
		return text
	}
	return e.task + ": " + e.err.Error()
}

// named says whose an error is. Of tasks that run each other the innermost is named.
func named(t Task, err error) error {
	if inner := (*taskError)(nil); errors.As(err, &inner) {
		return err
	}
	return &taskError{t.String(), err}
}

// Waiting names the tasks that are not ready yet.
func Waiting(tasks []Task) []string {
	var names []string
	for _, t := range tasks {
		select {
		case <-t.Ready():
		default:
			names = append(names, t.String())
		}
	}
	return names
}

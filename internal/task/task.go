// Package task runs the parts of a process together until they are stopped.
//
// A part is built by hand, started in order, and ends with the others: the first error ends all. A
// part that returns because its context ended has not failed.
package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Task is a long-running part. Its goroutines start in Run, which waits for them.
type Task interface {
	// Run works until ctx ends, or returns the error that ends the process. The end of ctx is no
	// error.
	Run(ctx context.Context) error
	// Ready is closed once the part does its work.
	Ready() <-chan struct{}
	// String names the part in logs and in readiness reports.
	String() string
}

// Run starts the tasks in order, each when the one before it is ready, and waits for all of them.
// When one returns an error, or ctx ends, it stops them in reverse order, so that a part never
// outlives one that it needs.
func Run(ctx context.Context, tasks ...Task) error {
	type running struct {
		cancel context.CancelFunc
		done   chan struct{}
	}
	var live []running
	var first error
	failed := make(chan error, len(tasks))
start:
	for _, t := range tasks {
		// Not derived from ctx, whose end stops the parts one by one below, not all at once.
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{cancel: cancel, done: make(chan struct{})}
		live = append(live, r)
		go func() {
			defer close(r.done)
			err := t.Run(partCtx)
			stopped := partCtx.Err() != nil
			switch {
			case err != nil && !(stopped && errors.Is(err, context.Canceled)):
				failed <- named(t, err)
			case !stopped:
				failed <- fmt.Errorf("%s: ended unexpectedly", t)
			}
		}()
		select {
		case <-t.Ready():
		case first = <-failed:
			break start
		case <-ctx.Done():
			break start
		}
	}
	if first == nil {
		select {
		case <-ctx.Done():
		case first = <-failed:
		}
	}
	for _, r := range slices.Backward(live) {
		r.cancel()
		<-r.done
	}
	if first == nil && len(failed) > 0 {
		first = <-failed
	}
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

// named adds the name of the task to an error. Of tasks that run each other the innermost counts.
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

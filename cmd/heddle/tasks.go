package main

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"heddle/internal/task"
)

// newLoop returns a task that is ready as soon as it runs.
func newLoop(name string, run func(context.Context) error) task.Task {
	return task.New(name, func(ctx context.Context, ready func()) error {
		ready()
		return run(ctx)
	})
}

// newStep returns a task that does one thing, and is ready when it is done.
func newStep(name string, do func(context.Context) error) task.Task {
	return task.New(name, func(ctx context.Context, ready func()) error {
		if err := do(ctx); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return nil
	})
}

// group is a task that runs tasks at the same time, and is ready when all are. The first error ends
// all.
type group struct {
	tasks []task.Task
	ready chan struct{}
}

func newGroup(tasks ...task.Task) *group {
	return &group{tasks: tasks, ready: make(chan struct{})}
}

func (g *group) String() string         { return strings.Join(task.Waiting(g.tasks), ", ") }
func (g *group) Ready() <-chan struct{} { return g.ready }

// Run works until ctx ends.
func (g *group) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, t := range g.tasks {
		running.Go(func() error { return task.Run(ctx, t) })
	}
	running.Go(func() error {
		for _, t := range g.tasks {
			select {
			case <-t.Ready():
			case <-ctx.Done():
				return nil
			}
		}
		close(g.ready)
		return nil
	})
	return running.Wait()
}

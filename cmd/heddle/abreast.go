package main

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"heddle/internal/task"
)

// abreast runs tasks at the same time: none waits for another. It is ready when all are. The first error ends all.
type abreast struct {
	tasks []task.Task
	ready chan struct{}
}

func newAbreast(tasks ...task.Task) *abreast {
	return &abreast{tasks: tasks, ready: make(chan struct{})}
}

func (a *abreast) String() string {
	names := make([]string, len(a.tasks))
	for i, t := range a.tasks {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

func (a *abreast) Ready() <-chan struct{} { return a.ready }

// Run works until ctx ends.
func (a *abreast) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range a.tasks {
		g.Go(func() error { return task.Run(ctx, t) })
	}
	g.Go(func() error {
		for _, t := range a.tasks {
			select {
			case <-t.Ready():
			case <-ctx.Done():
				return nil
			}
		}
		close(a.ready)
		return nil
	})
	return g.Wait()
}

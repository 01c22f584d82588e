package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"heddle/internal/task"
)

// onHangup returns a task that calls a function for each SIGHUP, by which programs that rotate logs
// say that they have renamed files.
func onHangup(renamed func()) task.Task {
	return task.New("hangup", func(ctx context.Context, ready func()) error {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGHUP)
		defer signal.Stop(signals)
		ready()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-signals:
				renamed()
			}
		}
	})
}

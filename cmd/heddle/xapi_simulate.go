package main

import (
	"context"
	"io"
	"os"

	"heddle/internal/task"
	"heddle/internal/terminal"
	"heddle/internal/xen/xapi"
)

// runSimulation serves the pools of a file and prints their URLs once all answer.
func (c *xapiConfig) runSimulation(ctx context.Context, out io.Writer) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	text, err := os.ReadFile(c.simulate)
	if err != nil {
		return usagef("--simulate: %w", err)
	}
	simulation, err := xapi.NewSimulation(text, log)
	if err != nil {
		return usagef("%s: %w", c.simulate, err)
	}
	parts := []task.Task{simulation, newStep("where the pools are", func(context.Context) error {
		for _, p := range simulation.Pools() {
			if _, err := terminal.Fprintln(out, p.Name, p.URL); err != nil {
				return err
			}
		}
		return nil
	})}
	if c.control != "" {
		parts = append(parts, newStep("control", func(ctx context.Context) error { return simulation.FollowControl(ctx, c.control) }))
	}
	return task.Run(ctx, parts...)
}

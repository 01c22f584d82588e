package task

import "context"

// New returns a task that runs a function, which calls ready once it does its work.
func New(name string, run func(ctx context.Context, ready func()) error) Task {
	return &function{NewPart(name), run}
}

type function struct {
	Part
	run func(ctx context.Context, ready func()) error
}

func (f *function) Run(ctx context.Context) error { return f.run(ctx, f.BeReady) }

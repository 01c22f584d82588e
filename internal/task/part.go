package task

import "sync"

// Part holds a task's name and whether it is ready. A task embeds it and has a Run of its own. The
// zero Part is not usable: see [NewPart].
type Part struct {
	name  string
	ready chan struct{}
	close func()
}

// NewPart returns the part of a task that is not ready yet.
func NewPart(name string) Part {
	ready := make(chan struct{})
	return Part{name, ready, sync.OnceFunc(func() { close(ready) })}
}

// String returns the task's name.
func (p *Part) String() string { return p.name }

// Ready is closed once the task does its work.
func (p *Part) Ready() <-chan struct{} { return p.ready }

// BeReady closes Ready. Further calls do nothing.
func (p *Part) BeReady() { p.close() }

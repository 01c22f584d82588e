package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

// part is a task that notes when it starts and stops, and fails when told.
type part struct {
	name  string
	log   *log
	ready chan struct{}
	fail  chan error
}

func newPart(name string, l *log) *part {
	return &part{name: name, log: l, ready: make(chan struct{}), fail: make(chan error, 1)}
}

func (p *part) String() string         { return p.name }
func (p *part) Ready() <-chan struct{} { return p.ready }
func (p *part) Run(ctx context.Context) error {
	p.log.add("start " + p.name)
	close(p.ready)
	select {
	case <-ctx.Done():
		p.log.add("stop " + p.name)
		return ctx.Err()
	case err := <-p.fail:
		p.log.add("fail " + p.name)
		return err
	}
}

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	l := &log{}
	a, b := newPart("a", l), newPart("b", l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Run(ctx, a, b) }()
	<-b.ready
	if w := Waiting([]Task{a, b, newPart("c", l)}); !slices.Equal(w, []string{"c"}) {
		t.Errorf("waiting for %v, want only c", w)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("a stopped context is no error, got %v", err)
	}
	want := []string{"start a", "start b", "stop b", "stop a"}
	if !slices.Equal(l.lines, want) {
		t.Errorf("got %v, want %v", l.lines, want)
	}
}

func TestFirstErrorEndsAll(t *testing.T) {
	l := &log{}
	a, b := newPart("a", l), newPart("b", l)
	done := make(chan error)
	go func() { done <- Run(t.Context(), a, b) }()
	<-b.ready
	cause := errors.New("broken")
	a.fail <- cause
	err := <-done
	if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "a: ") {
		t.Fatalf("got %v, want the cause with the name of the part", err)
	}
	if !slices.Contains(l.lines, "stop b") {
		t.Errorf("b was not stopped: %v", l.lines)
	}
}

func TestFailureBeforeReadyStartsNoMore(t *testing.T) {
	l := &log{}
	a, b := newPart("a", l), newPart("b", l)
	bad := failing{errors.New("no port")}
	err := Run(t.Context(), a, bad, b)
	if err == nil || !strings.Contains(err.Error(), "no port") {
		t.Fatalf("got %v", err)
	}
	if slices.Contains(l.lines, "start b") {
		t.Errorf("b was started after a failure: %v", l.lines)
	}
}

type failing struct{ err error }

func (f failing) Run(context.Context) error { return f.err }
func (failing) Ready() <-chan struct{}      { return nil }
func (failing) String() string              { return "failing" }

func TestEndingEarlyIsAnError(t *testing.T) {
	if err := Run(t.Context(), failing{nil}); err == nil {
		t.Fatal("a task that ends by itself must end the process with an error")
	}
}

// An error says once whose it is, however many tasks run each other.
func TestRunNamesOnce(t *testing.T) {
	noStore := errors.New("no store")
	for _, said := range []error{noStore, fmt.Errorf("agent: %w", noStore)} {
		a := newPart("agent", &log{})
		a.fail <- said
		err := Run(t.Context(), &around{a})
		if !errors.Is(err, noStore) || err.Error() != "agent: no store" {
			t.Errorf("%v: got %v, want agent: no store", said, err)
		}
	}
}

// around runs another task.
type around struct{ Task }

func (o *around) Run(ctx context.Context) error { return Run(ctx, o.Task) }
func (o *around) String() string                { return "all of " + o.Task.String() }

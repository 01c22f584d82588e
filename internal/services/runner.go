package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// runner runs one container: its namespace, its program, and the checks that the agent makes
// itself.
type runner struct {
	agent  *Agent
	dir    string
	wake   task.Notice
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	container plan.Container

	routing *routing // of a container that speaks BGP; of run
}

const (
	// soundAfter is the time after which a program that has ended counts as having worked.
	soundAfter = time.Minute
	// Intervals at which haproxy's statistics are read: while a member has no verdict, and else.
	statsSoon, statsEvery = time.Second, 5 * time.Second
)

// start runs a container until its runner is stopped.
func (a *Agent) start(ctx context.Context, c plan.Container) *runner {
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{agent: a, dir: filepath.Join(a.opts.StateDir, c.Namespace), wake: task.NewNotice(), cancel: cancel, done: make(chan struct{}), container: c}
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
	return r
}

// stop ends the runner; the container goes on.
func (r *runner) stop() {
	r.cancel()
	<-r.done
}

// change gives the runner another definition of its container.
func (r *runner) change(c plan.Container) {
	r.mu.Lock()
	r.container = c
	r.mu.Unlock()
	r.wake.Give()
}

func (r *runner) desired() plan.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.container
}

// run keeps the container running until ctx ends. What fails is tried again after a pause that
// grows with each failure.
func (r *runner) run(ctx context.Context) {
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		begun := time.Now()
		err := r.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		c := r.desired()
		r.agent.report(&c, topology.ContainerError, err.Error())
		r.agent.health.lose(c.ID)
		if time.Since(begun) > soundAfter {
			backoff.Reset()
		}
		r.agent.figures.mu.Lock()
		r.agent.figures.restarts++
		r.agent.figures.mu.Unlock()
		backoff.Pause(ctx)
	}
}

// serve runs the container until ctx ends, or something fails.
func (r *runner) serve(ctx context.Context) error {
	c := r.desired()
	if c.Kind != topology.ContainerHAProxy && c.Kind != topology.ContainerBGP {
		return fmt.Errorf("containers of kind %s are not known to this version", c.Kind)
	}
	r.agent.report(&c, topology.ContainerStarting, "")
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	ns, net, err := open(r.agent.net, r.dir, &c)
	if err != nil {
		return err
	}
	defer ns.Close()
	defer net.Close()
	if c.Kind == topology.ContainerBGP {
		return r.serveRouting(ctx, ns, net)
	}
	known := func(member string) string { return r.agent.health.status(member, c.FormerHosts) }
	h, err := openHAProxy(&r.agent.opts, r.dir, ns, known, r.agent.sight)
	if err != nil {
		return err
	}
	defer h.close()
	probes := newProbes(ns, r.agent.health, known, r.agent.sight, c.ID)
	defer probes.stop()
	return r.loop(ctx, net, h, probes)
}

// loop follows changes of the container, and what its checks say.
func (r *runner) loop(ctx context.Context, net *hostnet.Linux, h *haproxy, probes *probes) error {
	var first plan.FirstChecks
	for {
		desired := r.desired()
		if err := configure(net, &desired); err != nil {
			return err
		}
		c, refused := h.accepted(desired)
		r.agent.health.check(&c)
		c, next := first.Due(c, r.agent.health.has, time.Now())
		reloaded, err := h.apply(ctx, &c)
		if errors.As(err, new(refusal)) {
			if found, other := h.findRefused(ctx, &c); found {
				continue
			} else if other != nil {
				return other
			}
		}
		if err != nil {
			return err
		}
		if reloaded {
			h.read = time.Now()
			r.agent.figures.mu.Lock()
			r.agent.figures.reloads++
			r.agent.figures.mu.Unlock()
		}
		probes.set(ctx, &c)
		r.agent.reportChecks(&c, refused)
		if err := r.follow(ctx, h, &c, next); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// follow passes verdicts on until the container changes, the first check of more members is due,
// ctx ends or haproxy does.
func (r *runner) follow(ctx context.Context, h *haproxy, c *plan.Container, next time.Time) error {
	health := r.agent.health
	due := task.NewAlarm()
	due.Set(next)
	defer due.Set(time.Time{})
	for {
		var stats, look <-chan time.Time
		if h.runs() {
			if !h.trusted() {
				look = time.After(lookEvery)
			}
			pause := statsEvery
			if health.lacks(c) {
				pause = statsSoon
			}
			stats = time.After(time.Until(h.read.Add(pause)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			return nil
		case <-due.C:
			return nil
		case v := <-h.verdicts:
			r.take(h, c, v)
		case <-look:
			if err := h.regainTrust(ctx, c); err != nil {
				return h.endHung(ctx, err)
			}
		case why := <-h.ended:
			return errors.New(why)
		case <-stats:
			h.read = time.Now()
			all, err := h.stats(ctx)
			if err != nil {
				return h.endHung(ctx, err)
			}
			for _, v := range all {
				r.take(h, c, v)
			}
		}
	}
}

// take passes a verdict of haproxy on, unless that cannot know.
func (r *runner) take(h *haproxy, c *plan.Container, v plan.Verdict) {
	if v.Status == topology.MemberActive || h.trusted() {
		r.agent.health.set(c.ID, v)
	}
}

// missing returns errNoHAProxy for an error of a program that is not installed.
func missing(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return errNoHAProxy
	}
	return err
}

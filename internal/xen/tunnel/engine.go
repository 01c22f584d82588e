package tunnel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/task"
	"heddle/internal/xen/client"
	"heddle/internal/xen/ovs"
)

// engine is a leader at work: it passes events to its core, and carries out the core's actions. Its
// fields belong to the goroutine of run, except for the statuses and the mail.
type engine struct {
	c        *Controller
	core     *core
	intents  *intentStore
	obeyed   obeyed
	follow   map[string]*follower // of databases, by host
	statuses *statuses
	failed   error        // why this cannot lead any more
	signs    atomic.Int64 // counts connections to databases

	workers      sync.WaitGroup
	xapiFailures atomic.Int64
	mail         mailbox
}

// follower is a worker and how to stop it.
type follower struct {
	*worker
	stop context.CancelFunc
}

// mailbox collects what other goroutines have the engine do.
type mailbox struct {
	mu    sync.Mutex
	mail  []func(now time.Time)
	given task.Notice
}

// post has the engine do something. It does not wait.
func (m *mailbox) post(f func(now time.Time)) {
	m.mu.Lock()
	m.mail = append(m.mail, f)
	m.mu.Unlock()
	m.given.Give()
}

func (m *mailbox) take() []func(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mail
	m.mail = nil
	return mail
}

// lead does a leader's work until ctx ends or it is one no more.
func (c *Controller) lead(ctx context.Context, l leadership) error {
	in, err := loadIntents(ctx, l)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	e := &engine{c: c, core: newCore(in.intents, c.opts.Quarantine, c.opts.database), intents: in, obeyed: obeyed{in.identity, l.term},
		follow: map[string]*follower{}, statuses: newStatuses(c.log), mail: mailbox{given: task.NewNotice()}}
	e.workers.Go(func() { e.followPool(working) })
	err = e.run(working)
	stop()
	e.workers.Wait()
	if errors.Is(err, errLater) {
		if err := l.renew(ctx); err != nil {
			return err
		}
		c.log.Warn("the store does not know the leader that a switch obeys: it was restored to an older state; its terms begin anew", "err", err)
		return errSetBack
	}
	return err
}

func (e *engine) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	asked, done := e.c.opts.Watchdog.Ask("tunnels")
	defer done()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			continue
		case <-e.mail.given:
		case <-timer.C:
		}
		for _, f := range e.mail.take() {
			f(time.Now())
			e.perform(ctx, time.Now())
		}
		now := time.Now()
		e.pass(ctx, now)
		if e.failed != nil {
			return e.failed
		}
		timer.Reset(e.core.next(now).Sub(now))
	}
}

// pass has the core decide, stores the decisions, and has it act on them.
func (e *engine) pass(ctx context.Context, now time.Time) {
	if !e.core.ready(now) {
		return
	}
	networks := e.core.decide(now)
	if err := e.intents.flush(ctx); err != nil {
		e.unwritten(ctx, err)
	}
	e.core.act(networks, now)
	e.perform(ctx, now)
	f := e.core.figures()
	f.xapiFailures = e.xapiFailures.Load()
	e.c.figures.Store(f)
	e.c.BeReady()
}

// unwritten handles that the store has not taken what was decided.
func (e *engine) unwritten(ctx context.Context, err error) {
	if deposed(err) {
		e.failed = err
	} else if ctx.Err() == nil {
		e.c.log.Warn("what was decided cannot be written, and is not done until it is", "err", err)
	}
}

// perform carries out the core's actions.
func (e *engine) perform(ctx context.Context, now time.Time) {
	for actions := e.core.takeActions(); len(actions) > 0; actions = e.core.takeActions() {
		for _, action := range actions {
			switch a := action.(type) {
			case followSwitch:
				e.followSwitch(ctx, a)
			case leaveSwitch:
				e.follow[a.host].stop()
				delete(e.follow, a.host)
			case retrySwitch:
				if f := e.follow[a.host]; f != nil {
					f.client.Retry()
				}
			case runJob:
				e.follow[a.host].jobs <- a.job
			case setStatus:
				e.statuses.set(a.tunnel, a.desired, a.actual)
			case freeKey:
				err := e.intents.drop(ctx, a.network)
				if err != nil {
					e.unwritten(ctx, err)
				}
				e.core.keyFreed(a.network, err, now)
			case logEntry:
				e.c.log.Log(ctx, a.level, a.text, a.args...)
			}
		}
	}
}

// followSwitch begins to follow a host's database.
func (e *engine) followSwitch(ctx context.Context, a followSwitch) {
	o := &e.c.opts
	cl, err := ovs.Open(ovsdb.Options{Address: a.address, TLS: o.tls(a.host), Dial: o.Dial, Log: e.c.log.With("host", a.name), Probe: probeEvery, DeadAfter: deadAfter})
	if err != nil {
		e.core.cannotFollow(a.host, err.Error())
		return
	}
	ctx, stop := context.WithCancel(ctx)
	f := &follower{stop: stop}
	f.worker = newWorker(cl, e.obeyed, o.BFDEvery, &e.signs, func(event any) {
		e.mail.post(func(now time.Time) { e.switchEvent(a.host, f, event, now) })
	})
	e.follow[a.host] = f
	e.workers.Go(func() { f.run(ctx) })
}

// switchEvent passes on an event of a switch, if it is still followed.
func (e *engine) switchEvent(host string, f *follower, event any, now time.Time) {
	if e.follow[host] != f {
		return
	}
	if later, is := event.(obeysLater); is {
		e.failed = fmt.Errorf("%w: %w", errLater, later.err)
		return
	}
	e.core.switchEvent(host, event, f.client.Snapshot(), now)
}

// followPool passes on the XenAPI's events, and has statuses written, until ctx ends.
func (e *engine) followPool(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.session(ctx); ctx.Err() == nil {
			e.xapiFailures.Add(1)
			e.c.log.Warn("no XenAPI: what it said last still counts", "url", e.c.opts.XenAPI.URL, "err", err)
			task.Pause(ctx, retryAfter)
		}
	}
}

// session does so for one login.
func (e *engine) session(ctx context.Context) error {
	s, err := client.Dial(ctx, e.c.opts.XenAPI)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(ctx) // it ends by itself too
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop(nil)
	writing.Go(func() {
		refused := func(tunnel string) {
			e.mail.post(func(now time.Time) { e.core.statusRefused(tunnel, now) })
		}
		if err := e.statuses.write(ctx, s, refused); err != nil {
			stop(err)
		}
	})
	first := true
	return cause(ctx, s.Follow(ctx, classes, func(all client.Objects, events []client.Event) error {
		complete := first
		if first {
			events, first = everything(all), false
		}
		e.mail.post(func(now time.Time) { e.poolChanged(events, complete, now) })
		return nil
	}))
}

// poolChanged passes on events of the XenAPI. If they are complete, other objects are gone.
func (e *engine) poolChanged(events []client.Event, complete bool, now time.Time) {
	if complete {
		events = append(e.core.pool.missing(events), events...)
	}
	for _, event := range events {
		if event.Class == "tunnel" {
			e.statuses.forget(event.Ref)
		}
	}
	e.core.poolChanged(events, now)
}

package tunnel

import (
	"context"
	"sync"
	"time"

	"heddle/internal/task"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// follow has the engine told what the XenAPI says, and statuses written, until ctx ends.
func (e *engine) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.session(ctx); ctx.Err() == nil {
			e.counts.xapiFailures.Add(1)
			e.log.Warn("no XenAPI: what it said last still counts", "url", e.c.opts.XenAPI.URL, "err", err)
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
		if err := e.statuses.write(ctx, s, e.unsaid); err != nil {
			stop(err)
		}
	})
	first := true
	return cause(ctx, s.Follow(ctx, classes, func(all client.Objects, events []client.Event) error {
		if first {
			events = everything(all)
			first = false
			e.post(func() { e.told(append(e.pool.missing(events), events...)) })
		} else {
			e.post(func() { e.told(events) })
		}
		return nil
	}))
}

// unsaid has a tunnel's status considered again a little later.
func (e *engine) unsaid(tunnel string) {
	e.post(func() {
		if network := e.pool.uuids[e.pool.home[tunnel]]; network != "" {
			e.reconsider(network, time.Now().Add(retryAfter))
		}
	})
}

// everything is all objects as if they were new, referred ones first.
func everything(all client.Objects) []client.Event {
	var events []client.Event
	for _, class := range []string{"host_metrics", "host", "network", "PIF", "tunnel"} {
		for ref, r := range all[class] {
			events = append(events, client.Event{Class: class, Operation: client.Add, Ref: ref, Record: r})
		}
	}
	return events
}

// missing are the ends of objects that are not among all there are.
func (p *pool) missing(all []client.Event) []client.Event {
	there := map[string]bool{}
	for _, e := range all {
		there[e.Ref] = true
	}
	var gone []client.Event
	for class, objects := range p.objects {
		for ref := range map[string]model.Record(objects) {
			if !there[ref] {
				gone = append(gone, client.Event{Class: class, Operation: client.Del, Ref: ref})
			}
		}
	}
	return gone
}

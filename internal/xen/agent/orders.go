package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/objects"
)

// clerk carries out orders that are not for bridges, in turn. Its goroutine, run, owns it.
type clerk struct {
	agent     *Agent
	addresses *addresses
	answered  map[string]bool // by id, as long as the order is there
}

// run looks at the orders at each change of them, and at the interfaces that were configured when
// one of those may have been made anew, until ctx ends or the host has moved.
func (c *clerk) run(ctx context.Context) error {
	a := c.agent
	if err := c.addresses.load(); err != nil {
		a.log.Error("cannot read the interfaces' configuration; they stay as they are", "err", err)
	}
	for {
		c.addresses.restore()
		c.carryOut(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-a.ordersDue:
		}
	}
}

// carryOut does what is new among the orders, and takes back answers to those that are gone.
func (c *clerk) carryOut(ctx context.Context) {
	there := map[string]bool{}
	for o := range objects.Orders.By(records.Over(c.agent.reader()), "host", c.agent.host) {
		there[o.ID] = true
		if c.answered[o.ID] {
			continue
		}
		switch {
		case o.Join != nil:
			c.join(ctx, o)
		case o.Address != nil:
			c.answer(o, c.addresses.configure(*o.Address))
		default:
			continue
		}
		c.answered[o.ID] = true
	}
	for id := range c.answered {
		if !there[id] {
			delete(c.answered, id)
			c.agent.presence.Delete(objects.OrderReports.Key(c.agent.host + "/" + id))
		}
	}
}

func report(o *objects.Order, err error) *objects.OrderReport {
	r := &objects.OrderReport{Host: o.Host, ID: o.ID}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func (c *clerk) answer(o *objects.Order, err error) {
	if err != nil {
		c.agent.log.Warn("cannot carry out what the pool asks for", "order", o.ID, "err", err)
	}
	r := report(o, err)
	if err := c.agent.presence.SetRecord(objects.OrderReports.KeyOf(r), r); err != nil {
		c.agent.log.Warn("cannot report what came of an order", "order", o.ID, "err", err)
	}
}

// joinTimeout bounds how long a host that moves waits for the pool it leaves.
const joinTimeout = 5 * time.Second

// join joins another pool, answers, and starts over. The answer must be in the store before:
// afterwards this host reports elsewhere.
func (c *clerk) join(ctx context.Context, o *objects.Order) {
	a := c.agent
	if a.opts.Move == nil {
		c.answer(o, fmt.Errorf("host %s: its agent cannot move to another pool", a.opts.HostName))
		return
	}
	startOver, err := a.opts.Move(ctx, o.Join.Token)
	if err != nil {
		c.answer(o, fmt.Errorf("join the other pool: %w", err))
		return
	}
	r := report(o, nil)
	value, err := json.Marshal(r)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		_, err = a.opts.Store.Commit(limited, nil, []store.Op{{Key: objects.OrderReports.KeyOf(r), Value: value, Lease: a.presence.Lease()}})
	}
	if err != nil {
		a.log.Warn("cannot report to the pool that this host leaves", "err", err)
	}
	a.log.Info("joined another pool, starting over there")
	startOver()
}

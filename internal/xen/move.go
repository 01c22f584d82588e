package xen

import (
	"context"
	"encoding/json"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/objects"
)

// mover carries out orders to join another pool.
type mover struct {
	agent *Agent
	done  map[string]bool // orders already tried
}

// run looks for such an order at each change of the pool until ctx ends, or the host has moved.
func (m *mover) run(ctx context.Context) error {
	if m.agent.opts.Move == nil {
		return nil
	}
	for {
		for o := range objects.Orders.By(records.Over(m.agent.reader()), "host", m.agent.host) {
			if o.Join != nil && !m.done[o.ID] {
				m.done[o.ID] = true
				m.carryOut(ctx, o)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.agent.moving.rung:
		}
	}
}

// carryOut joins, answers, and starts over. The answer must be in the store before: afterwards this host reports elsewhere.
func (m *mover) carryOut(ctx context.Context, o *objects.Order) {
	a := m.agent
	report := &objects.OrderReport{Host: o.Host, ID: o.ID}
	startOver, err := a.opts.Move(ctx, o.Join.Token)
	if err != nil {
		report.Error = err.Error()
		a.log.Error("cannot join the other pool; this host stays", "err", err)
	}
	if err := a.answer(ctx, report); err != nil {
		a.log.Warn("cannot report that this host joins another pool", "err", err)
	}
	if startOver != nil {
		a.log.Info("joined another pool, starting over there")
		startOver()
	}
}

// answerPatience bounds how long a host that moves waits for the pool it leaves.
const answerPatience = 5 * time.Second

// answer puts an order's report into the store, under this host's lease.
func (a *Agent) answer(ctx context.Context, r *objects.OrderReport) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = a.opts.Store.Commit(ctx, nil, []store.Op{{Key: objects.OrderReports.KeyOf(r), Value: value, Lease: a.presence.Lease()}})
	return err
}

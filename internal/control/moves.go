package control

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// forwardFor is the default of [Moves.ForwardFor].
const forwardFor = 15 * time.Second

// Moves ends the moves of ports from host to host (docs/decisions/0017-moving-ports.md). It is a
// task.
//
//	bound elsewhere ─served there─▶ frames go there ─ForwardFor─▶ previous host forgotten
//
// Like [Bindings] it compares states, so every server may run one.
type Moves struct {
	task.Part
	// ForwardFor is the time for which the host that a port has left goes on forwarding, until
	// other hosts have surely read where the port is. Set it before Run.
	ForwardFor time.Duration

	service *Service
	log     *slog.Logger
	arrived *marks[struct{}] // ids of ports that the host they are bound to serves
}

// NewMoves returns the task, which follows the service's replica from when that runs.
func NewMoves(s *Service, r *replica.Replica, log *slog.Logger) *Moves {
	m := &Moves{Part: task.NewPart("moves"), ForwardFor: forwardFor, service: s, log: log, arrived: newMarks[struct{}]()}
	r.OnChange(m.notice)
	return m
}

// notice marks the ports that have arrived.
func (m *Moves) notice(u snapshot.Update) {
	r := records.Over(u.Next)
	for _, c := range u.Changed {
		var id string
		switch record := c.New.(type) {
		case *neutron.Port:
			id = record.ID
		case *topology.PortState:
			id = record.PortID
		}
		if p, ok := schema.Ports.Peek(r, id); ok && hasArrived(r, p) {
			m.arrived.add(p.ID, struct{}{})
		}
	}
}

// hasArrived reports whether a port that comes from another host is served where it is bound.
func hasArrived(r records.Reader, p *neutron.Port) bool {
	if p.BoundHostID == "" || p.PreviousHostID == "" {
		return false
	}
	_, served := schema.PortStates.Peek(r, p.BoundHostID+"/"+p.ID)
	return served
}

// Run ends moves until ctx ends.
func (m *Moves) Run(ctx context.Context) error {
	m.BeReady()
	forgets, alarm := map[string]time.Time{}, task.NewAlarm() // when the previous hosts of ports are due
	retry := newBackoff()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.arrived.wake:
		case <-alarm.C:
		}
		now := time.Now()
		err := m.pass(ctx, forgets, now)
		next := earliest(forgets)
		if err != nil && ctx.Err() == nil {
			pause := retry.Next()
			m.log.Warn("cannot end moves of ports", "err", err, "retry", pause)
			next = now.Add(pause)
		} else {
			retry.Reset()
		}
		alarm.Set(next)
	}
}

// earliest returns the first of some moments; the zero Time if there is none.
func earliest(moments map[string]time.Time) (first time.Time) {
	for _, at := range moments {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// pass has frames of the ports that have arrived go to their hosts, and forgets the previous hosts
// that are due. It returns the last error; what failed stays marked.
func (m *Moves) pass(ctx context.Context, forgets map[string]time.Time, now time.Time) error {
	var last error
	for part := range slices.Chunk(slices.Sorted(maps.Keys(m.arrived.take())), rebindAtOnce) {
		if err := m.service.endMoves(ctx, part, func(p *neutron.Port) { p.PreviousInterface = "" }); err != nil {
			last = err
			for _, id := range part {
				m.arrived.keep(id, struct{}{})
			}
			continue
		}
		for _, id := range part {
			forgets[id] = now.Add(m.ForwardFor)
		}
	}
	var due []string
	for id, at := range forgets {
		if !at.After(now) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	for part := range slices.Chunk(due, rebindAtOnce) {
		if err := m.service.endMoves(ctx, part, forgetPrevious); err != nil {
			last = err
			continue
		}
		for _, id := range part {
			delete(forgets, id)
		}
	}
	return last
}

func forgetPrevious(p *neutron.Port) {
	if p.PreviousInterface == "" { // else it moves again
		p.PreviousHostID = ""
	}
}

// endMoves changes the ports that have arrived, in one transaction. Clients see nothing of it.
func (s *Service) endMoves(ctx context.Context, ids []string, change func(*neutron.Port)) error {
	_, err := transact(ctx, s, neutron.Caller{}, func(o *operation) (struct{}, error) {
		for _, id := range ids {
			old, err := schema.Ports.Get(o.tx, id)
			if err != nil || !hasArrived(o.tx, old) {
				continue // deleted, or moved again
			}
			p := *old
			if change(&p); p.PreviousHostID == old.PreviousHostID && p.PreviousInterface == old.PreviousInterface {
				continue // another server was faster
			}
			n, err := schema.Networks.Need(o.tx, p.NetworkID)
			if err != nil {
				return struct{}{}, err
			}
			if err := o.putPort(&p, n); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Package ovs sets up Open vSwitch by its database: bridges, ports, tunnels, over a client of
// package ovsdb.
//
//	ovsdb.Client ──▶ Snapshot
//	             ◀── Edit: ensure, delete; only rows that bear our mark
//
// What holds, beside what package ovsdb says:
//   - A transaction that succeeded proves nothing of the switch: [Client.Apply] waits for it, and
//     what came of each interface is in its OfPort and Error.
package ovs

import (
	"context"
	"errors"
	"fmt"

	"heddle/internal/ovsdb"
)

// ErrNotApplied is wrapped in the errors of [Client.Apply] when the database has the change but the
// switch has not done it in time: ovs-vswitchd is busy, hangs, or does not run.
var ErrNotApplied = errors.New("the database has the change, but ovs-vswitchd has not done it in time")

// Client follows one switch's database and changes it. Its methods may be called from any
// goroutine.
type Client struct{ *ovsdb.Client[*Snapshot] }

// Open is [ovsdb.Open] for a switch.
func Open(o ovsdb.Options) (*Client, error) {
	c, err := ovsdb.Open(&model, o)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Dial is [ovsdb.Dial] for a switch.
func Dial(ctx context.Context, o ovsdb.Options) (*Client, error) {
	c, err := ovsdb.Dial(ctx, &model, o)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Apply carries out operations and waits until the switch has done what they ask; the snapshot it
// returns has the outcome: see OfPort and Error of each [Interface]. What the kernel tells of a
// device, such as its MTU, may come later.
func (c *Client) Apply(ctx context.Context, ops ...ovsdb.Op) (*Snapshot, []ovsdb.Result, error) {
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	snap, results, err := c.settle(ctx, ops)
	if err == nil && anyRefused(snap, ops, results) {
		// A port may be refused because of one that the same change takes away. The switch tries
		// again when it is asked to look again.
		snap, _, err = c.settle(ctx, nil)
	}
	return snap, results, err
}

// anyRefused reports whether the switch could not make an interface that the operations inserted.
func anyRefused(snap *Snapshot, ops []ovsdb.Op, results []ovsdb.Result) bool {
	for n, op := range ops {
		if !op.Inserts("Interface") {
			continue
		}
		if i := snap.Interfaces[results[n].UUID]; i != nil && i.OfPort < 0 {
			return true
		}
	}
	return false
}

// settle is one round of Apply.
func (c *Client) settle(ctx context.Context, ops []ovsdb.Op) (*Snapshot, []ovsdb.Result, error) {
	n := len(ops)
	all := append(ops[:n:n], ovsdb.Mutate(Database, nil, ovsdb.Mutation{"next_cfg", "+=", 1}), ovsdb.Select(Database, nil, "next_cfg"))
	results, err := c.Transact(ctx, all...)
	if err != nil {
		return nil, nil, err
	}
	roots := results[n+1].Rows
	if len(roots) != 1 {
		return nil, nil, fmt.Errorf("%s: table %s has %d rows, not one", c.Address(), Database, len(roots))
	}
	r := ovsdb.NewRowReader(roots[0])
	wanted := r.Number("next_cfg", 0)
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Address(), err)
	}
	snap, err := c.Wait(ctx, func(s *Snapshot) bool { return s.Lost == nil && s.Root != nil && s.Root.CurCfg >= wanted })
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", c.Address(), ErrNotApplied, err)
	}
	return snap, results[:n], err
}

package legacy

import (
	"context"
	"errors"
	"fmt"

	"heddle/calico/client"
)

// batch bounds the operations of a transaction: etcd takes 128 by default.
const batch = 120

// Run copies everything that can be copied, reads it back, and returns the plan that is left: all
// of it [Same], [Drop] or refused. With refusals the error is [ErrRefused]; the rest has been
// copied then. An interrupted Run can be repeated. After each transaction it calls done, unless
// nil, with the objects copied and their total.
func (m *Migration) Run(ctx context.Context, done func(copied, all int)) (*Plan, error) {
	copied := 0
	for {
		p, err := m.Plan(ctx)
		if err != nil {
			return nil, err
		}
		todo := p.with(Copy)
		if len(todo) == 0 {
			return p, p.refusal()
		}
		report := func(n int) {
			copied += n
			if done != nil {
				done(copied, copied+len(todo))
			}
		}
		if err := m.commit(ctx, todo, unit.copy, report); err != nil {
			return nil, err
		}
		// What was overtaken is planned again, and what was copied is seen to be the same.
	}
}

// Remove deletes the legacy tree, each object only as long as v1 has the same. While any object is
// not migrated it deletes nothing and returns [ErrRefused]. An interrupted Remove can be repeated.
func (m *Migration) Remove(ctx context.Context, done func(removed, all int)) error {
	removed := 0
	for {
		p, err := m.Plan(ctx)
		if err != nil {
			return err
		}
		if err := p.refusal(); err != nil {
			return err
		}
		if n := len(p.with(Copy)); n > 0 {
			return fmt.Errorf("%w: %d are not copied yet: migrate first", ErrRefused, n)
		}
		if len(p.units) == 0 {
			return nil
		}
		report := func(n int) {
			removed += n
			if done != nil {
				done(removed, removed+len(p.units))
			}
		}
		if err := m.commit(ctx, p.units, unit.remove, report); err != nil {
			return err
		}
	}
}

func (p *Plan) refusal() error {
	if n := len(p.Refusals()); n > 0 {
		return fmt.Errorf("%w: %d keys", ErrRefused, n)
	}
	return nil
}

// commit makes the operations of all units, many units in a transaction. A transaction that was
// overtaken is made again unit by unit; units that were overtaken are left.
func (m *Migration) commit(ctx context.Context, units []unit, ops func(unit) []client.Op, report func(int)) error {
	for len(units) > 0 {
		var together []client.Op
		n := 0
		for n < len(units) {
			more := ops(units[n])
			if n > 0 && len(together)+len(more) > batch {
				break
			}
			together = append(together, more...)
			n++
		}
		_, err := m.etcd.Commit(ctx, together...)
		switch {
		case err == nil:
			report(n)
		case !overtaken(err):
			return err
		case n == 1:
		default:
			var failed []error
			for _, u := range units[:n] {
				if _, err := m.etcd.Commit(ctx, ops(u)...); err == nil {
					report(1)
				} else if !overtaken(err) {
					failed = append(failed, err)
				}
			}
			if err := errors.Join(failed...); err != nil {
				return err
			}
		}
		units = units[n:]
	}
	return ctx.Err()
}

// copy writes the unit into the v1 tree, if both trees are still as they were.
func (u unit) copy() []client.Op {
	var ops []client.Op
	for _, s := range u.steps {
		if s.Outcome == Copy {
			ops = append(ops, client.OpCheck(s.From, s.from.Revision), client.OpCreate(s.To, s.object))
		}
	}
	for _, k := range u.absent {
		ops = append(ops, client.OpCheck(k, 0))
	}
	return ops
}

// remove deletes the unit from the legacy tree, if both trees are still as they were.
func (u unit) remove() []client.Op {
	var ops []client.Op
	for _, s := range u.steps {
		ops = append(ops, client.OpDelete(s.From, s.from.Revision))
		if s.To != nil {
			ops = append(ops, client.OpCheck(s.To, s.to.Revision))
		}
	}
	return ops
}

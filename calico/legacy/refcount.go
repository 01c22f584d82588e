package legacy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"heddle/calico"
	"heddle/calico/client"
)

// count is a profile's refcount as it was read: the number of endpoints that name the profile.
type count struct {
	key      calico.ProfileRefcountKey
	n        uint64
	revision int64 // 0: there is none
}

func (c count) exists() bool { return c.revision != 0 }

// set writes the count, if it is still as it was read.
func (c count) set(n uint64) client.Op { return client.OpReplace(c.key, n, c.revision) }

// delete takes the profile away, if its count is still as it was read.
func (c count) delete() []client.Op {
	guard := client.OpCheck(c.key, 0)
	if c.exists() {
		guard = client.OpDelete(c.key, c.revision)
	}
	rules, tags := legacyParts(c.key.Profile)
	return []client.Op{guard, client.OpClear(rules), client.OpClear(tags)}
}

func legacyParts(id string) (rules calico.ProfileRulesKey, tags calico.ProfileTagsKey) {
	return calico.ProfileRulesKey{Profile: id, Legacy: true}, calico.ProfileTagsKey{Profile: id, Legacy: true}
}

// put writes both parts of a profile.
func (p *Profile) put(id string) []client.Op {
	rules, tags := legacyParts(id)
	return []client.Op{client.OpApply(rules, &p.Rules), client.OpApply(tags, &p.Tags)}
}

// count reads the count of a profile; a corrupt one is an error.
func (w *Writer) count(ctx context.Context, id string) (count, error) {
	c := count{key: calico.ProfileRefcountKey{Profile: id}}
	e, err := w.get(ctx, c.key)
	if err != nil || e.Revision == 0 {
		return c, err
	}
	c.revision = e.Revision
	n, ok := e.Object.(uint64)
	if !ok {
		return c, Fault{c.key, fmt.Errorf("%w: %.40q", ErrCorruptCount, e.Raw)}
	}
	c.n = n
	return c, nil
}

// acquire counts one more endpoint with a profile, which is made where it is not there.
func (w *Writer) acquire(ctx context.Context, p *plan, id string, profile *Profile) error {
	c, err := w.count(ctx, id)
	switch {
	case err != nil:
		return err
	case c.exists() && c.n == math.MaxUint64:
		return Fault{c.key, errors.New("its refcount cannot be raised further")}
	case c.exists():
		p.add(c.set(c.n + 1))
		return nil
	}
	old, err := w.uncounted(ctx, id)
	switch {
	case err != nil:
		return err
	case len(old.parts) > 0:
		p.add(c.set(uint64(len(old.named)) + 1))
		p.add(old.unchanged()...)
		return nil
	case profile == nil:
		return fmt.Errorf("profile %s: %w", id, ErrNoProfile)
	}
	p.add(c.set(1))
	p.add(profile.put(id)...)
	return nil
}

// releaseAll lowers the count of each profile. What prevents that is a fault, not an error.
func (w *Writer) releaseAll(ctx context.Context, p *plan, ids []string) error {
	for _, id := range ids {
		c, err := w.count(ctx, id)
		var corrupt Fault
		switch {
		case errors.As(err, &corrupt):
			p.fault(c.key, corrupt.Err)
		case err != nil:
			return err
		case !c.exists():
			p.fault(c.key, ErrNoCount)
		case c.n == 0:
			p.fault(c.key, ErrNoneCounted)
		case c.n == 1:
			p.add(c.delete()...)
		default:
			p.add(c.set(c.n - 1))
		}
	}
	return nil
}

// anyPart reports whether a profile has rules or tags, of a writer that does not count perhaps.
func (w *Writer) anyPart(ctx context.Context, id string) (bool, error) {
	rules, tags := legacyParts(id)
	for _, k := range []calico.Key{rules, tags} {
		if e, err := w.get(ctx, k); err != nil || e.Revision != 0 {
			return e.Revision != 0, err
		}
	}
	return false, nil
}

// uncounted is a profile without a count, as most programs of the time left it.
type uncounted struct {
	parts []client.Entry // its rules and tags, those that are there
	named []client.Entry // the endpoints that name it
}

// uncounted reads what there is of a profile that was seen to have no count, all of it at one
// revision: else its parts might be those of a moment at which it had one.
func (w *Writer) uncounted(ctx context.Context, id string) (u uncounted, err error) {
	if there, err := w.anyPart(ctx, id); err != nil || !there {
		return u, err
	}
	rules, tags := legacyParts(id)
	s, err := w.etcd.List(ctx, calico.ProfileRefcountKey{Profile: id}, rules, tags, calico.WorkloadEndpointKey{Legacy: true})
	if err != nil {
		return u, err
	}
	for _, e := range s.Entries {
		switch e.Key.Kind() {
		case calico.KindProfileRefcount:
			return u, errAgain // it has a count now
		case calico.KindWorkloadEndpoint:
			if ids, err := names(e); err == nil && slices.Contains(ids, id) {
				u.named = append(u.named, e)
			}
		default:
			u.parts = append(u.parts, e)
		}
	}
	return u, nil
}

// unchanged returns the conditions for what was read. The count guards against new endpoints.
func (u uncounted) unchanged() []client.Op {
	var ops []client.Op
	for _, e := range u.parts {
		ops = append(ops, client.OpCheck(e.Key, e.Revision))
	}
	return append(ops, u.sameEndpoints()...)
}

func (u uncounted) sameEndpoints() []client.Op {
	var ops []client.Op
	for _, e := range u.named {
		ops = append(ops, client.OpCheck(e.Key, e.Revision))
	}
	return ops
}

// naming counts the endpoints of the tree that name a profile.
func (w *Writer) naming(ctx context.Context, id string) (uint64, error) {
	s, err := w.etcd.List(ctx, calico.WorkloadEndpointKey{Legacy: true})
	if err != nil {
		return 0, err
	}
	return tally(s)[id], nil
}

// tally counts the endpoints of a snapshot by the profiles they name.
func tally(s *client.Snapshot) map[string]uint64 {
	n := map[string]uint64{}
	for _, e := range s.Entries {
		if e.Key.Kind() != calico.KindWorkloadEndpoint {
			continue
		}
		ids, err := names(e)
		if err != nil {
			continue // its profiles cannot be read
		}
		for _, id := range without(ids, nil) {
			n[id]++
		}
	}
	return n
}

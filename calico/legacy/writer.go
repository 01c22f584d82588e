package legacy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"heddle/calico"
	"heddle/calico/client"
)

// What a caller may decide by.
var (
	// ErrNoProfile: an endpoint names a missing profile, and none was given.
	ErrNoProfile = errors.New("there is no such profile: give its rules and tags")
	// ErrInUse: endpoints name the profile that was to be deleted.
	ErrInUse = errors.New("endpoints name it")
)

// The faults of a profile's count.
var (
	// ErrNoCount: the count is missing.
	ErrNoCount = errors.New("it has no refcount")
	// ErrNoneCounted: the count is 0 and cannot be lowered.
	ErrNoneCounted = errors.New("its refcount is 0 already")
	// ErrCorruptCount: what is stored is no count. Nothing but a person can tell what it should be.
	ErrCorruptCount = errors.New("its refcount is not an unsigned decimal number")
	// ErrUnreadable: of an endpoint that goes it cannot be read whom it was counted with.
	ErrUnreadable = errors.New("its profile_id cannot be read")
)

// Fault is something wrong that was met, left as it was, and did not hinder.
type Fault struct {
	Key calico.Key // of the count, or of the endpoint
	Err error
}

// Error names the key.
func (f Fault) Error() string { return fmt.Sprintf("%s: %v", text(f.Key), f.Err) }

// Unwrap returns the cause.
func (f Fault) Unwrap() error { return f.Err }

// Writer writes the legacy tree and keeps a count in each profile of the endpoints that name it. An
// endpoint and the counts that change with it are one transaction on unchanged reads, repeated if
// it fails. So a crash leaves no count wrong, and Writers may work concurrently. After
// [client.ErrUnavailable] the change may have been made; making it again counts nothing twice.
type Writer struct {
	etcd etcd
}

// etcd is the part of a client that this package uses.
type etcd interface {
	Get(context.Context, calico.Key) (client.Entry, error)
	List(context.Context, ...calico.Key) (*client.Snapshot, error)
	Commit(context.Context, ...client.Op) (int64, error)
}

// NewWriter makes a Writer that works through c.
func NewWriter(c *client.Client) *Writer { return &Writer{c} }

// PutEndpoint writes an endpoint, new or not. The profile that it names counts it from now on, and
// the one it named before no longer: a profile that no endpoint names then is deleted. Where its
// profile does not exist it is made of profile, which may be nil when it must exist; one that
// exists is not changed. What seed 000 has no member or word for is refused, by name.
//
// Faults are of counts that could not be lowered.
func (w *Writer) PutEndpoint(ctx context.Context, key calico.WorkloadEndpointKey, endpoint *calico.WorkloadEndpoint, profile *Profile) ([]Fault, error) {
	key.Legacy = true
	if _, err := calico.Encode(key, endpoint); err != nil {
		return nil, fmt.Errorf("%s: %w", text(key), err)
	}
	if profile != nil {
		for _, id := range endpoint.ProfileIDs {
			if err := profile.check(id); err != nil {
				return nil, err
			}
		}
	}
	return w.retry(ctx, func(p *plan) error {
		old, err := w.get(ctx, key)
		if err != nil {
			return err
		}
		before, err := names(old)
		if err != nil {
			return fmt.Errorf("%s: %w: what is there must be deleted first", text(key), err)
		}
		p.add(client.OpReplace(key, endpoint, old.Revision))
		for _, id := range without(endpoint.ProfileIDs, before) {
			if err := w.acquire(ctx, p, id, profile); err != nil {
				return err
			}
		}
		return w.releaseAll(ctx, p, without(before, endpoint.ProfileIDs))
	})
}

// DeleteEndpoint deletes an endpoint, lowers the count of its profile, and deletes the profile with
// the last endpoint. Faults are counts that could not be lowered.
func (w *Writer) DeleteEndpoint(ctx context.Context, key calico.WorkloadEndpointKey) ([]Fault, error) {
	key.Legacy = true
	return w.retry(ctx, func(p *plan) error {
		old, err := w.get(ctx, key)
		if err != nil {
			return err
		}
		if old.Revision == 0 {
			return fmt.Errorf("%s: %w", text(key), client.ErrNotFound)
		}
		before, err := names(old)
		if err != nil {
			p.fault(key, err)
		}
		p.add(client.OpDelete(key, old.Revision))
		return w.releaseAll(ctx, p, before)
	})
}

// SetProfile writes the rules and tags of a profile. A new one has a count of 0.
func (w *Writer) SetProfile(ctx context.Context, id string, profile *Profile) error {
	if err := profile.check(id); err != nil {
		return err
	}
	_, err := w.retry(ctx, func(p *plan) error {
		old, err := w.count(ctx, id)
		if err != nil {
			return err
		}
		if old.exists() {
			p.add(client.OpCheck(old.key, old.revision))
		} else {
			found, err := w.uncounted(ctx, id)
			if err != nil {
				return err
			}
			p.add(old.set(uint64(len(found.named))))
			p.add(found.sameEndpoints()...)
		}
		p.add(profile.put(id)...)
		return nil
	})
	return err
}

// DeleteProfile deletes a profile that no endpoint names, or fails with [ErrInUse].
func (w *Writer) DeleteProfile(ctx context.Context, id string) error {
	_, err := w.retry(ctx, func(p *plan) error {
		old, err := w.count(ctx, id)
		if err != nil {
			return err
		}
		// Endpoints of writers that do not count are endpoints all the same.
		named, err := w.naming(ctx, id)
		if err != nil {
			return err
		}
		if n := max(old.n, named); n > 0 {
			return fmt.Errorf("profile %s: %w: %d of them", id, ErrInUse, n)
		}
		if !old.exists() {
			if there, err := w.anyPart(ctx, id); err != nil || !there {
				return errors.Join(err, fmt.Errorf("profile %s: %w", id, client.ErrNotFound))
			}
		}
		p.add(old.delete()...)
		return nil
	})
	return err
}

// plan is one attempt at a change.
type plan struct {
	ops    []client.Op
	faults []Fault
}

func (p *plan) add(ops ...client.Op) { p.ops = append(p.ops, ops...) }

func (p *plan) fault(key calico.Key, err error) { p.faults = append(p.faults, Fault{key, err}) }

// errAgain means that what was read is not of one moment.
var errAgain = errors.New("changed while it was read")

// retry plans and commits until nothing that was read has changed meanwhile.
func (w *Writer) retry(ctx context.Context, f func(*plan) error) ([]Fault, error) {
	for {
		var p plan
		err := f(&p)
		if err != nil && !errors.Is(err, errAgain) {
			return nil, err
		}
		if err == nil {
			_, err = w.etcd.Commit(ctx, p.ops...)
		}
		switch {
		case err == nil:
			return p.faults, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !overtaken(err) && !errors.Is(err, errAgain):
			return nil, err
		}
	}
}

// overtaken reports whether a commit failed because what was read has changed.
func overtaken(err error) bool {
	return errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrExists) || errors.Is(err, client.ErrNotFound)
}

// get reads what is at a key, valid or not; its revision is 0 when nothing is.
func (w *Writer) get(ctx context.Context, key calico.Key) (client.Entry, error) {
	e, err := w.etcd.Get(ctx, key)
	switch {
	case errors.Is(err, client.ErrNotFound):
		return client.Entry{Key: key}, nil
	case e.Err != nil:
		return e, nil
	}
	return e, err
}

// names returns the profiles that count an endpoint, even one that is otherwise invalid.
func names(e client.Entry) ([]string, error) {
	if e.Revision == 0 {
		return nil, nil
	}
	if endpoint, ok := e.Object.(*calico.WorkloadEndpoint); ok {
		return endpoint.ProfileIDs, nil
	}
	var members struct {
		One  string   `json:"profile_id"`
		Many []string `json:"profile_ids"`
	}
	if err := json.Unmarshal(e.Raw, &members); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if members.Many == nil && members.One != "" {
		return []string{members.One}, nil
	}
	return members.Many, nil
}

// without returns the different ones of a that are not in b.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"heddle/calico"
	"heddle/internal/store/etcd"
)

// Profile is a security profile of the v1 tree. It lies in three keys, of which any may be missing;
// the methods of this page read and write them at one revision, as one object.
type Profile struct {
	ID     string
	Rules  *calico.ProfileRules  // nil: missing, which denies all traffic of its endpoints
	Tags   *calico.ProfileTags   // nil: missing
	Labels *calico.ProfileLabels // nil: missing
	// Err names parts that cannot be decoded; those are nil.
	Err error

	parts [3]int64 // the revisions at which they were read
}

func profileKeys(id string) [3]calico.Key {
	return [3]calico.Key{
		calico.ProfileRulesKey{Profile: id}, calico.ProfileTagsKey{Profile: id}, calico.ProfileLabelsKey{Profile: id},
	}
}

// set takes a part in.
func (p *Profile) set(e Entry) {
	if e.Err != nil {
		p.Err = errors.Join(p.Err, invalid(e.Key, e.Path, e.Err))
	}
	switch e.Key.(type) {
	case calico.ProfileRulesKey:
		p.Rules, _ = e.Object.(*calico.ProfileRules)
		p.parts[0] = e.Revision
	case calico.ProfileTagsKey:
		p.Tags, _ = e.Object.(*calico.ProfileTags)
		p.parts[1] = e.Revision
	case calico.ProfileLabelsKey:
		p.Labels, _ = e.Object.(*calico.ProfileLabels)
		p.parts[2] = e.Revision
	}
}

// objects returns the parts, in the order of profileKeys.
func (p Profile) objects() [3]any {
	var all [3]any
	if p.Rules != nil {
		all[0] = p.Rules
	}
	if p.Tags != nil {
		all[1] = p.Tags
	}
	if p.Labels != nil {
		all[2] = p.Labels
	}
	return all
}

// GetProfile reads a profile. It fails with [ErrNotFound] when none of its keys is there, or with
// [ErrInvalid] when one of them cannot be decoded; then the profile has the rest.
func (c *Client) GetProfile(ctx context.Context, id string) (Profile, error) {
	keys := profileKeys(id)
	var paths []string
	for _, k := range keys {
		path, err := k.Path()
		if err != nil {
			return Profile{}, invalid(k, path, err)
		}
		paths = append(paths, path)
	}
	found, _, err := c.fetch(ctx, paths)
	if err != nil {
		return Profile{}, err
	}
	p := Profile{ID: id}
	for i, k := range keys {
		if kv := found[paths[i]]; kv != nil {
			p.set(c.entry(k, etcd.FromProto(kv)))
		}
	}
	if len(found) == 0 {
		return p, &KeyError{Key: keys[0], Path: paths[0], Err: ErrNotFound}
	}
	return p, p.Err
}

// ListProfiles reads all profiles at one revision, by ID.
func (c *Client) ListProfiles(ctx context.Context) ([]Profile, error) {
	s, err := c.List(ctx, calico.ProfileRulesKey{}, calico.ProfileTagsKey{}, calico.ProfileLabelsKey{})
	if err != nil {
		return nil, err
	}
	byID := map[string]*Profile{}
	for _, e := range s.Entries {
		id := profileID(e.Key)
		if byID[id] == nil {
			byID[id] = &Profile{ID: id}
		}
		byID[id].set(e)
	}
	all := make([]Profile, 0, len(byID))
	for p := range maps.Values(byID) {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Profile) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func profileID(key calico.Key) string {
	switch k := key.(type) {
	case calico.ProfileRulesKey:
		return k.Profile
	case calico.ProfileTagsKey:
		return k.Profile
	case calico.ProfileLabelsKey:
		return k.Profile
	}
	return ""
}

// OpCreateProfile puts a profile if none of its keys exists, or fails with [ErrExists].
func OpCreateProfile(p Profile) []Op {
	return p.ops(func(i int, key calico.Key, object any) Op {
		if object == nil {
			return OpCheck(key, 0)
		}
		return OpCreate(key, object)
	})
}

// OpUpdateProfile puts a profile that was read before and whose keys have not changed since, or the
// commit fails with [ErrConflict], [ErrExists] or [ErrNotFound]. A part that is nil is deleted.
func OpUpdateProfile(p Profile) []Op {
	return p.ops(func(i int, key calico.Key, object any) Op {
		switch rev := p.parts[i]; {
		case object != nil:
			return OpReplace(key, object, rev)
		case rev != 0:
			return OpDelete(key, rev)
		default:
			return OpCheck(key, 0)
		}
	})
}

// OpApplyProfile puts a profile, whether it is there or not. A part that is nil is deleted.
func OpApplyProfile(p Profile) []Op {
	return p.ops(func(i int, key calico.Key, object any) Op {
		if object == nil {
			return OpClear(key)
		}
		return OpApply(key, object)
	})
}

// OpClearProfile deletes whatever is there of a profile.
func OpClearProfile(id string) []Op { return OpApplyProfile(Profile{ID: id}) }

func (p Profile) ops(op func(i int, key calico.Key, object any) Op) []Op {
	var all []Op
	objects := p.objects()
	for i, key := range profileKeys(p.ID) {
		all = append(all, op(i, key, objects[i]))
	}
	return all
}

// ApplyProfile commits [OpApplyProfile].
func (c *Client) ApplyProfile(ctx context.Context, p Profile) (int64, error) {
	return c.Commit(ctx, OpApplyProfile(p)...)
}

// DeleteProfile deletes a profile, or fails with [ErrNotFound] when none of its keys is there.
func (c *Client) DeleteProfile(ctx context.Context, id string) error {
	for {
		p, err := c.GetProfile(ctx, id)
		if err != nil && !errors.Is(err, ErrInvalid) {
			return err
		}
		p.Rules, p.Tags, p.Labels = nil, nil, nil
		_, err = c.Commit(ctx, OpUpdateProfile(p)...)
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

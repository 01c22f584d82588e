package control

import (
	"context"
	"reflect"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// ChangeTags replaces the tags of an object by what change makes of them, and returns them.
func (s *Service) ChangeTags(ctx context.Context, c neutron.Caller, r neutron.Resource, id string, change func([]string) ([]string, error)) ([]string, error) {
	return transact(ctx, s, c, func(o *operation) ([]string, error) {
		object, err := o.tagged(r, id)
		if err != nil {
			return nil, err
		}
		if !neutron.CanSee(c, r, object.owner) {
			return nil, r.NotFound(id)
		}
		tags, err := change(object.tags)
		if err != nil || reflect.DeepEqual(tags, object.tags) {
			return tags, err
		}
		if err := neutron.AuthorizeTags(c, r, object.owner); err != nil {
			return nil, err
		}
		return tags, object.put(tags)
	})
}

// tagged is an object whose tags are to be changed.
type tagged struct {
	tags  []string
	owner neutron.Owner
	put   func(tags []string) error // with a new revision
}

// tagged finds an object of any kind. Tags mean nothing to packets, so nothing is derived anew.
func (o *operation) tagged(r neutron.Resource, id string) (tagged, error) {
	set := func(s *neutron.Standard, tags []string) {
		s.Tags = tags
		o.bump(s)
	}
	switch r {
	case neutron.Networks:
		if n, err := schema.Networks.Get(o.tx, id); err == nil {
			return tagged{n.Tags, networkOwner(n), func(tags []string) error {
				n := *n
				set(&n.Standard, tags)
				return schema.Networks.Put(o.tx, &n)
			}}, nil
		}
	case neutron.Subnets:
		if s, err := schema.Subnets.Get(o.tx, id); err == nil {
			n, err := schema.Networks.Need(o.tx, s.NetworkID)
			if err != nil {
				return tagged{}, err
			}
			return tagged{s.Tags, subnetOwner(s, n), func(tags []string) error {
				s := *s
				set(&s.Standard, tags)
				return schema.Subnets.Put(o.tx, &s)
			}}, nil
		}
	case neutron.Ports:
		if p, err := schema.Ports.Get(o.tx, id); err == nil {
			n, err := schema.Networks.Need(o.tx, p.NetworkID)
			if err != nil {
				return tagged{}, err
			}
			return tagged{p.Tags, portOwner(p, n), func(tags []string) error {
				p := *p
				set(&p.Standard, tags)
				return schema.Ports.Put(o.tx, &p)
			}}, nil
		}
	case neutron.SecurityGroups:
		if g, err := schema.SecurityGroups.Get(o.tx, id); err == nil {
			return tagged{g.Tags, groupOwner(g), func(tags []string) error {
				g := *g
				set(&g.Standard, tags)
				return schema.SecurityGroups.Put(o.tx, &g)
			}}, nil
		}
	}
	return tagged{}, r.NotFound(id)
}

package control

import (
	"context"
	"reflect"

	"heddle/internal/neutron"
)

// ChangeTags replaces the tags of an object by what change makes of them, and returns them. Tags mean nothing to
// packets, so nothing is derived anew.
func (s *Service) ChangeTags(ctx context.Context, c neutron.Caller, r neutron.Resource, id string, change func([]string) ([]string, error)) ([]string, error) {
	return transact(ctx, s, c, func(o *operation) ([]string, error) {
		switch r {
		case neutron.Networks:
			return s.networks.changeTags(o, id, change)
		case neutron.Subnets:
			return s.subnets.changeTags(o, id, change)
		case neutron.Ports:
			return s.ports.changeTags(o, id, change)
		case neutron.SecurityGroups:
			return s.groups.changeTags(o, id, change)
		}
		return nil, r.NotFound(id)
	})
}

func (res *resource[T, V]) changeTags(o *operation, id string, change func([]string) ([]string, error)) ([]string, error) {
	old, owner, err := res.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	had := res.standard(old).Tags
	tags, err := change(had)
	if err != nil || reflect.DeepEqual(tags, had) {
		return tags, err
	}
	if err := neutron.CheckList("tags", len(tags)); err != nil {
		return nil, err
	}
	if err := neutron.AuthorizeTags(o.caller, res.name, owner); err != nil {
		return nil, err
	}
	object := *old
	standard := res.standard(&object)
	standard.Tags = tags
	o.bump(standard)
	return tags, res.table.Put(o.tx, &object)
}

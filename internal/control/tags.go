package control

import (
	"context"
	"reflect"

	"heddle/internal/neutron"
)

// changeTags replaces the tags of an object by what change makes of them, and returns them. Tags
// mean nothing to packets, so nothing is derived from them.
func (res *resource[T, V]) changeTags(ctx context.Context, c neutron.Caller, id string, change func([]string) ([]string, error)) ([]string, error) {
	return transact(ctx, res.service, c, func(o *operation) ([]string, error) {
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
	})
}

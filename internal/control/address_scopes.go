package control

import (
	"context"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

func (o *operation) createAddressScope(_ context.Context, v neutron.Values) (*neutron.AddressScope, error) {
	a := &neutron.AddressScope{Standard: o.standard(v, 0), IPVersion: number(v, "ip_version")}
	if err := schema.AddressScopes.Put(o.tx, a); err != nil {
		return nil, err
	}
	return a, o.share(neutron.AddressScopes, a.ID, v)
}

// update changes an address scope. One that is shared stays so.
func (s addressScopes) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.AddressScopeView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(o *operation, _, _ *neutron.AddressScope) error {
		if v.Has("shared") && !v.Flag("shared") && sharedWith(o.tx, c.ProjectID, neutron.AddressScopes, id) {
			return neutron.Errorf(neutron.Invalid, "AddressScopeUpdateError",
				"Unable to update address scope %s : Shared address scope can't be unshared.", id)
		}
		return o.share(neutron.AddressScopes, id, v)
	}, put(schema.AddressScopes))
}

// delete deletes an address scope without pools.
func (s addressScopes) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.AddressScope) error {
		return inUse(schema.AddressScopes.Delete(o.tx, id), "AddressScopeInUse",
			"Unable to complete operation on address scope %s. There are one or more subnet pools in use on the address scope.", id)
	})
}

package control

import (
	"context"
	"errors"
	"reflect"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
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
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.AddressScopeView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		a := *old
		applyStandard(&a.Standard, v)
		if v.Has("shared") && !v.Flag("shared") && sharedWith(o.tx, c.ProjectID, neutron.AddressScopes, id) {
			return nil, neutron.Errorf(neutron.Invalid, "AddressScopeUpdateError",
				"Unable to update address scope %s : Shared address scope can't be unshared.", id)
		}
		if err := o.share(neutron.AddressScopes, id, v); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(&a, old) {
			o.bump(&a.Standard)
			if err := schema.AddressScopes.Put(o.tx, &a); err != nil {
				return nil, err
			}
		}
		return s.answerTo(o.tx, c, &a, neutron.Query{}), nil
	})
}

// delete deletes an address scope without pools.
func (s addressScopes) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		err := schema.AddressScopes.Delete(o.tx, id)
		var used *records.InUseError
		if errors.As(err, &used) {
			return conflict("AddressScopeInUse",
				"Unable to complete operation on address scope %s. There are one or more subnet pools in use on the address scope.", id)
		}
		return err
	})
}

package control

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// addressGroups are the operations on address groups. However many members a request changes, it is
// one transaction: they lie in a fixed number of blocks. Where there are routed networks, the
// profiles of security groups that name the group follow as pending work.
type addressGroups struct {
	*resource[neutron.AddressGroup, neutron.AddressGroupView]
}

func newAddressGroups(s *Service) *resource[neutron.AddressGroup, neutron.AddressGroupView] {
	return shareable(&resource[neutron.AddressGroup, neutron.AddressGroupView]{
		service: s, name: neutron.AddressGroups, make: (*operation).createAddressGroup, refusal: (*operation).hideSharedGroup,
		finder:     ownAndGranted(schema.AddressGroups, neutron.AddressGroups),
		standard:   func(g *neutron.AddressGroup) *neutron.Standard { return &g.Standard },
		attributes: func(o *neutron.AddressGroupView) *neutron.Standard { return &o.Standard },
		answer: func(r records.Reader, g *neutron.AddressGroup, q neutron.Query) *neutron.AddressGroupView {
			if q.WithoutComputed {
				return &neutron.AddressGroupView{AddressGroup: g}
			}
			return addressGroupView(r, g)
		},
	}, func(o *neutron.AddressGroupView) *bool { return &o.Shared })
}

// AddressGroups returns the operations on address groups, beside [Service.AddAddresses] and
// [Service.RemoveAddresses].
func (s *Service) AddressGroups() Operations[*neutron.AddressGroupView] {
	o := s.addressGroups.untagged()
	o.Update, o.Delete = s.addressGroups.update, s.addressGroups.delete
	return o
}

func addressGroupView(r records.Reader, g *neutron.AddressGroup) *neutron.AddressGroupView {
	return &neutron.AddressGroupView{AddressGroup: g, Addresses: addressesIn(r, g)}
}

// addressesIn returns the members of a group in order.
func addressesIn(r records.Reader, g *neutron.AddressGroup) []netip.Prefix {
	addresses := make([]netip.Prefix, 0, g.Size)
	for b := range schema.AddressBlocks.By(r, "group", g.ID) {
		addresses = append(addresses, b.Addresses...)
	}
	slices.SortFunc(addresses, neutron.ComparePrefixes)
	return addresses
}

func (o *operation) createAddressGroup(_ context.Context, v neutron.Values) (*neutron.AddressGroup, error) {
	g := &neutron.AddressGroup{Standard: o.standard(v, 0)}
	if err := o.putAddressGroup(g); err != nil {
		return nil, err
	}
	addresses := list[netip.Prefix](v, "addresses")
	if len(addresses) == 0 {
		return g, nil
	}
	return o.changeAddresses(g, addresses, true)
}

// hideSharedGroup returns the error about a group that the caller may not change: as in the
// reference, one that is only shared with his project is not found.
func (o *operation) hideSharedGroup(id string, err error) error {
	var refused *neutron.Error
	g, ok := schema.AddressGroups.Peek(o.tx, id)
	if errors.As(err, &refused) && refused.Kind == neutron.Forbidden && !(ok && o.caller.Owns(g.ProjectID)) {
		return neutron.AddressGroups.NotFound(id)
	}
	return err
}

// update changes the name and the description of a group.
func (s addressGroups) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.AddressGroupView, error) {
	return s.modify(ctx, c, id, v, ifMatch, nil, (*operation).putAddressGroup)
}

// delete deletes a group that no rule names, with its members.
func (s addressGroups) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.AddressGroup) error {
		if len(schema.SecurityGroups.Referrers(o.tx, "remote_address_group", id)) > 0 || len(schema.DefaultRules.Referrers(o.tx, "remote_address_group", id)) > 0 {
			return conflict("AddressGroupInUse", "Address group %s is in use on one or more security group rules.", id)
		}
		for b := range schema.AddressBlocks.By(o.tx, "group", id) {
			if err := o.dropBundle(kindAddressBlock, schema.AddressBlockID(id, b.Number)); err != nil {
				return err
			}
		}
		return errors.Join(o.dropBundle(kindAddressGroup, id), schema.AddressGroups.Delete(o.tx, id))
	})
}

// AddAddresses adds addresses to a group, all or none; it has none of them yet.
func (s *Service) AddAddresses(ctx context.Context, c neutron.Caller, id string, addresses []netip.Prefix) (*neutron.AddressGroupView, error) {
	return s.addressGroups.changeMembers(ctx, c, id, addresses, true)
}

// RemoveAddresses removes addresses from a group, all or none; it has all of them.
func (s *Service) RemoveAddresses(ctx context.Context, c neutron.Caller, id string, addresses []netip.Prefix) (*neutron.AddressGroupView, error) {
	return s.addressGroups.changeMembers(ctx, c, id, addresses, false)
}

func (s addressGroups) changeMembers(ctx context.Context, c neutron.Caller, id string, addresses []netip.Prefix, add bool) (*neutron.AddressGroupView, error) {
	pending := false
	v, err := transact(ctx, s.service, c, func(o *operation) (*neutron.AddressGroupView, error) {
		g, err := s.toChange(o, id, neutron.Update, nil, nil)
		if err != nil {
			return nil, err
		}
		if len(addresses) == 0 {
			return s.answerTo(o.tx, c, g, neutron.Query{}), nil
		}
		changed, err := o.changeAddresses(g, addresses, add)
		if err != nil {
			return nil, err
		}
		if pending, err = o.calico().addressesChanged(id); err != nil {
			return nil, err
		}
		return s.answerTo(o.tx, c, changed, neutron.Query{}), nil
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeriveAddressGroup, id)
	}
	return v, err
}

// changeAddresses adds members to a group or removes some, in the blocks concerned alone.
func (o *operation) changeAddresses(old *neutron.AddressGroup, addresses []netip.Prefix, add bool) (*neutron.AddressGroup, error) {
	byBlock := map[int][]netip.Prefix{}
	for _, p := range addresses {
		n := neutron.BlockOf(p)
		byBlock[n] = append(byBlock[n], p)
	}
	var wrong []netip.Prefix // there already, or not there
	blocks := make([]*neutron.AddressBlock, 0, len(byBlock))
	for _, n := range slices.Sorted(maps.Keys(byBlock)) {
		b := &neutron.AddressBlock{GroupID: old.ID, Number: n}
		if stored, err := schema.AddressBlocks.Get(o.tx, schema.AddressBlockID(old.ID, n)); err == nil {
			b.Addresses = slices.Clone(stored.Addresses)
		}
		wrong = append(wrong, changeBlock(b, byBlock[n], add)...)
		blocks = append(blocks, b)
	}
	slices.SortFunc(wrong, neutron.ComparePrefixes)
	switch {
	case len(wrong) > 0 && add:
		return nil, neutron.AddressesExist(old.ID, wrong)
	case len(wrong) > 0:
		return nil, neutron.AddressesNotFound(old.ID, wrong)
	}
	g := *old
	if add {
		g.Size += len(addresses)
	} else {
		g.Size -= len(addresses)
	}
	if g.Size > neutron.MaxAddresses {
		return nil, invalid("address group %s would have %d addresses; it may have %d", g.ID, g.Size, neutron.MaxAddresses)
	}
	o.bump(&g.Standard)
	if err := schema.AddressGroups.Put(o.tx, &g); err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if err := o.putAddressBlock(b); err != nil {
			return nil, err
		}
	}
	return &g, nil
}

// changeBlock adds members to a block or removes some, and returns those that it has already, or
// does not have.
func changeBlock(b *neutron.AddressBlock, addresses []netip.Prefix, add bool) (wrong []netip.Prefix) {
	for _, p := range addresses {
		i, found := slices.BinarySearchFunc(b.Addresses, p, neutron.ComparePrefixes)
		switch {
		case found == add:
			wrong = append(wrong, p)
		case add:
			b.Addresses = slices.Insert(b.Addresses, i, p)
		default:
			b.Addresses = slices.Delete(b.Addresses, i, i+1)
		}
	}
	return wrong
}

func (o *operation) putAddressGroup(g *neutron.AddressGroup) error {
	return errors.Join(schema.AddressGroups.Put(o.tx, g), o.putBundle(kindAddressGroup, g.ID, translate.AddressGroup(g)))
}

// putAddressBlock stores a block with what is derived from it, or deletes it when it is empty.
func (o *operation) putAddressBlock(b *neutron.AddressBlock) error {
	id := schema.AddressBlockID(b.GroupID, b.Number)
	if len(b.Addresses) == 0 {
		return errors.Join(o.dropBundle(kindAddressBlock, id), schema.AddressBlocks.Delete(o.tx, id))
	}
	return errors.Join(schema.AddressBlocks.Put(o.tx, b), o.putBundle(kindAddressBlock, id, translate.AddressBlock(b)))
}

// checkRemoteAddresses refuses a rule that names an address group which its caller does not see.
func (o *operation) checkRemoteAddresses(id string) error {
	if id == "" {
		return nil
	}
	_, _, err := o.addressGroups.inTransaction(o, id)
	return err
}

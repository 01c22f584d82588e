package offline

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
)

// updateAddressGroup gives an address group other members: the list is all that it has then.
func (s *scenario) updateAddressGroup(n node) error {
	o, err := n.object("address_group", "addresses")
	if err != nil {
		return err
	}
	id, err := s.addresses.find(o.get("address_group"))
	if err != nil {
		return err
	}
	if o.get("addresses").null() {
		return fileErrorf(o.under("addresses"), "is missing: list the members that the group has from now on, [] for none")
	}
	wanted, err := neutron.ParseAddresses(map[string]any{"addresses": o.get("addresses").value})
	if err != nil {
		return s.at(o.get("addresses"), err)
	}
	w := s.world
	g, err := w.service.AddressGroups().Show(w.ctx, administrator(), id)
	if err != nil {
		return err
	}
	if gone := without(g.Addresses, wanted); len(gone) > 0 {
		if _, err := w.service.RemoveAddresses(w.ctx, administrator(), id, gone); err != nil {
			return s.at(n, err)
		}
	}
	if come := without(wanted, g.Addresses); len(come) > 0 {
		_, err = w.service.AddAddresses(w.ctx, administrator(), id, come)
	}
	return s.at(n, err)
}

// without returns the prefixes of a list that another one does not have.
func without(all, except []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return slices.Contains(except, p) })
}

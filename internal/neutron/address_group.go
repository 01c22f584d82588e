package neutron

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

const (
	// AddressBlocks is the number of blocks over which the members of an address group are spread.
	// The stored form rests on it.
	AddressBlocks = 256
	// MaxAddresses bounds the members of an address group.
	MaxAddresses = 100_000
)

// BlockOf returns the number of the block that holds a masked prefix. The stored form rests on it.
func BlockOf(p netip.Prefix) int {
	h := fnv.New32a()
	b := p.Addr().As16()
	_, _ = h.Write(b[:]) // never fails
	_, _ = h.Write([]byte{byte(p.Bits())})
	sum := h.Sum32()
	return int(sum^sum>>8^sum>>16^sum>>24) % AddressBlocks
}

// ComparePrefixes orders prefixes by family, address and length.
func ComparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// ParseAddresses reads the body of a request to add addresses to a group or to remove some. Unlike
// create, such a request may have addresses without a prefix length, and some twice.
func ParseAddresses(body map[string]any) ([]netip.Prefix, error) {
	given, ok := body["addresses"]
	if !ok {
		return nil, badRequest("Failed to parse request. Required attribute 'addresses' not specified")
	}
	list, ok := given.([]any)
	if !ok {
		return nil, badRequest("Invalid input for addresses. Reason: '%s' is not a list.", pyText(given))
	}
	prefixes := make([]netip.Prefix, 0, len(list))
	for _, x := range list {
		s, _ := x.(string)
		p, ok := parseCIDR(s)
		if !ok {
			return nil, Errorf(Invalid, "AddrFormatError", "invalid IPNetwork %s", pyText(x))
		}
		if why := mappedReason(p); why != nil {
			return nil, badRequest("Invalid input for addresses. Reason: %s.", why)
		}
		prefixes = append(prefixes, p.Masked())
	}
	return distinctPrefixes(prefixes), nil
}

func distinctPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, ComparePrefixes)
	return slices.Compact(prefixes)
}

// AddressesExist is Neutron's refusal to add addresses that a group has.
func AddressesExist(group string, addresses []netip.Prefix) *Error {
	return Errorf(Invalid, "AddressesAlreadyExist", "Addresses %s already exist in the address group %s.", pyPrefixes(addresses), group)
}

// AddressesNotFound is Neutron's refusal to remove addresses that a group does not have.
func AddressesNotFound(group string, addresses []netip.Prefix) *Error {
	return Errorf(NotFound, "AddressesNotFound", "Addresses %s not found in the address group %s.", pyPrefixes(addresses), group)
}

func pyPrefixes(prefixes []netip.Prefix) string {
	return "[" + join(prefixes, func(p netip.Prefix) string { return pyQuote(p.String()) }) + "]"
}

// prefixList takes a list of prefixes in CIDR form, no text twice, and clears their host bits.
func prefixList(v any) (any, error) {
	list, err := uniqueList(v)
	if err != nil {
		return nil, err
	}
	prefixes := make([]netip.Prefix, 0, len(list))
	for _, x := range list {
		p, err := strictPrefix(x)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p.Masked())
	}
	return distinctPrefixes(prefixes), nil
}

// strictPrefix takes an address with a prefix length. Host bits stay.
func strictPrefix(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	p, ok := parseCIDR(s)
	switch {
	case !ok:
		return p, reasonf("'%s' is not a valid IP subnet", pyText(v))
	case !strings.Contains(s, "/") || p.Addr().Is4() && p.String() != s:
		return p, reasonf("'%s' isn't a recognized IP subnet cidr, '%s' is recommended", s, p.Masked())
	}
	return p, mappedReason(p)
}

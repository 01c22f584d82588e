package neutron

import (
	"net/netip"
	"strconv"
	"strings"
)

// PrefixDelegationPool is the subnetpool_id by which a subnet asks for a prefix by DHCPv6 prefix
// delegation in the reference.
const PrefixDelegationPool = "prefix_delegation"

func subnetPoolTable() *Table[*SubnetPoolView] {
	std := func(o *SubnetPoolView) *Standard { return &o.Standard }
	name := nameColumn(std)
	name.Attribute.Default, name.Attribute.parse = required{}, notBlank(maxName)
	length := func(name, doc string, get func(o *SubnetPoolView) int) column[*SubnetPoolView] {
		return row(Attribute{Name: name, Create: true, Update: true, Default: unset{}, Filter: true, Sort: true,
			Type: "integer", Doc: doc + "; answered as text", parse: nonNegative}, numberAsTextValue(get))
	}
	cols := append([]column[*SubnetPoolView]{idColumn(std), name}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "prefixes", Create: true, Update: true, Default: required{}, Type: "list of cidrs",
			Doc: "at most 100; adjacent ones are joined; an update only adds to them", parse: fewer(poolPrefixes)},
			jsonValue(func(b []byte, o *SubnetPoolView) []byte { return appendList(b, o.Prefixes, appendPrefix) })),
		row(Attribute{Name: "default_quota", Create: true, Update: true, Default: unset{}, Filter: true, Sort: true, Type: "integer",
			Doc: "addresses, or for IPv6 /64 ranges, that a project may have of it; 0 = no limit", parse: nonNegative},
			numberOrNullValue(func(o *SubnetPoolView) *int { return o.DefaultQuota })),
		row(Attribute{Name: "ip_version", Filter: true, Sort: true, Type: "integer", Doc: "that of its prefixes"},
			numberValue(func(o *SubnetPoolView) int64 { return int64(o.IPVersion) })),
		length("default_prefixlen", "of subnets that name none; min_prefixlen unless given", func(o *SubnetPoolView) int { return o.DefaultPrefixLen }),
		length("min_prefixlen", "of the largest subnet; 8, or 64 for IPv6, unless given", func(o *SubnetPoolView) int { return o.MinPrefixLen }),
		length("max_prefixlen", "of the smallest subnet; 32, or 128 for IPv6, unless given", func(o *SubnetPoolView) int { return o.MaxPrefixLen }),
		row(Attribute{Name: "is_default", Create: true, Update: true, Default: false, Filter: true, Sort: true, Policed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean", Doc: "of one pool for each IP version at most", parse: flag},
			flagValue(func(o *SubnetPoolView) bool { return o.Default })),
		row(Attribute{Name: "shared", Create: true, Default: false, Filter: true, Sort: true, Policed: true, Computed: true,
			CreateBy: AdminOnly, Type: "boolean", Doc: "every project may take ranges of it", parse: flag},
			flagValue(func(o *SubnetPoolView) bool { return o.Shared })),
		row(Attribute{Name: "address_scope_id", Create: true, Update: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "whose pools share no address", parse: orNull(uuid)},
			textOrNullValue(func(o *SubnetPoolView) string { return o.AddressScopeID })),
		descriptionColumn(std),
	)
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(SubnetPools, cols)
}

func addressScopeTable() *Table[*AddressScopeView] {
	std := func(o *AddressScopeView) *Standard { return &o.Standard }
	cols := append([]column[*AddressScopeView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(AddressScopes, append(cols,
		row(Attribute{Name: "shared", Create: true, Update: true, Default: false, Filter: true, Sort: true, Policed: true, Computed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean", Doc: "every project may put pools into it; true stays", parse: flag},
			flagValue(func(o *AddressScopeView) bool { return o.Shared })),
		row(Attribute{Name: "ip_version", Create: true, Default: required{}, Filter: true, Sort: true, Type: "integer",
			Doc: "4 or 6", parse: ipVersion},
			numberValue(func(o *AddressScopeView) int64 { return int64(o.IPVersion) })),
	))
}

// numberAsTextValue writes numbers as texts, by which they are sorted as numbers.
func numberAsTextValue[T any](get func(o T) int) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendString(b, strconv.Itoa(get(o))) },
		key:    func(o T) Key { return Key{Kind: NumberKey, Number: int64(get(o))} },
	}
}

// notBlank takes a text of at most max characters that are not all spaces.
func notBlank(max int) parser {
	return func(v any) (any, error) {
		s, err := text(max)(v)
		if err == nil && strings.TrimSpace(s.(string)) == "" {
			return nil, reasonf("'%s' Blank strings are not permitted", s)
		}
		return s, err
	}
}

// subnetPoolID takes the UUID of a pool, or the word for prefix delegation.
func subnetPoolID(v any) (any, error) {
	if v == nil || v == PrefixDelegationPool {
		return v, nil
	}
	return uuid(v)
}

// poolPrefixes takes a list of different networks in CIDR form, and clears their host bits.
func poolPrefixes(v any) (any, error) {
	list, err := uniqueList(v)
	if err != nil {
		return nil, err
	}
	out := make([]netip.Prefix, len(list))
	for i, x := range list {
		s, _ := x.(string)
		p, ok := parseCIDR(s)
		switch {
		case !ok:
			return nil, reasonf("'%s' is not a valid IP subnet", pyText(x))
		case !strings.Contains(s, "/"), p.Addr().Is4() && p.String() != s:
			return nil, reasonf("'%s' isn't a recognized IP subnet cidr, '%s' is recommended", s, p.Masked())
		}
		if err := mappedReason(p); err != nil {
			return nil, err
		}
		out[i] = p.Masked()
	}
	return out, nil
}

// ParsePrefixes reads the body of add_prefixes and remove_prefixes of a pool.
func ParsePrefixes(body map[string]any) ([]netip.Prefix, error) {
	list, ok := body["prefixes"].([]any)
	if !ok || len(list) == 0 {
		return nil, badRequest("Request body contains invalid data")
	}
	prefixes, err := (&Attribute{Name: "prefixes", parse: fewer(poolPrefixes)}).read(list)
	if err != nil {
		return nil, err
	}
	return prefixes.([]netip.Prefix), nil
}

// ParseOnboarding reads the body of onboard_network_subnets of a pool: the id of a network.
func ParseOnboarding(body map[string]any) (networkID string, err error) {
	id, _ := body["network_id"].(string)
	if id == "" {
		return "", Errorf(Invalid, "InvalidInput", "Invalid input for operation: network_id must be specified..")
	}
	return id, nil
}

package nft

import (
	"net/netip"
	"slices"

	"heddle/calico"
)

// metadataAddress returns the address of OpenStack's metadata service (spec §7.3).
func metadataAddress() netip.AddrPort { return netip.MustParseAddrPort("169.254.169.254:80") }

// nat returns the chains of address translation (spec §7.3, §9, §10), if there is something to
// translate. Only a connection's first packet gets there.
func (b *builder) nat() []chain {
	to := b.floatingTo()
	in := to
	if b.settings.OpenStack && b.settings.Metadata.IsValid() && b.settings.Metadata.Addr().Is4() {
		in = slices.Concat(b.metadata(), to)
	}
	var all []chain
	if len(in) > 0 {
		all = append(all, base(inet, "prerouting-nat", "nat", "prerouting", priorityDstNAT, in...))
	}
	if len(to) > 0 {
		all = append(all, base(inet, "output-nat", "nat", "output", priorityDstNAT, to...))
	}
	if out := slices.Concat(b.hairpins(), b.masquerades(), b.tunnelAddress()); len(out) > 0 {
		all = append(all, base(inet, "postrouting-nat", "nat", "postrouting", prioritySrcNAT, out...))
	}
	return all
}

func (b *builder) metadata() []rule {
	var rules []rule
	asked := metadataAddress()
	for _, p := range b.settings.WorkloadPrefixes {
		rules = append(rules, do(named(inName(), p+"*"), implied{version(4)}, implied{protocol(calico.ProtocolTCP, false)},
			within{f: address(4, destination), prefix: netip.PrefixFrom(asked.Addr(), 32)},
			portIs("tcp", destination, asked.Port()), redirect{b.settings.Metadata}))
	}
	return rules
}

// floatingVersions returns the versions of which there are floating addresses.
func (f features) floatingVersions() []int {
	var all []int
	if f.floating4 {
		all = append(all, 4)
	}
	if f.floating6 {
		all = append(all, 6)
	}
	return all
}

func (b *builder) floatingTo() []rule {
	var rules []rule
	for _, v := range b.features.floatingVersions() {
		rules = append(rules, do(implied{version(v)},
			translate{version: v, end: destination, fields: []field{address(v, destination)}, set: floatingMap(v).name}))
	}
	return rules
}

// hairpins changes the source of packets from a workload to its own floating address.
func (b *builder) hairpins() []rule {
	var rules []rule
	for _, v := range b.features.floatingVersions() {
		rules = append(rules, do(implied{version(v)},
			translate{version: v, end: source, fields: []field{address(v, source), address(v, destination)}, set: hairpinMap(v).name}))
	}
	return rules
}

// masquerades gives packets that leave all pools the address of this host.
func (b *builder) masquerades() []rule {
	var rules []rule
	for _, v := range []int{4, 6} {
		var from, all []netip.Prefix
		for _, p := range b.around.Pools {
			if p.CIDR.Addr().Is4() != (v == 4) {
				continue
			}
			all = append(all, p.CIDR)
			if p.Masquerade {
				from = append(from, p.CIDR)
			}
		}
		if len(from) > 0 {
			rules = append(rules, do(implied{version(v)}, inPrefixes(address(v, source), false, from),
				inPrefixes(address(v, destination), true, all), masquerade))
		}
	}
	return rules
}

// tunnelAddress gives packets of this host to its IPIP device that device's address.
func (b *builder) tunnelAddress() []rule {
	t := b.around.IPIP
	if t == nil || !t.Address.IsValid() {
		return nil
	}
	return []rule{do(named(outName(), t.Device), implied{version(4)},
		within{f: address(4, source), not: true, prefix: netip.PrefixFrom(t.Address, 32)}, local(source), masquerade)}
}

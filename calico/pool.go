package calico

import "net/netip"

var poolTable = table[Pool]{
	columns: []column[Pool]{
		member("cidr", func(p *Pool) *netip.Prefix { return &p.CIDR }, asPrefix),
		member("ipip", func(p *Pool) *string { return &p.IPIP }, asText),
		member("ipip_mode", func(p *Pool) *string { return &p.IPIPMode }, asWord(IPIPAlways, IPIPCrossSubnet)),
		member("masquerade", func(p *Pool) *bool { return &p.Masquerade }, asBoolean),
		member("ipam", func(p *Pool) *bool { return &p.IPAM }, asBoolean),
		member("disabled", func(p *Pool) *bool { return &p.Disabled }, asBoolean),
	},
	start:   Pool{IPAM: true},
	unknown: func(p *Pool) *Unknown { return &p.Unknown },
}

// The values of Pool.IPIPMode.
const (
	IPIPAlways      = "always"
	IPIPCrossSubnet = "cross-subnet"
)

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *Pool) Validate() error { return p.check(options{}).of(string(KindIPPool)) }

func (p *Pool) check(options) *Error {
	if err := checkPrefix("cidr", p.CIDR); err != nil {
		return err
	}
	switch bits := p.CIDR.Addr().BitLen() - p.CIDR.Bits(); {
	case overlapsLinkLocal(p.CIDR):
		return refuse("cidr", p.CIDR, "want no link-local addresses")
	case p.IPIP != "" && p.CIDR.Addr().Is6():
		return refuse("ipip", p.IPIP, "want none in an IPv6 pool")
	case p.IPIP != "" && !isInterface(p.IPIP):
		return refuse("ipip", p.IPIP, wantInterface)
	case p.IPIPMode != "" && p.IPIPMode != IPIPAlways && p.IPIPMode != IPIPCrossSubnet:
		return refuse("ipip_mode", p.IPIPMode, "want always, cross-subnet or none")
	case p.IPAM && !p.Disabled && bits < blockBits:
		return refuse("cidr", p.CIDR, "want at least one block of %d addresses, /%d or shorter, or ipam false", BlockSize, p.CIDR.Addr().BitLen()-blockBits)
	}
	return poolTable.checkUnknown(p)
}

func overlapsLinkLocal(p netip.Prefix) bool {
	return p.Overlaps(netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254}), 16)) ||
		p.Overlaps(netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 10))
}

func (p *Pool) write(w *writer) { poolTable.write(w, p) }

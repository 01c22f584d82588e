package calico

import "net/netip"

func readPool(r *reader) *Pool {
	p := &Pool{IPAM: true}
	r.members(p, &p.Unknown)
	return p
}

func (p *Pool) member(r *reader, name string) bool {
	switch name {
	case "cidr":
		p.CIDR = r.maskedPrefix()
	case "ipip":
		p.IPIP = r.kept()
	case "ipip_mode":
		p.IPIPMode = oneOf(r.optional(), IPIPAlways, IPIPCrossSubnet)
	case "masquerade":
		p.Masquerade = r.boolean()
	case "ipam":
		p.IPAM = r.null() || r.boolean()
	case "disabled":
		p.Disabled = r.boolean()
	default:
		return false
	}
	return true
}

// The values of Pool.IPIPMode.
const (
	IPIPAlways      = "always"
	IPIPCrossSubnet = "cross-subnet"
)

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (p *Pool) Validate() error { return p.check().of(string(KindIPPool)) }

func (p *Pool) check() *Error {
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
	return checkUnknown[Pool](p.Unknown)
}

func overlapsLinkLocal(p netip.Prefix) bool {
	return p.Overlaps(netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254}), 16)) ||
		p.Overlaps(netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 10))
}

func (p *Pool) write(w *writer) {
	w.open('{')
	w.prefixMember("cidr", p.CIDR)
	w.optional("ipip", p.IPIP)
	w.optional("ipip_mode", p.IPIPMode)
	w.boolMember("masquerade", p.Masquerade)
	w.boolMember("ipam", p.IPAM)
	w.boolMember("disabled", p.Disabled)
	w.unknown(p.Unknown)
	w.end('}')
}

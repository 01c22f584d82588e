package translate

import (
	"net/netip"
	"strings"

	"heddle/calico"
	"heddle/internal/neutron"
)

// ProfilePrefix begins the ids of security groups' profiles (spec 18).
const ProfilePrefix = "openstack-sg-"

// ProfileID returns the profile of a security group.
func ProfileID(group string) string { return ProfilePrefix + group }

// maxProfileAddresses bounds the addresses of address groups in one profile, which is one value in
// the store: an address group of the largest size fits.
const maxProfileAddresses = neutron.MaxAddresses

// Profile translates a group with its rules, given the addresses of the address groups that they
// name. Members carry its id as a tag, which rules of other groups name. Rules that Calico's model
// cannot express are left out, and so allow nothing: those on ports of protocols other than TCP and
// UDP, on port 0 alone, on ICMP type 255, and on address groups that would exceed
// maxProfileAddresses with those of earlier rules.
func Profile(g *neutron.SecurityGroup, addresses map[string][]netip.Prefix) (*calico.ProfileRules, *calico.ProfileTags) {
	rules := &calico.ProfileRules{}
	room := maxProfileAddresses
	for i := range g.Rules {
		r := &g.Rules[i]
		members := ofEthertype(addresses[r.RemoteAddressGroupID], r.Ethertype)
		if len(members) > room {
			continue
		}
		rule, ok := profileRule(r, members)
		if !ok {
			continue
		}
		room -= len(members)
		if r.Direction == "ingress" {
			rules.InboundRules = append(rules.InboundRules, rule)
		} else {
			rules.OutboundRules = append(rules.OutboundRules, rule)
		}
	}
	return rules, &calico.ProfileTags{g.ID}
}

// ofEthertype returns the prefixes of one IP version.
func ofEthertype(prefixes []netip.Prefix, ethertype string) (own []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is6() == (ethertype == "IPv6") {
			own = append(own, p)
		}
	}
	return own
}

// profileRule translates one rule; members are those of its address group, of its IP version.
func profileRule(r *neutron.SecurityGroupRule, members []netip.Prefix) (calico.Rule, bool) {
	rule := calico.Rule{Action: calico.Allow, IPVersion: 4}
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if r.Ethertype == "IPv6" {
		rule.IPVersion, everywhere = 6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	nets, tag := &rule.DstNets, &rule.DstTag
	if r.Direction == "ingress" {
		nets, tag = &rule.SrcNets, &rule.SrcTag
	}
	switch {
	case r.RemoteGroupID != "":
		*tag = r.RemoteGroupID
	case r.RemoteAddressGroupID != "":
		if len(members) == 0 {
			return rule, false // without a prefix it would match every address
		}
		*nets = members
	case r.RemoteIPPrefix != "":
		p, ok := prefixOf(r.RemoteIPPrefix)
		if !ok {
			return rule, false
		}
		*nets = []netip.Prefix{p}
	default:
		*nets = []netip.Prefix{everywhere}
	}
	if !profileProtocol(&rule, r) {
		return rule, false
	}
	// One rule that the model refuses would take the whole profile out of force.
	_, err := calico.EncodeAs(calico.KindProfileRules, &calico.ProfileRules{InboundRules: []calico.Rule{rule}})
	return rule, err == nil
}

// profileProtocol sets protocol and ports, or ICMP type and code.
func profileProtocol(rule *calico.Rule, r *neutron.SecurityGroupRule) bool {
	if r.Protocol == "-1" {
		return true
	}
	n, ok := protocolNumber(strings.ToLower(r.Protocol))
	if !ok {
		return false
	}
	if n == protoICMP && rule.IPVersion == 6 {
		n = protoICMPv6
	}
	rule.Protocol = calico.Protocol(n) // 0 is any in both
	low, high := given(r.PortRangeMin), given(r.PortRangeMax)
	switch {
	case low == nil && high == nil:
		return wholeRange(rule, r)
	case n == protoICMP || n == protoICMPv6:
		return icmpOf(rule, low, high)
	}
	ports := calico.Ports{Low: 1, High: 65535}
	if low != nil && *low > 1 {
		ports.Low = uint16(*low)
	}
	if high != nil {
		ports.High = uint16(*high)
	}
	rule.DstPorts = []calico.Ports{ports}
	return ports.Low <= ports.High
}

// wholeRange: bounds of -1 mean all ports of a protocol with ports, missing ones no criterion.
func wholeRange(rule *calico.Rule, r *neutron.SecurityGroupRule) bool {
	hasPorts := rule.Protocol == calico.ProtocolTCP || rule.Protocol == calico.ProtocolUDP
	if hasPorts && (r.PortRangeMin != nil || r.PortRangeMax != nil) {
		rule.DstPorts = []calico.Ports{{Low: 1, High: 65535}}
	}
	return true
}

// icmpOf: the bounds carry type and code.
func icmpOf(rule *calico.Rule, low, high *int) bool {
	rule.ICMPType, rule.ICMPCode = octet(low), octet(high)
	return (low == nil) == (rule.ICMPType == nil) && (high == nil) == (rule.ICMPCode == nil)
}

func octet(n *int) *uint8 {
	if n == nil || *n < 0 || *n > 255 {
		return nil
	}
	v := uint8(*n)
	return &v
}

// given returns a bound; nil where it is missing or -1, or no port number.
func given(n *int) *int {
	if n == nil || *n < 0 || *n > 65535 {
		return nil
	}
	return n
}

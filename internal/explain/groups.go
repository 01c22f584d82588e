package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// Directions of rules.
const (
	ingress = "ingress"
	egress  = "egress"
)

// filtered is a packet as the security groups of a port see it.
type filtered struct {
	port      *neutron.Port
	direction string
	service   service    // with the port of a reply's client, as rules see it
	peer      netip.Addr // the other end, as far as known
}

// filteredAt returns the packet of a leg that was denied at a port of Neutron; false if that is
// none.
func (x *inquiry) filteredAt(l *leg) (filtered, bool) {
	p, ok := schema.Ports.Peek(x.snap, l.device)
	if !ok {
		return filtered{}, false
	}
	f := filtered{port: p, direction: ingress, service: l.sent.service, peer: l.sent.src}
	if p.ID == l.at.PortID {
		f.direction, f.peer = egress, l.sent.dst
	}
	if f.service.port != 0 {
		f.service.port = l.sent.dstPort
	}
	return f, true
}

// explainNoRule says of a packet that no rule of a port's security groups let pass which ones came
// nearest.
func (x *inquiry) explainNoRule(l *leg) {
	f, ok := x.filteredAt(l)
	if l.code != flow.CodeNoRule || !ok || !x.caller.Owns(f.port.ProjectID) {
		return
	}
	way := map[string]string{ingress: "in", egress: "out"}[f.direction]
	l.Reason = fmt.Sprintf("no rule of the security groups of port %s lets it %s", f.port.ID, way)
	if len(f.port.SecurityGroups) == 0 {
		l.Reason = fmt.Sprintf("port %s is in no security group, so no rule lets it %s", f.port.ID, way)
	}
	l.Nearest = x.nearest(&f)
}

// nearest returns the rule of each security group at the port that came nearest to letting the
// packet pass.
func (x *inquiry) nearest(f *filtered) (all []operator.NearestRule) {
	for _, id := range f.port.SecurityGroups {
		g, ok := schema.SecurityGroups.Peek(x.snap, id)
		if !ok {
			continue
		}
		best := operator.NearestRule{Group: id, Text: "it has no rule for " + f.direction, Fails: []string{}}
		fewest, most := -1, 0 // clauses that fail, and that are met
		for i := range g.Rules {
			r := &g.Rules[i]
			if r.Direction != f.direction {
				continue
			}
			fails := x.failing(f, r)
			if met := clausesOf(r) - len(fails); fewest < 0 || len(fails) < fewest || len(fails) == fewest && met > most {
				fewest, most = len(fails), met
				best = operator.NearestRule{Group: id, Rule: r.ID, Text: RuleText(r), Fails: fails}
			}
		}
		all = append(all, best)
	}
	return all
}

// clausesOf returns the number of clauses of a rule beside its direction.
func clausesOf(r *neutron.SecurityGroupRule) (n int) {
	for _, set := range []bool{true, r.Protocol != "", r.PortRangeMin != nil || r.PortRangeMax != nil, r.RemoteIPPrefix != "", r.RemoteGroupID != "", r.RemoteAddressGroupID != ""} {
		if set {
			n++
		}
	}
	return n
}

// failing returns the clauses of a rule that a packet does not meet.
func (x *inquiry) failing(f *filtered, r *neutron.SecurityGroupRule) (fails []string) {
	fail := func(format string, args ...any) { fails = append(fails, fmt.Sprintf(format, args...)) }
	version := "IPv4"
	if f.peer.Is6() {
		version = "IPv6"
	}
	if r.Ethertype != version {
		fail("it is for %s, the packet is %s", r.Ethertype, version)
	}
	if n, ok := neutron.ProtocolNumber(r.Protocol); r.Protocol != "" && (!ok || n != 0 && n != int(f.service.proto) && (n != 1 || f.service.proto != 58)) {
		fail("its protocol is %s, not %s", r.Protocol, f.service.name)
	}
	if f.service.port != 0 && !inRange(int(f.service.port), r.PortRangeMin, r.PortRangeMax) {
		fail("its ports are %s, not %d", portRange(r), f.service.port)
	}
	if prefix, err := netip.ParsePrefix(r.RemoteIPPrefix); err == nil && !prefix.Contains(f.peer) {
		fail("its addresses are %s, not %s", r.RemoteIPPrefix, f.peer)
	}
	if r.RemoteGroupID != "" && !x.isMember(r.RemoteGroupID, f.peer) {
		fail("%s is no address of a member of group %s", f.peer, r.RemoteGroupID)
	}
	if r.RemoteAddressGroupID != "" && !x.isListed(r.RemoteAddressGroupID, f.peer) {
		fail("%s is not in address group %s", f.peer, r.RemoteAddressGroupID)
	}
	return fails
}

func inRange(n int, low, high *int) bool {
	return (low == nil || *low <= n) && (high == nil || n <= *high)
}

func portRange(r *neutron.SecurityGroupRule) string {
	bound := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	low, high := bound(r.PortRangeMin), bound(r.PortRangeMax)
	if low == high {
		return low
	}
	return low + "-" + high
}

// isMember reports whether an address is one of a port in a security group.
func (x *inquiry) isMember(group string, a netip.Addr) bool {
	for p := range schema.Ports.By(x.snap, "security_group", group) {
		if slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress == a }) {
			return true
		}
	}
	return false
}

// isListed reports whether an address is in an address group.
func (x *inquiry) isListed(group string, a netip.Addr) bool {
	for b := range schema.AddressBlocks.By(x.snap, "group", group) {
		if slices.ContainsFunc(b.Addresses, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return true
		}
	}
	return false
}

// RuleText returns a rule in words.
func RuleText(r *neutron.SecurityGroupRule) string {
	words := []string{r.Direction, r.Ethertype, cmp.Or(r.Protocol, "any protocol")}
	if r.PortRangeMin != nil || r.PortRangeMax != nil {
		words = append(words, portRange(r))
	}
	preposition := "from"
	if r.Direction == egress {
		preposition = "to"
	}
	switch {
	case r.RemoteIPPrefix != "":
		words = append(words, preposition, r.RemoteIPPrefix)
	case r.RemoteGroupID != "":
		words = append(words, preposition, "group", r.RemoteGroupID)
	case r.RemoteAddressGroupID != "":
		words = append(words, preposition, "address group", r.RemoteAddressGroupID)
	}
	return strings.Join(words, " ")
}

// rule returns a rule that allows the packet: from and to the other end alone, or anywhere.
func (f *filtered) rule(narrow bool, n int) neutron.SecurityGroupRule {
	r := neutron.SecurityGroupRule{Standard: neutron.Standard{ID: "remedy-" + strconv.Itoa(n)}, Direction: f.direction, Ethertype: "IPv4", Protocol: f.service.name}
	if f.peer.Is6() {
		r.Ethertype = "IPv6"
	}
	if f.service.port != 0 {
		port := int(f.service.port)
		r.PortRangeMin, r.PortRangeMax = &port, &port
	}
	if narrow {
		r.RemoteIPPrefix = netip.PrefixFrom(f.peer, f.peer.BitLen()).String()
	}
	return r
}

// ruleCommand returns the command that adds a rule.
func ruleCommand(group string, r *neutron.SecurityGroupRule) []string {
	words := []string{"heddle", "sg", "rule", "add", group, "--direction", r.Direction, "--ethertype", r.Ethertype, "--protocol", r.Protocol}
	if r.PortRangeMin != nil {
		words = append(words, "--port", portRange(r))
	}
	if r.RemoteIPPrefix != "" {
		words = append(words, "--remote", r.RemoteIPPrefix)
	}
	return words
}

// groupOwner returns the owner of a security group's bundle.
func groupOwner(id string) topology.Owner { return topology.Owner{Kind: "security-group", ID: id} }

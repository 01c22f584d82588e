package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"

	"heddle/calico"
)

// The states of a packet in connection tracking.
const (
	ctInvalid     = expr.CtStateBitINVALID
	ctEstablished = expr.CtStateBitESTABLISHED
	ctRelated     = expr.CtStateBitRELATED
)

// The chains of fail-safe ports, by direction. Before connection tracking ("raw") replies count
// too.
const (
	failsafeIn     = "failsafe-in"
	failsafeOut    = "failsafe-out"
	failsafeRawIn  = "failsafe-raw-in"
	failsafeRawOut = "failsafe-raw-out"
)

// The maps from interfaces to what judges their packets, and other named sets.
const (
	mapSource         = "workload-source"    // → the check of a workload's source
	mapWorkloadOut    = "workload-out"       // → its outbound policy
	mapWorkloadIn     = "workload-in"        // → its inbound policy
	mapWorkloadHost   = "workload-from-host" // → whether this host may send to it
	mapHostIn         = "host-in"            // → a host endpoint's policy for what comes to this host
	mapHostOut        = "host-out"           //
	mapHostForwardIn  = "host-forward-in"    //
	mapHostForwardOut = "host-forward-out"   //
	mapUntrackedIn    = "untracked-in"       //
	mapUntrackedOut   = "untracked-out"      //
	mapPreDNAT        = "pre-dnat"           //
	mapSender         = "arp-sender"         // → the check of a workload's ARP packets
	setExempt         = "exempt"             // interfaces that policy leaves alone
	setIPIPPeers      = "ipip-peers"         //
	setVXLANPeers4    = "vxlan-peers/4"      //
	setVXLANPeers6    = "vxlan-peers/6"      //
	mapDNAT4          = "floating/4"         // floating address → address
	mapDNAT6          = "floating/6"         //
	mapHairpin4       = "hairpin/4"          // address . address → floating address
	mapHairpin6       = "hairpin/6"          //
)

// features are the optional parts of the ruleset: unused ones cost nothing.
type features struct {
	untracked, preDNAT bool
	exempt             bool
	floating4          bool
	floating6          bool
	withoutARP         bool
	ipip, vxlan        bool
}

func verdictMap(name string) *set {
	return &set{ref: ref{inet, name}, keys: []keyType{typeIfname}, verdicts: true}
}

func addressSet(name string, version int) *set {
	return &set{ref: ref{inet, name}, keys: []keyType{typeOfVersion(version)}}
}

func typeOfVersion(version int) keyType {
	if version == 4 {
		return typeIPv4
	}
	return typeIPv6
}

// namedSets returns the sets, other than those of policy, that the features need.
func namedSets(f features) []*set {
	all := []*set{verdictMap(mapSource), verdictMap(mapWorkloadOut), verdictMap(mapWorkloadIn), verdictMap(mapWorkloadHost),
		verdictMap(mapHostIn), verdictMap(mapHostOut), verdictMap(mapHostForwardIn), verdictMap(mapHostForwardOut)}
	if !f.withoutARP {
		all = append(all, &set{ref: ref{arp, mapSender}, keys: []keyType{typeIfname}, verdicts: true})
	}
	if f.untracked {
		all = append(all, verdictMap(mapUntrackedIn), verdictMap(mapUntrackedOut))
	}
	if f.preDNAT {
		all = append(all, verdictMap(mapPreDNAT))
	}
	if f.exempt {
		for _, table := range f.families() {
			all = append(all, &set{ref: ref{table, setExempt}, keys: []keyType{typeIfname}})
		}
	}
	if f.ipip {
		all = append(all, addressSet(setIPIPPeers, 4))
	}
	if f.vxlan {
		all = append(all, addressSet(setVXLANPeers4, 4), addressSet(setVXLANPeers6, 6))
	}
	for version, on := range map[int]bool{4: f.floating4, 6: f.floating6} {
		if on {
			all = append(all, floatingMap(version), hairpinMap(version))
		}
	}
	return all
}

func floatingMap(version int) *set {
	s := addressSet(map[int]string{4: mapDNAT4, 6: mapDNAT6}[version], version)
	s.data = &s.keys[0]
	return s
}

func hairpinMap(version int) *set {
	s := addressSet(map[int]string{4: mapHairpin4, 6: mapHairpin6}[version], version)
	s.keys = append(s.keys, s.keys[0])
	s.data = &s.keys[0]
	return s
}

// builder makes the chains that do not depend on single endpoints.
type builder struct {
	settings *Settings
	around   *Surroundings
	features features
}

func (b *builder) chains() []chain {
	unknown := do(verdict{goTo, refusedUnknown})
	all := []chain{b.raw(), b.source(), b.sourceOther(), b.input(), plain(connection, connectionRule(b.settings)), b.workloadToHost(),
		b.forwardFrom(), plain("workload-from", tracked(), do(decide{inName(), mapWorkloadOut}), unknown),
		b.forwardTo(), plain("workload-to", do(decide{outName(), mapWorkloadIn}), unknown),
		b.output(), plain("host-to-workload", do(decide{outName(), mapWorkloadHost}), unknown)}
	if !b.features.withoutARP {
		all = append(all, base(arp, "input", "filter", "input", priorityFilter, b.ofWorkloads(inName(), verdict{goTo, "senders"})...),
			chain{ref: ref{arp, "senders"}, rules: []rule{do(decide{inName(), mapSender}), do(verdict{goTo, refusedARP})}},
			chain{ref: ref{arp, refusedARP}, rules: []rule{do(count{refusedARP}), do(verdict{kind: drop})}})
	}
	all = append(all, b.failsafes()...)
	all = append(all, b.refusals()...)
	if b.features.untracked {
		all = append(all, base(inet, "output-raw", "filter", "output", priorityRaw,
			do(setMark{bit: markAccepted, clear: true}), do(decide{outName(), mapUntrackedOut})))
	}
	if b.features.preDNAT {
		all = append(all, base(inet, "prerouting-pre-dnat", "filter", "prerouting", priorityMangle, do(decide{inName(), mapPreDNAT})))
	}
	return append(all, b.nat()...)
}

func base(table family, name, kind, at string, priority int32, rules ...rule) chain {
	return chain{ref: ref{table, name}, hook: &hook{kind, at, priority}, rules: rules}
}

func plain(name string, rules ...rule) chain { return chain{ref: ref{inet, name}, rules: rules} }

func do(statements ...statement) rule { return rule{statements: statements} }

// ofWorkloads returns a rule for each prefix of workloads, after one for exempt interfaces.
func (b *builder) ofWorkloads(f field, v verdict) []rule {
	var rules []rule
	if b.features.exempt {
		rules = append(rules, do(inSet{fields: []field{f}, set: setExempt}, verdict{kind: accept}))
	}
	for _, p := range b.settings.WorkloadPrefixes {
		rules = append(rules, do(named(f, p+"*"), v))
	}
	return rules
}

// The priorities of base chains (spec §6).
const (
	priorityRaw     = -300
	priorityMangle  = -150
	priorityDstNAT  = -100
	priorityFilter  = 0
	priorityForward = 1 // of the second of two chains, which asks the destination's policy
	prioritySrcNAT  = 100
)

func (b *builder) raw() chain {
	var rules []rule
	if b.features.untracked || b.features.preDNAT {
		rules = append(rules, do(setMark{bit: markAccepted, clear: true}))
	}
	rules = slices.Concat(rules, b.ofWorkloads(inName(), verdict{goTo, "source"}))
	if b.features.untracked {
		rules = append(rules, do(decide{inName(), mapUntrackedIn}))
	}
	return base(inet, "prerouting-raw", "filter", "prerouting", priorityRaw, rules...)
}

// tunnelPorts are the UDP ports of packets between hosts. No workload may send to them, whatever
// the destination: it may be a host that is not known yet, and masquerading would give the packet
// this host's address.
var tunnelPorts = []uint16{OverlayPort}

// OverlayPort is the UDP port of the overlay, for tunnelled packets and connection state.
const OverlayPort = 6677

// tunnelsOfWorkloads refuses packets of the overlay and of this host's tunnels from workloads.
func (b *builder) tunnelsOfWorkloads() []rule {
	ports := tunnelPorts
	if b.features.vxlan {
		ports = append(slices.Clone(ports), b.around.VXLAN.Port)
	}
	var rules []rule
	for _, p := range ports {
		rules = append(rules, do(implied{protocol(calico.ProtocolUDP, false)}, portIs("udp", destination, p), verdict{goTo, refusedTunnelPort}))
	}
	if b.features.ipip {
		rules = append(rules, do(version(4), protocol(ipInIP, false), verdict{goTo, refusedTunnelPort}))
	}
	return rules
}

// source checks what workloads send. Because of route_localnet it protects the loopback as well.
func (b *builder) source() chain {
	return plain("source", append(b.tunnelsOfWorkloads(),
		do(implied{version(4)}, within{f: address(4, destination), prefix: netip.MustParsePrefix("127.0.0.0/8")}, verdict{goTo, refusedLoopback}),
		do(decide{inName(), mapSource}), do(verdict{goTo, refusedUnknown}))...)
}

// sourceOther accepts legal sources that no endpoint has (spec §7.5).
func (b *builder) sourceOther() chain {
	zero4, zero6 := netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128)
	return plain("source-other",
		do(implied{version(6)}, within{f: address(6, source), prefix: netip.MustParsePrefix("fe80::/10")}, verdict{kind: accept}),
		do(implied{version(4)}, within{f: address(4, source), prefix: zero4},
			implied{protocol(calico.ProtocolUDP, false)}, portIs("udp", source, 68), portIs("udp", destination, 67), verdict{kind: accept}),
		do(implied{version(6)}, within{f: address(6, source), prefix: zero6},
			implied{protocol(calico.ProtocolICMPv6, false)}, discovery(), verdict{kind: accept}),
		do(verdict{goTo, refusedSource}))
}

func portIs(proto string, of end, number uint16) compare {
	return compare{f: port(proto, of), value: []byte{byte(number >> 8), byte(number)}}
}

// discovery matches the ICMPv6 types that a workload needs for IPv6 (spec §7.2).
func discovery() statement {
	return oneOf{fields: []field{icmpType(6)}, values: []string{"\x82", "\x83", "\x84", "\x85", "\x87", "\x88"}}
}

func (b *builder) input() chain {
	return base(inet, "input", "filter", "input", priorityFilter,
		slices.Concat(b.tunnelsIn(), b.ofWorkloads(inName(), verdict{goTo, "workload-to-host"}), []rule{do(decide{inName(), mapHostIn})})...)
}

// tunnelsIn accepts tunnelled packets from peers alone (spec §10).
func (b *builder) tunnelsIn() []rule {
	var rules []rule
	if b.features.ipip {
		rules = append(b.ipipPeers(source), do(version(4), protocol(ipInIP, false), verdict{goTo, refusedTunnel}))
	}
	if b.features.vxlan {
		rules = append(append(rules, b.vxlanPeers(source)...), do(implied{protocol(calico.ProtocolUDP, false)},
			portIs("udp", destination, b.around.VXLAN.Port), verdict{goTo, refusedTunnel}))
	}
	return rules
}

// tunnelsOut accepts tunnelled packets to peers, whatever a host endpoint's policy says.
func (b *builder) tunnelsOut() []rule {
	return append(b.ipipPeers(destination), b.vxlanPeers(destination)...)
}

// ipipPeers accepts IPIP between this host and peers at one end of the packet.
func (b *builder) ipipPeers(of end) []rule {
	if !b.features.ipip {
		return nil
	}
	return []rule{do(implied{version(4)}, protocol(ipInIP, false),
		inSet{fields: []field{address(4, of)}, set: setIPIPPeers}, local(!of), verdict{kind: accept})}
}

// vxlanPeers accepts VXLAN between this host and peers at one end of the packet.
func (b *builder) vxlanPeers(of end) (rules []rule) {
	if !b.features.vxlan {
		return nil
	}
	for _, peers := range []struct {
		version int
		set     string
	}{{4, setVXLANPeers4}, {6, setVXLANPeers6}} {
		rules = append(rules, do(implied{version(peers.version)}, implied{protocol(calico.ProtocolUDP, false)},
			portIs("udp", destination, b.around.VXLAN.Port),
			inSet{fields: []field{address(peers.version, of)}, set: peers.set}, local(!of), verdict{kind: accept}))
	}
	return rules
}

// ipInIP is the protocol number of IPv4 in IPv4.
const ipInIP calico.Protocol = 4

// workloadToHost judges what a workload sends to this host (spec §7.2).
func (b *builder) workloadToHost() chain {
	s := b.settings
	rules := []rule{do(establishedOnly()),
		do(implied{version(6)}, implied{protocol(calico.ProtocolICMPv6, false)}, discovery(), verdict{kind: accept})}
	if s.OpenStack {
		udp := implied{protocol(calico.ProtocolUDP, false)}
		rules = append(rules,
			do(version(4), udp, portIs("udp", source, 68), portIs("udp", destination, 67), verdict{kind: accept}),
			do(version(6), udp, portIs("udp", source, 546), portIs("udp", destination, 547), verdict{kind: accept}),
			do(udp, portIs("udp", destination, 53), verdict{kind: accept}))
		if s.Metadata.IsValid() {
			v, bits := 4, 32
			if s.Metadata.Addr().Is6() {
				v, bits = 6, 128
			}
			rules = append(rules, do(implied{version(v)}, implied{protocol(calico.ProtocolTCP, false)},
				within{f: address(v, destination), prefix: netip.PrefixFrom(s.Metadata.Addr(), bits)},
				portIs("tcp", destination, s.Metadata.Port()), verdict{kind: accept}))
		}
	}
	if s.ToHost == ToHostDrop {
		return plain("workload-to-host", append(rules, do(verdict{goTo, refusedToHost}))...)
	}
	return plain("workload-to-host", append(rules, tracked(), do(decide{inName(), mapWorkloadOut}), do(verdict{goTo, refusedUnknown}))...)
}

// forwardFrom applies the policy of a forwarded packet's source; forwardTo follows.
func (b *builder) forwardFrom() chain {
	return base(inet, "forward-from", "filter", "forward", priorityFilter,
		slices.Concat(b.ofWorkloads(inName(), verdict{goTo, "workload-from"}), b.ofWorkloads(outName(), verdict{kind: accept}),
			[]rule{do(decide{inName(), mapHostForwardIn})})...)
}

func (b *builder) forwardTo() chain {
	return base(inet, "forward-to", "filter", "forward", priorityForward,
		slices.Concat(b.ofWorkloads(outName(), verdict{goTo, "workload-to"}), b.ofWorkloads(inName(), verdict{kind: accept}),
			[]rule{do(decide{outName(), mapHostForwardOut})})...)
}

func (b *builder) output() chain {
	return base(inet, "output", "filter", "output", priorityFilter,
		slices.Concat(b.tunnelsOut(), b.ofWorkloads(outName(), verdict{goTo, "host-to-workload"}), []rule{do(decide{outName(), mapHostOut})})...)
}

func (b *builder) failsafes() []chain {
	in, out := b.settings.FailsafeInbound, b.settings.FailsafeOutbound
	chains := []chain{
		plain(failsafeIn, failsafeRules(destination, in)...), plain(failsafeOut, failsafeRules(destination, out)...),
		plain(failsafeRawIn, slices.Concat(failsafeRules(destination, in), failsafeRules(source, out))...),
		plain(failsafeRawOut, slices.Concat(failsafeRules(destination, out), failsafeRules(source, in))...),
	}
	for i := range chains {
		if len(chains[i].rules) > 0 {
			chains[i].rules = append(chains[i].rules, neighbours())
		}
	}
	return chains
}

func (b *builder) refusals() []chain {
	var all []chain
	for _, name := range softRefusals {
		rules := []rule{do(count{name})}
		if b.settings.OnDrop == LogAndDrop || b.settings.OnDrop == LogAndAccept {
			rules = append(rules, do(logAs{"calico-drop: "}))
		}
		v := verdict{kind: drop}
		if b.settings.OnDrop == Accept || b.settings.OnDrop == LogAndAccept {
			v = verdict{kind: accept}
		}
		all = append(all, plain(name, append(rules, do(v))...))
	}
	for _, name := range hardRefusals {
		all = append(all, plain(name, do(count{name}), do(verdict{kind: drop})))
	}
	return all
}

func (f features) families() []family {
	if f.withoutARP {
		return []family{inet}
	}
	return []family{inet, arp}
}

// counters returns the named counters other than those of rules: one for each kind of refusal.
func (f features) counters() []ref {
	var all []ref
	if !f.withoutARP {
		all = append(all, ref{arp, refusedARP})
	}
	for _, name := range slices.Concat(softRefusals, hardRefusals, []string{deniedByRule}) {
		all = append(all, ref{inet, name})
	}
	slices.SortFunc(all, compareRefs)
	return all
}

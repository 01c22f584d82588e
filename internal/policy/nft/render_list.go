package nft

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// The bits of a packet's mark that are ours, within the default mask of peers (0xff000000).
const (
	// markAccepted is on packets that untracked or pre-DNAT policy has accepted.
	markAccepted = 0x01000000
	// markPassed is on packets that a rule has sent to the next tier, until the end of the tier.
	markPassed = 0x02000000
)

// defaultLogPrefix is that of rules that log and name no prefix (spec §6.8).
const defaultLogPrefix = "calico-packet"

// longestLogPrefix bounds a prefix as iptables does.
const longestLogPrefix = 27

// The chains that refuse packets, each with a counter of its name.
const (
	refusedByPolicy = "refused-by-policy"
	refusedMissing  = "refused-missing-rules"
	refusedUnknown  = "refused-unknown-interface"
	refusedInactive = "refused-inactive-endpoint"
	refusedInvalid  = "refused-invalid-packet"
	refusedToHost   = "refused-workload-to-host"
	refusedSource   = "refused-source"
	refusedTunnel   = "refused-tunnel-peer"
	refusedLoopback = "refused-loopback"
	// refusedTunnelPort is for packets of workloads to ports between hosts.
	refusedTunnelPort = "refused-tunnel-port"
	refusedARP        = "refused-arp-sender"
)

// deniedByRule is the counter of packets that rules deny. The rest of what is refused by policy is
// what no rule allows.
const deniedByRule = "denied-by-rule"

// softRefusals are subject to the drop action; hardRefusals always drop.
var (
	softRefusals = []string{refusedByPolicy, refusedMissing, refusedUnknown, refusedInactive, refusedInvalid, refusedToHost}
	hardRefusals = []string{refusedSource, refusedTunnel, refusedLoopback, refusedTunnelPort}
)

// listRenderer turns the lists of one stage into rules.
type listRenderer struct {
	listKey
	logPrefix string
	counted   bool // each rule has a counter
}

// rulesIn returns the number of rules of a list, which may be missing.
func rulesIn(list *calc.List) int {
	if list == nil || list.Missing != "" {
		return 0
	}
	return len(list.Rules)
}

// counters returns the counters of a list's rules.
func (l listRenderer) counters(list *calc.List) []ref {
	if !l.counted {
		return nil
	}
	all := make([]ref, rulesIn(list))
	for i := range all {
		all[i] = ref{inet, l.counterOf(list.Rules[i].Index)}
	}
	return all
}

// rules returns the rules of a list's chain. A packet that none matches returns to the caller.
func (l listRenderer) rules(list *calc.List) []rule {
	if list == nil || list.Missing != "" {
		return []rule{do(verdict{goTo, refusedMissing})}
	}
	var rules []rule
	for i := range list.Rules {
		rules = append(rules, l.rule(&list.Rules[i])...)
	}
	return rules
}

// rule renders one rule of a list, for each family if the families differ.
func (l listRenderer) rule(r *calc.Rule) []rule {
	action := l.action(r.Action)
	if l.counted {
		action = append([]statement{count{l.counterOf(r.Index)}}, action...)
	}
	if prefix := l.prefix(r); prefix != "" {
		action = append([]statement{logAs{prefix + ": "}}, action...)
	}
	var rules []rule
	for _, v := range versions(r) {
		for _, statements := range match(r, v) {
			rules = append(rules, rule{append(statements, action...), "rule " + strconv.Itoa(r.Index)})
		}
	}
	return rules
}

// viewsOf returns the address sets, by version, that a list names, each once.
func viewsOf(list *calc.List) []view {
	if list == nil || list.Missing != "" {
		return nil
	}
	var all []view
	for i := range list.Rules {
		r := &list.Rules[i]
		ids := setsOf(r)
		if len(ids) == 0 {
			continue
		}
		for _, v := range versions(r) {
			if !possible(r, v) {
				continue
			}
			for _, id := range ids {
				all = append(all, view{id, v})
			}
		}
	}
	slices.SortFunc(all, func(a, b view) int { return cmp.Or(strings.Compare(string(a.id), string(b.id)), a.version-b.version) })
	return slices.Clone(slices.Compact(all)) // there are many lists: no more room than it needs
}

func (l listRenderer) action(action string) []statement {
	switch {
	case action == calico.Log:
		return nil
	case action == calico.Deny:
		return []statement{count{deniedByRule}, verdict{goTo, refusedByPolicy}}
	case action == calico.NextTier && l.list.Tier != "":
		return []statement{setMark{bit: markPassed}, verdict{kind: returns}}
	case l.stage == untracked:
		return []statement{untrack, setMark{bit: markAccepted}, verdict{kind: accept}}
	case l.stage == preDNAT:
		return []statement{setMark{bit: markAccepted}, verdict{kind: accept}}
	}
	return []statement{verdict{kind: accept}}
}

// prefix returns the prefix of a rule's log records; empty: it logs nothing.
func (l listRenderer) prefix(r *calc.Rule) string {
	switch {
	case r.LogPrefix != "":
		return logPrefix(r.LogPrefix)
	case r.Action == calico.Log:
		return logPrefix(l.logPrefix)
	}
	return ""
}

// logPrefix cleans and cuts a prefix (spec §6.8).
func logPrefix(s string) string {
	if s == "" {
		s = defaultLogPrefix
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == ':', r == '-':
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), longestLogPrefix)]
}

func setsOf(r *calc.Rule) []calc.SetID {
	return slices.Concat(r.SrcSets, r.DstSets, r.NotSrcSets, r.NotDstSets)
}

// passes reports whether a list can send packets to the next tier.
func passes(list *calc.List) bool {
	return list != nil && list.Missing == "" && slices.ContainsFunc(list.Rules, func(r calc.Rule) bool { return r.Action == calico.NextTier })
}

// either stands for packets of both versions.
const either = 0

// versions returns the versions that need a rule each; either: one rule serves both.
func versions(r *calc.Rule) []int {
	byAddress := len(r.SrcNets)+len(r.DstNets)+len(r.NotSrcNets)+len(r.NotDstNets)+
		len(r.SrcSets)+len(r.DstSets)+len(r.NotSrcSets)+len(r.NotDstSets) > 0
	byVersion := byAddress || r.Protocol == calico.ProtocolICMP || r.Protocol == calico.ProtocolICMPv6
	switch {
	case r.IPv4 && r.IPv6 && !byVersion:
		return []int{either}
	case r.IPv4 && r.IPv6:
		return []int{4, 6}
	case r.IPv4:
		return []int{4}
	case r.IPv6:
		return []int{6}
	}
	return nil
}

// match returns a rule's criteria for packets of a version, as alternatives that exclude each
// other; none: no packet can match.
func match(r *calc.Rule, v int) [][]statement {
	if !possible(r, v) {
		return nil
	}
	m := matcher{version: v, rules: 1}
	m.protocol(r)
	m.ports(r.Protocol, source, false, r.SrcPorts)
	m.ports(r.Protocol, destination, false, r.DstPorts)
	m.ports(r.Protocol, source, true, r.NotSrcPorts)
	m.ports(r.Protocol, destination, true, r.NotDstPorts)
	m.icmp(r)
	m.nets(source, false, r.SrcNets)
	m.nets(destination, false, r.DstNets)
	m.nets(source, true, r.NotSrcNets)
	m.nets(destination, true, r.NotDstNets)
	m.sets(source, false, r.SrcSets)
	m.sets(destination, false, r.DstSets)
	m.sets(source, true, r.NotSrcSets)
	m.sets(destination, true, r.NotDstSets)
	return m.all()
}

// possible reports whether a packet of a version can match a rule.
func possible(r *calc.Rule, v int) bool {
	if v == 6 && r.Protocol == calico.ProtocolICMP || v == 4 && r.Protocol == calico.ProtocolICMPv6 {
		return false
	}
	for i, nets := range [][]netip.Prefix{r.SrcNets, r.DstNets, r.NotSrcNets, r.NotDstNets} {
		own := ofFamily(nets, v)
		if len(nets) > 0 && len(own) == 0 || i >= 2 && slices.ContainsFunc(own, everything) {
			return false // no address of the version is in any, or every one is
		}
	}
	return true
}

func ofFamily(nets []netip.Prefix, v int) (own []netip.Prefix) {
	for _, n := range nets {
		if n.Addr().Is4() == (v == 4) {
			own = append(own, n)
		}
	}
	return own
}

// Anonymous sets slow the kernel down the more there are. Short positive lists become several
// rules, short negative ones several comparisons.
const (
	shortList = 4 // entries
	mostRules = 8 // for one rule and family
)

// matcher collects a rule's criteria.
type matcher struct {
	version    int
	proto      []statement
	rest       [][]statement // alternatives each
	rules      int           // how many all alternatives make
	ofAddress  bool          // a criterion implies the version for nft
	ofProtocol bool          // likewise the protocol
}

func (m *matcher) must(all ...statement) {
	for _, s := range all {
		m.rest = append(m.rest, []statement{s})
	}
}

// among adds a criterion on a list: one returns the statement for an entry, list that for all.
func (m *matcher) among(n int, not bool, one func(i int) statement, list func() statement) {
	switch {
	case n == 1 || not && n <= shortList:
		for i := range n {
			m.must(one(i))
		}
	case !not && n <= shortList && m.rules*n <= mostRules:
		m.rules *= n
		alternatives := make([]statement, n)
		for i := range n {
			alternatives[i] = one(i)
		}
		m.rest = append(m.rest, alternatives)
	default:
		m.must(list())
	}
}

// all returns the alternatives, with the cheap and general criteria first.
func (m *matcher) all() [][]statement {
	var head []statement
	if m.version != either {
		var s statement = version(m.version)
		if m.ofAddress {
			s = implied{s}
		}
		head = append(head, s)
	}
	for _, s := range m.proto {
		if m.ofProtocol {
			s = implied{s}
		}
		head = append(head, s)
	}
	all := [][]statement{head}
	for _, alternatives := range m.rest {
		var longer [][]statement
		for _, before := range all {
			for _, s := range alternatives {
				longer = append(longer, append(slices.Clip(before), s))
			}
		}
		all = longer
	}
	return all
}

func (m *matcher) protocol(r *calc.Rule) {
	if r.Protocol != 0 {
		m.proto = append(m.proto, protocol(r.Protocol, false))
	}
	if r.NotProtocol != 0 {
		m.must(protocol(r.NotProtocol, true))
	}
}

func (m *matcher) ports(p calico.Protocol, of end, not bool, ports []calico.Ports) {
	if len(ports) == 0 {
		return
	}
	m.ofProtocol = true
	f := port(protocolName(p), of)
	spans, shown := portSpans(ports)
	m.among(len(spans), not, func(i int) statement {
		if spans[i].low == spans[i].high {
			return compare{f: f, not: not, value: []byte(spans[i].low)}
		}
		return ranged{f: f, not: not, span: spans[i], shown: shown[i]}
	}, func() statement { return inList{f: f, not: not, spans: spans, shown: shown} })
}

func (m *matcher) icmp(r *calc.Rule) {
	v := 4
	if r.Protocol == calico.ProtocolICMPv6 {
		v = 6
	}
	if r.ICMPType != nil {
		m.ofProtocol, m.ofAddress = true, true
		m.must(compare{f: icmpType(v), value: []byte{*r.ICMPType}})
		if r.ICMPCode != nil {
			m.must(compare{f: icmpCode(v), value: []byte{*r.ICMPCode}})
		}
	}
	if r.NotICMPType == nil {
		return
	}
	if r.NotICMPCode != nil {
		pair := []byte{*r.NotICMPType, *r.NotICMPCode}
		m.must(compare{f: icmpTypeAndCode(), not: true, value: pair, shown: typePort.show(pair)})
		return
	}
	m.ofProtocol, m.ofAddress = true, true
	m.must(compare{f: icmpType(v), not: true, value: []byte{*r.NotICMPType}})
}

// nets adds a criterion on prefixes of the version: any of them, or none of them.
func (m *matcher) nets(of end, not bool, nets []netip.Prefix) {
	own := ofFamily(nets, m.version)
	if len(own) == 0 || slices.ContainsFunc(own, everything) {
		return // possible has seen to those that no packet meets
	}
	m.ofAddress = true
	f := address(m.version, of)
	merged := merge(own)
	m.among(len(merged), not, func(i int) statement { return within{f: f, not: not, prefix: merged[i]} },
		func() statement { return inPrefixes(f, not, merged) })
}

// inPrefixes matches an address in prefixes in the shortest way.
func inPrefixes(f field, not bool, prefixes []netip.Prefix) statement {
	merged := merge(prefixes)
	if len(merged) == 1 {
		return within{f: f, not: not, prefix: merged[0]}
	}
	spans, shown := spansOf(merged)
	return inList{f: f, not: not, spans: spans, shown: shown}
}

func everything(p netip.Prefix) bool { return p.Bits() == 0 }

func (m *matcher) sets(of end, not bool, ids []calc.SetID) {
	for _, id := range ids {
		m.ofAddress = true
		m.must(inSet{fields: []field{address(m.version, of)}, not: not, set: setName(id, m.version)})
	}
}

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// judge is the chain that decides over an endpoint's packets in a direction: its tiers and
// profiles, in order. Endpoints with the same tiers and profiles share it.
//
//	prelude (connection tracking, fail-safe ports)
//	jump policy/T1/a/in ─ accept, refuse, return, or mark as passed and return
//	jump policy/T1/b/in
//	refuse
//
// If a rule of a tier can send packets to the next tier, the tier's policies are in a chain of
// their own, which returns for marked packets.
type judge struct {
	kind     judgeKind
	tiers    []judgedTier
	profiles []listKey
	name     string
}

type judgedTier struct {
	lists  []listKey
	passes []bool // by list: it can send packets to the next tier
}

// mayPass reports whether packets can get to the next tier.
func (t judgedTier) mayPass() bool {
	for _, p := range t.passes {
		if p {
			return true
		}
	}
	return false
}

// judgeKind is the traffic that a judge decides over.
type judgeKind uint8

const (
	workloadOut judgeKind = iota
	workloadIn
	hostIn         // to this host
	hostOut        // from this host
	hostForwardIn  // from an interface with a host endpoint to another interface
	hostForwardOut //
	untrackedIn
	untrackedOut
	preDNATIn
)

func (k judgeKind) String() string {
	return [...]string{"workload-out", "workload-in", "host-in", "host-out", "host-forward-in", "host-forward-out",
		"untracked-in", "untracked-out", "pre-dnat-in"}[k]
}

func (k judgeKind) stage() stage {
	switch k {
	case untrackedIn, untrackedOut:
		return untracked
	case preDNATIn:
		return preDNAT
	}
	return normal
}

func (k judgeKind) direction() calc.Direction {
	switch k {
	case workloadOut, hostOut, hostForwardOut, untrackedOut:
		return calc.Outbound
	}
	return calc.Inbound
}

// newJudge returns the judge of tiers and profiles. passes reports which lists can send packets on.
func newJudge(kind judgeKind, tiers []calc.Tier, profiles []string, passes func(calc.ListID) bool) *judge {
	j := &judge{kind: kind}
	hash := sha256.New()
	for _, t := range tiers {
		lists := t.Lists(kind.direction())
		if len(lists) == 0 {
			continue
		}
		var judged judgedTier
		for _, id := range lists {
			p := passes(id)
			judged.lists = append(judged.lists, listKey{id, kind.stage()})
			judged.passes = append(judged.passes, p)
			fmt.Fprintf(hash, "%q %q %t\n", id.Tier, id.Name, p)
		}
		io.WriteString(hash, "\n")
		j.tiers = append(j.tiers, judged)
	}
	if kind.stage() == normal {
		for _, p := range profiles {
			j.profiles = append(j.profiles, listKey{calc.ListID{Name: p, Direction: kind.direction()}, normal})
			fmt.Fprintf(hash, "%q\n", p)
		}
	}
	j.name = kind.String() + "/" + hex.EncodeToString(hash.Sum(nil)[:10])
	return j
}

// empty reports whether no policy of an early stage applies.
func (j *judge) empty() bool { return len(j.tiers) == 0 && len(j.profiles) == 0 }

func (j *judge) lists(f func(listKey)) {
	for _, t := range j.tiers {
		for _, k := range t.lists {
			f(k)
		}
	}
	for _, k := range j.profiles {
		f(k)
	}
}

func (j *judge) tierChain(i int) string { return fmt.Sprintf("%s/%d", j.name, i+1) }

// judgeChain is a chain of a judge, rendered on demand, since a judge may have many.
type judgeChain struct {
	ref
	rules func(f features) []rule
}

// chains returns the judge's chains; the first is the entry.
func (j *judge) chains() []judgeChain {
	all := []judgeChain{{ref{inet, j.name}, j.mainRules}}
	for i, t := range j.tiers {
		if j.endsAt(t) {
			break
		}
		if t.mayPass() {
			all = append(all, judgeChain{ref{inet, j.tierChain(i)}, func(features) []rule { return append(jumps(t), j.unmatched()...) }})
		}
	}
	return all
}

func (j *judge) endsAt(t judgedTier) bool { return !t.mayPass() && j.kind.stage() == normal }

// mainRules returns the rules of the entry.
func (j *judge) mainRules(f features) []rule {
	rules := prelude(j.kind, f)
	for i, t := range j.tiers {
		if t.mayPass() {
			rules = append(rules, do(setMark{bit: markPassed, clear: true}),
				do(verdict{jumpTo, j.tierChain(i)}))
			continue
		}
		rules = append(append(rules, jumps(t)...), j.unmatched()...)
		if j.endsAt(t) {
			return rules
		}
	}
	for _, k := range j.profiles {
		rules = append(rules, do(verdict{jumpTo, k.chain()}))
	}
	return append(rules, j.unmatched()...)
}

// unmatched ends a tier or the profiles. Early stages have no default deny.
func (j *judge) unmatched() []rule {
	if j.kind.stage() != normal {
		return nil
	}
	return []rule{do(verdict{goTo, refusedByPolicy})}
}

func jumps(t judgedTier) []rule {
	var rules []rule
	for i, k := range t.lists {
		rules = append(rules, do(verdict{jumpTo, k.chain()}))
		if t.passes[i] {
			rules = append(rules, do(marked{markPassed}, verdict{kind: returns}))
		}
	}
	return rules
}

func prelude(kind judgeKind, f features) []rule {
	var rules []rule
	accepted := do(marked{markAccepted}, verdict{kind: accept})
	switch kind {
	case workloadOut: // asked only after connection tracking
	case workloadIn, hostForwardOut:
		rules = append(rules, tracked())
	case hostIn, hostForwardIn:
		rules = append(rules, tracked())
		if f.untracked || f.preDNAT {
			rules = append(rules, accepted)
		}
	case hostOut:
		rules = append(rules, tracked())
		if f.untracked {
			rules = append(rules, accepted)
		}
	case preDNATIn:
		if f.untracked {
			rules = append(rules, accepted)
		}
		rules = append(rules, do(establishedOnly()))
	}
	if chain := failsafeChain(kind); chain != "" {
		rules = append(rules, do(verdict{jumpTo, chain}))
	}
	return rules
}

// failsafeChain returns the chain of the fail-safe ports that concern a judge.
func failsafeChain(kind judgeKind) string {
	switch kind {
	case hostIn, preDNATIn:
		return failsafeIn
	case hostOut:
		return failsafeOut
	case untrackedIn:
		return failsafeRawIn
	case untrackedOut:
		return failsafeRawOut
	}
	return ""
}

func stateKey(bit uint32) string { return string(native(bit)) }

// connection is the chain that accepts packets of connections, and refuses invalid ones.
const connection = "connection"

func tracked() rule { return do(verdict{jumpTo, connection}) }

func connectionRule(s *Settings) rule {
	t := establishedOnly()
	if !s.AcceptInvalid {
		t.entries = append([]element{{key: stateKey(ctInvalid), verdict: verdict{goTo, refusedInvalid}}}, t.entries...)
	}
	return do(t)
}

func establishedOnly() switchOn {
	return switchOn{f: ctState(), entries: []element{
		{key: stateKey(ctEstablished), verdict: verdict{kind: accept}},
		{key: stateKey(ctRelated), verdict: verdict{kind: accept}},
	}}
}

// failsafeRules accepts fail-safe ports at one end of the packet; net is of the other.
func failsafeRules(of end, ports []Failsafe) []rule {
	if len(ports) == 0 {
		return nil
	}
	var anywhere []string
	var rules []rule
	for _, p := range ports {
		if !p.Net.IsValid() {
			key := make([]byte, 8)
			key[0], key[4], key[5] = byte(p.Protocol), byte(p.Port>>8), byte(p.Port)
			anywhere = append(anywhere, string(key))
			continue
		}
		v, other := 4, source
		if p.Net.Addr().Is6() {
			v = 6
		}
		if of == source {
			other = destination
		}
		rules = append(rules, do(implied{version(v)}, implied{protocol(p.Protocol, false)},
			inPrefixes(address(v, other), false, []netip.Prefix{p.Net}), portIs(protocolName(p.Protocol), of, p.Port), verdict{kind: accept}))
	}
	if len(anywhere) > 0 {
		any := oneOf{fields: []field{l4proto(), port("th", of)}, values: sortedUnique(anywhere)}
		rules = append([]rule{do(any, verdict{kind: accept})}, rules...)
	}
	return rules
}

// neighbours accepts neighbour discovery, without which no IPv6 host is reachable.
func neighbours() rule {
	return do(implied{version(6)}, implied{protocol(calico.ProtocolICMPv6, false)},
		oneOf{fields: []field{icmpType(6)}, values: []string{"\x85", "\x86", "\x87", "\x88"}}, verdict{kind: accept})
}

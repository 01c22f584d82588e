// Package judge decides over one packet on this host by the rules of calc: whether it passes, which
// rule of which policy or profile decided, and what it was matched with before. It does in plain
// steps what the kernel does with the same rules (policy/nft), so that policy can be tested without
// a kernel, and the kernel against it.
//
//	comes from     first                  then        then
//	workload       source, MAC, active ─┐             ┌ to this host: exceptions, outbound
//	                                    ├─ translated ┼ elsewhere: outbound ─┬─ workload: inbound
//	host endpoint  untracked, pre-DNAT ─┤ destination ├ to a workload ───────┤
//	                                    │             └ elsewhere: inbound ──┼─ host endpoint
//	others         ─────────────────────┘                                    └─ other interface
//
// "inbound" and "outbound" are the endpoint's tiers and then its profiles, after connection
// tracking and, for host endpoints, fail-safe ports (docs/policy.md).
package judge

import (
	"fmt"
	"net/netip"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/flow"
)

// State is the state of a packet's connection in connection tracking.
type State uint8

// The states. Established stands for related as well.
const (
	New State = iota
	Established
	Invalid
)

// Packet is a packet and the way it takes.
type Packet struct {
	From, To Place
	// Src and Dst are of one family. Dst is the destination on the wire, before translation.
	Src, Dst           netip.Addr
	Protocol           calico.Protocol
	SrcPort, DstPort   uint16 // of protocols that have ports
	ICMPType, ICMPCode uint8  // of ICMP and ICMPv6
	SrcMAC             *calico.MAC
	State              State
}

// Place is a source or a destination of packets. The zero Place is a network behind an interface
// that no endpoint governs.
type Place struct {
	localHost bool
	workload  calico.WorkloadEndpointKey
	host      calico.HostEndpointKey
}

// LocalHost returns the place of the host itself.
func LocalHost() Place { return Place{localHost: true} }

// AtWorkload returns the place of a local workload.
func AtWorkload(key calico.WorkloadEndpointKey) Place { return Place{workload: key} }

// AtHost returns the network behind an interface that the host endpoint governs; opposite a Place
// outside, the host itself behind that interface.
func AtHost(key calico.HostEndpointKey) Place { return Place{host: key} }

func (p Place) isWorkload() bool { return p.workload != calico.WorkloadEndpointKey{} }
func (p Place) isHost() bool     { return p.host != calico.HostEndpointKey{} }

// Config has the agent's settings that affect decisions over packets.
type Config struct {
	ToHost                            ToHost
	FailsafeInbound, FailsafeOutbound []Failsafe
	AcceptInvalid                     bool           // DisableConntrackInvalidCheck
	DropsAccepted                     bool           // DropActionOverride says to accept what policy drops
	OpenStack                         bool           // workloads may ask this host for DHCP, DNS and metadata
	Metadata                          netip.AddrPort // where metadata is served; the zero AddrPort: nowhere
	IPIP                              bool           // IpInIpEnabled: only known hosts may send IPIP, and the judge knows none
}

// ToHost applies to a workload's packets to its own host (DefaultEndpointToHostAction).
type ToHost uint8

// The actions. After Return other rules of the host may still drop the packet; they are not judged.
const (
	ToHostDrop ToHost = iota
	ToHostReturn
	ToHostAccept
)

// Failsafe is a port of this host that stays open whatever policy says.
type Failsafe struct {
	Protocol calico.Protocol
	Port     uint16
	Net      netip.Prefix // of the other side; the zero Prefix: anywhere
}

func (f Failsafe) String() string {
	name := fmt.Sprint(uint8(f.Protocol))
	switch f.Protocol {
	case calico.ProtocolTCP:
		name = "tcp"
	case calico.ProtocolUDP:
		name = "udp"
	}
	if f.Net.IsValid() {
		return fmt.Sprintf("%s %d with %s", name, f.Port, f.Net)
	}
	return fmt.Sprintf("%s %d", name, f.Port)
}

// Verdict is the decision over a packet.
type Verdict struct {
	Allowed   bool
	By        string    // what decided, like "policy default/web inbound rule 2"
	Code      flow.Code // of a denial
	Decider   Decider
	Untracked bool   // allowed by untracked policy, so that no connection is made of it
	Walk      []Step // what the packet was held against, in order
}

// Decider is the part of policy that decided over a packet; the zero Decider is none.
type Decider struct {
	Endpoint  Place // whose policy it is
	Direction calc.Direction
	List      calc.ListID // of the rule, or the list that is missing; the zero ListID: no list's
	Rule      int         // index in the stored list; 0: none
	Tier      string      // whose default denies
}

// Step is one thing with which a packet was matched.
type Step struct {
	Where string // like "policy default/web inbound"
	What  string // like "rule 2 matches: allow"
	List  calc.ListID
	Rule  int // of List, that matches; 0: none
}

// Judge decides over a packet.
func Judge(rules *Rules, config Config, p Packet) Verdict {
	j := judgement{rules: rules, config: config, p: p}
	in, out := rules.Way(p)
	d := j.decide(j.side(in), j.side(out))
	return Verdict{Allowed: d.allowed, By: d.by, Code: d.code, Decider: d.decider, Untracked: d.allowed && j.untrackedAllowed, Walk: j.walk}
}

// judgement is the way of one packet.
type judgement struct {
	rules  *Rules
	config Config
	p      Packet
	walk   []Step

	untrackedAllowed bool // by untracked policy: no connection is made of it
}

func (j *judgement) note(where, format string, args ...any) {
	j.walk = append(j.walk, Step{Where: where, What: fmt.Sprintf(format, args...)})
}

// decision is that of one part of the way. If it is not final, the next part decides.
type decision struct {
	final, allowed bool
	by             string
	code           flow.Code // of a denial
	decider        Decider
}

func allow(by string) decision { return decision{final: true, allowed: true, by: by} }

func deny(code flow.Code, by string) decision { return decision{final: true, code: code, by: by} }

// undecided returns the decision of a part that does not judge this packet, with the reason.
func undecided(why string) decision { return decision{by: why} }

// side is one end of the packet's way through this host: an interface, or the host itself.
type side struct {
	local    bool
	workload *calc.Workload
	host     *calc.Host
	place    Place
	name     string // of the endpoint, for text
}

// Way returns where a packet enters this host and where it leaves: at the interface of a Place, or
// at the host itself. The host is one end between a host endpoint and a Place outside, and where
// the address is the host's own.
func (r *Rules) Way(p Packet) (in, out Place) {
	in, out = p.From, p.To
	switch {
	case p.From.isHost() && p.To == Place{}:
		in, out = LocalHost(), p.From
	case p.To.isHost() && p.From == Place{}:
		in, out = p.To, LocalHost()
	case p.From.isWorkload() && p.To.isHost() && r.ownAddress(p.To.host, p.Dst):
		out = LocalHost()
	case p.From.isHost() && p.To.isWorkload() && r.ownAddress(p.From.host, p.Src):
		in = LocalHost()
	}
	return in, out
}

func (j *judgement) side(p Place) side {
	switch {
	case p.localHost:
		return side{local: true}
	case p.isWorkload():
		return side{workload: j.rules.workload(p.workload), place: p, name: p.workload.Endpoint}
	case p.isHost():
		return side{host: j.rules.hosts[p.host], place: p, name: p.host.Endpoint}
	}
	return side{}
}

func (j *judgement) decide(in, out side) decision {
	var entered, left decision
	switch {
	case in.workload != nil:
		entered = j.source(in)
	case in.host != nil:
		entered = j.early(in)
	case in.local && out.host != nil:
		left = j.untracked(out, calc.Outbound)
	}
	if d := firstDenial(entered, left); d.final {
		return d
	}
	j.translate(in)
	if out.local && !in.local && j.config.IPIP && j.p.Src.Is4() && j.p.Protocol == ipInIP {
		j.note("tunnel", "no host is known by the source address: deny")
		return deny(flow.CodeToHost, "IPIP from an address that is no host's")
	}
	if !entered.final {
		entered = j.enter(in, out)
	}
	if entered.final && !entered.allowed {
		return entered
	}
	if !left.final {
		left = j.leave(in, out)
	}
	switch {
	case left.final:
		return left
	case entered.final:
		return entered
	case entered.by != "":
		return allow(entered.by)
	}
	return allow(left.by)
}

func firstDenial(list ...decision) decision {
	for _, d := range list {
		if d.final && !d.allowed {
			return d
		}
	}
	return decision{}
}

// The reasons for which no endpoint judges a packet.
const (
	noEndpoint  = "no endpoint policy: interface without host endpoint"
	hostItself  = "no endpoint policy: traffic of the host itself to a workload"
	forWorkload = "no host endpoint policy: traffic to or from a workload"
)

func (j *judgement) enter(in, out side) decision {
	switch {
	case in.workload != nil && out.local:
		return j.toHost(in)
	case in.workload != nil:
		return j.workloadPolicy(in, calc.Outbound)
	case in.host != nil && out.workload != nil:
		j.note(hostName(in), "does not judge what goes to a workload")
		return undecided(forWorkload)
	case in.host != nil:
		return j.hostPolicy(in, calc.Inbound, out.local)
	case in.local && out.workload != nil:
		return undecided(hostItself)
	case in.local:
		return undecided("")
	}
	j.note("interface without host endpoint", "nothing judges what enters here")
	return undecided(noEndpoint)
}

func (j *judgement) leave(in, out side) decision {
	switch {
	case out.workload != nil && !active(out):
		return deny(j.notActive(out)) // it has no routes, whatever DropActionOverride says
	case out.workload != nil && in.local:
		j.note(workloadName(out), "does not judge what its own host sends")
		return undecided(hostItself)
	case out.workload != nil:
		return j.workloadPolicy(out, calc.Inbound)
	case out.host != nil && in.workload != nil:
		j.note(hostName(out), "does not judge what comes from a workload")
		return undecided(forWorkload)
	case out.host != nil:
		return j.hostPolicy(out, calc.Outbound, in.local)
	}
	return undecided(noEndpoint)
}

// ipInIP is the protocol of IPv4 in IPv4.
const ipInIP calico.Protocol = 4

// String names the endpoint.
func (s side) String() string {
	if s.workload != nil {
		return workloadName(s)
	}
	return hostName(s)
}

func workloadName(s side) string { return "workload " + s.name }
func hostName(s side) string     { return "host endpoint " + s.name }

package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
)

// HostAction applies to a workload's traffic to its own host, after the exceptions of spec §7.2.
type HostAction string

// ToHostDrop is the default. The other two apply the workload's outbound policy first, and do not
// differ here: other tables judge accepted packets in any case.
const (
	ToHostDrop   HostAction = "DROP"
	ToHostReturn HostAction = "RETURN"
	ToHostAccept HostAction = "ACCEPT"
)

// DropAction applies to packets that policy refuses, but not to checks of sources and tunnels.
type DropAction string

// Drop is the default. The others show what policy would drop.
const (
	Drop         DropAction = "DROP"
	Accept       DropAction = "ACCEPT"
	LogAndDrop   DropAction = "LOG-and-DROP"
	LogAndAccept DropAction = "LOG-and-ACCEPT"
)

// Failsafe is a port that stays open on host endpoints whatever their policy says (spec §7.1).
type Failsafe struct {
	Protocol calico.Protocol // tcp, udp, sctp or udplite
	Port     uint16
	Net      netip.Prefix // of the other side; the zero Prefix: anywhere
}

// Settings are those of the agent that the ruleset depends on (spec §14).
type Settings struct {
	WorkloadPrefixes []string   // InterfacePrefix: an interface whose name begins so is a workload's
	FailsafeInbound  []Failsafe // by destination port of what comes to this host
	FailsafeOutbound []Failsafe // by destination port of what this host sends
	ToHost           HostAction
	OnDrop           DropAction
	LogPrefix        string         // of rules that log and name none; empty: calico-packet
	OpenStack        bool           // let workloads reach DHCP, DNS and metadata of this host
	Metadata         netip.AddrPort // where metadata is served; the zero AddrPort: nowhere
	AcceptInvalid    bool           // DisableConntrackInvalidCheck
	// MostCounted is the number of rules of policies and profiles up to which each has a counter;
	// with more of them none has.
	MostCounted int
}

// check returns an error for settings that would make an unusable ruleset.
func (s *Settings) check() error {
	if len(s.WorkloadPrefixes) == 0 {
		return errors.New("settings: no prefix of workload interfaces")
	}
	for _, p := range s.WorkloadPrefixes {
		if p == "" || len(p) > nameLength-1 || strings.ContainsAny(p, "*\"\\ /") {
			return fmt.Errorf("settings: prefix of workload interfaces %q: want 1 to %d characters of an interface's name", p, nameLength-1)
		}
	}
	if !slices.Contains([]HostAction{ToHostDrop, ToHostReturn, ToHostAccept}, s.ToHost) {
		return fmt.Errorf("settings: action for a workload's traffic to its host %q: want DROP, RETURN or ACCEPT", s.ToHost)
	}
	if !slices.Contains([]DropAction{Drop, Accept, LogAndDrop, LogAndAccept}, s.OnDrop) {
		return fmt.Errorf("settings: drop action %q: want DROP, ACCEPT, LOG-and-DROP or LOG-and-ACCEPT", s.OnDrop)
	}
	for _, f := range slices.Concat(s.FailsafeInbound, s.FailsafeOutbound) {
		if !hasPorts(f.Protocol) || f.Port == 0 {
			return fmt.Errorf("settings: fail-safe port %d of protocol %d: want a port of tcp, udp, sctp or udplite", f.Port, f.Protocol)
		}
	}
	return nil
}

// workload reports whether the name is that of a workload's interface.
func (s *Settings) workload(name string) bool {
	return slices.ContainsFunc(s.WorkloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Pool is an address pool, for address translation (spec §10).
type Pool struct {
	CIDR       netip.Prefix
	Masquerade bool // traffic that leaves all pools takes the address of this host
}

// IPIP has the hosts with which this host exchanges IPIP packets.
type IPIP struct {
	Device  string     // such as tunl0
	Address netip.Addr // of the device; the zero Addr: none
	Peers   []netip.Addr
}

// VXLAN has the hosts with which this host exchanges VXLAN packets.
type VXLAN struct {
	Port  uint16 // UDP
	Peers []netip.Addr
}

// Surroundings are facts about the host and the store besides endpoints and policy.
type Surroundings struct {
	// HostInterfaces has the host endpoint that governs each interface (spec §8.5).
	HostInterfaces map[string]calico.HostEndpointKey
	// Exempt are the interfaces that policy leaves alone: the overlay's (spec §8.1).
	Exempt []string
	Pools  []Pool
	IPIP   *IPIP  // nil: no packets of this kind are ours to judge
	VXLAN  *VXLAN // nil: likewise
}

// Package calc decides what one host needs of all endpoints, profiles, tiers and policies: rules
// for each of its endpoints, and the address sets that they name. It is pure and incremental: the
// cost of an update follows what it changes, and the outcome does not depend on the order of
// updates.
package calc

import (
	"net/netip"

	"heddle/calico"
)

// SetID names an address set, of both families: "t:" and a tag, or "s:" and a selector's identity.
type SetID string

// Direction is that of a packet, seen from an endpoint.
type Direction uint8

// Inbound is towards the endpoint or the host endpoint's host, Outbound from it.
const (
	Inbound Direction = iota
	Outbound
)

// String returns inbound or outbound.
func (d Direction) String() string {
	if d == Outbound {
		return "outbound"
	}
	return "inbound"
}

// ListID names one list of rules: of a policy or a profile, in a direction.
type ListID struct {
	Tier      string // empty for a profile
	Name      string
	Direction Direction
}

// Rule is a rule with its tags and selectors resolved to sets. Rules for no family are left out.
type Rule struct {
	Action     string // calico.Allow, Deny, Log or NextTier
	Index      int    // of the rule in its stored list, from 1, for messages
	IPv4, IPv6 bool   // the families it may match

	Protocol, NotProtocol calico.Protocol

	// Both families in one list, masked. A family without an entry in a list is excluded above.
	SrcNets, DstNets, NotSrcNets, NotDstNets     []netip.Prefix
	SrcSets, DstSets, NotSrcSets, NotDstSets     []SetID // all must hold
	SrcPorts, DstPorts, NotSrcPorts, NotDstPorts []calico.Ports
	ICMPType, ICMPCode, NotICMPType, NotICMPCode *uint8

	LogPrefix string // empty: the default one where Action is Log, none elsewhere
}

// List has the rules of one list. With Missing it has none and drops everything: the profile has no
// valid rules, the policy is invalid, or a rule needs a set that is too large.
type List struct {
	Rules   []Rule
	Missing string // why it drops everything; empty: it does not
}

// Tier is the part of a tier that applies to an endpoint; tiers without a policy that selects the
// endpoint are left out. Endpoints with the same policies share the slices, so that comparing the
// address of the first element mostly suffices.
type Tier struct {
	Name              string
	Inbound, Outbound []ListID // in order; without any in a direction the tier is skipped in that direction
}

// Lists returns the lists of a direction.
func (t *Tier) Lists(d Direction) []ListID {
	if d == Inbound {
		return t.Inbound
	}
	return t.Outbound
}

// Workload is a local workload endpoint.
type Workload struct {
	Key      calico.WorkloadEndpointKey
	Endpoint *calico.WorkloadEndpoint
	Tiers    []Tier
	Profiles []string // in order; their lists are ListID{Name: …}
	Errors   []string // what is wrong with its policies and profiles, for its status
}

// Host is an endpoint of this host itself. The agent resolves which interface it governs.
type Host struct {
	Key      calico.HostEndpointKey
	Endpoint *calico.HostEndpoint
	// Invalid has the reason if the stored object is refused. The last valid one stays in force;
	// without one, Endpoint has at most a name and only fail-safe ports are open.
	Invalid   string
	Tiers     []Tier
	Untracked []Tier
	PreDNAT   []Tier // Inbound only
	Profiles  []string
	Errors    []string
}

// SetChange is a change of a set's members, of both families, in no particular order. A set that
// exceeds the maximum is Gone: the lists that name it drop everything instead.
type SetChange struct {
	New            bool // the set was not there; Added is all of it
	Gone           bool // no rule names it any more
	Added, Removed []netip.Addr
}

// Changes are the changes for this host since the last call. A nil pointer in a map means that the
// thing is gone. Everything named by a list or an endpoint exists once all Changes so far are
// applied.
type Changes struct {
	Sets      map[SetID]*SetChange
	Lists     map[ListID]*List
	Workloads map[calico.WorkloadEndpointKey]*Workload
	Hosts     map[calico.HostEndpointKey]*Host
}

// Problem is an inconsistency in what is stored, such as a refused object or a set too large.
type Problem struct {
	Key  calico.Key // the object at fault; nil: Set
	Set  SetID
	Text string
}

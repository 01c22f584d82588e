// Package calc decides what one host needs of all endpoints, profiles, tiers and policies: rules for each of its
// endpoints, and the address sets that they name. It is pure and incremental: what an update costs follows what it
// changes, and the outcome does not depend on the order of updates.
package calc

import (
	"net/netip"

	"heddle/calico"
)

// SetID names an address set: "t:" and a tag, or "s:" and a selector's stable identity. It stands for the addresses of
// both families.
type SetID string

// Direction is that of a packet, seen from an endpoint.
type Direction uint8

// Inbound is towards the endpoint (for a host endpoint, into the host's interface), Outbound what it emits.
const (
	Inbound Direction = iota
	Outbound
)

// ListID names one list of rules: of a policy or a profile, in a direction.
type ListID struct {
	Tier      string // empty for a profile
	Name      string
	Direction Direction
}

// Rule is a rule with its tags and selectors resolved to sets. A rule without any family is left out.
type Rule struct {
	Action     string // calico.Allow, Deny, Log or NextTier
	Index      int    // of the rule in its stored list, from 1, for messages
	IPv4, IPv6 bool   // the families it may match

	Protocol, NotProtocol calico.Protocol

	// Both families in one list, masked. With one given, a family without any entry is already excluded above.
	SrcNets, DstNets, NotSrcNets, NotDstNets     []netip.Prefix
	SrcSets, DstSets, NotSrcSets, NotDstSets     []SetID // all must hold
	SrcPorts, DstPorts, NotSrcPorts, NotDstPorts []calico.Ports
	ICMPType, ICMPCode, NotICMPType, NotICMPCode *uint8

	LogPrefix string // empty: the default one where Action is Log, none elsewhere
}

// List is the rules of one list. Missing says that the profile has no valid rules, that the policy is invalid, or that a
// rule needs a set with more addresses than a set may hold: the list then has no rules and drops everything.
type List struct {
	Rules   []Rule
	Missing string // why it drops everything; empty: it does not
}

// Tier is the part of a tier that applies to an endpoint. A tier of which no policy selects the endpoint is left out.
// Endpoints that the same policies pick share the slices, so a look at the first element's address mostly saves a look
// at all; there may be thousands.
type Tier struct {
	Name              string
	Inbound, Outbound []ListID // in order; without any in a direction the tier is skipped in that direction
}

// Workload is a local workload endpoint.
type Workload struct {
	Key      calico.WorkloadEndpointKey
	Endpoint *calico.WorkloadEndpoint
	Tiers    []Tier
	Profiles []string // in order; their lists are ListID{Name: …}
	Errors   []string // what is wrong with its policies and profiles, for its status
}

// Host is an endpoint of this host itself. Which interface it governs is resolved by whoever knows interfaces.
type Host struct {
	Key      calico.HostEndpointKey
	Endpoint *calico.HostEndpoint
	// Invalid says why the stored object is refused. The last valid one stays in force; without one, Endpoint holds at
	// most a name and only fail-safe ports are open.
	Invalid   string
	Tiers     []Tier
	Untracked []Tier
	PreDNAT   []Tier // Inbound only
	Profiles  []string
	Errors    []string
}

// SetChange is what became of a set's members. Both slices hold addresses of both families, in no particular order.
// A set that grows beyond the maximum is Gone: the lists that name it drop everything instead.
type SetChange struct {
	New            bool // the set was not there; Added is all of it
	Gone           bool // no rule names it any more
	Added, Removed []netip.Addr
}

// Changes is what became of this host's needs since the last time they were asked for. A nil pointer in a map means
// that the thing is gone. Everything named by a list, a workload or a host endpoint is there once all Changes so far
// are applied.
type Changes struct {
	Sets      map[SetID]*SetChange
	Lists     map[ListID]*List
	Workloads map[calico.WorkloadEndpointKey]*Workload
	Hosts     map[calico.HostEndpointKey]*Host
}

// Problem is something wrong in what was written: an object that is refused, a tier without metadata, a set that is too
// large.
type Problem struct {
	Key  calico.Key // the object at fault; nil: Set
	Set  SetID
	Text string
}

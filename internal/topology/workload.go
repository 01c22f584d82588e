package topology

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// WorkloadOwner is the device_owner of ports that temporary workloads may have.
const WorkloadOwner = "heddle:connectivity"

// Ports on which temporary workloads answer. The security group of `heddle connectivity` lets
// connections to the first one in, of TCP and UDP, and none to the second one.
const (
	WorkloadOpenPort   = 7681
	WorkloadClosedPort = 7682
)

// WorkloadRequest has a host's agent make a temporary workload with the interface of a port, unless
// it is there, and probe from it. The workload is removed on request, or a while after its last
// request.
type WorkloadRequest struct {
	PortID    string       `json:"portId"`
	Interface string       `json:"interface"` // of the port on the host
	MAC       packet.MAC   `json:"mac"`
	Address   netip.Prefix `json:"address"`           // IPv4, with the length of its subnet
	Address6  netip.Prefix `json:"address6,omitzero"` // IPv6 likewise, if the port has one
	MTU       int          `json:"mtu"`               // of the network, bytes
	Remove    bool         `json:"remove,omitempty"`
	Probes    []Probe      `json:"probes,omitempty"`
}

// ProbeKind selects what a probe tries.
type ProbeKind string

const (
	ProbeDHCP     ProbeKind = "dhcp"     // a lease of the workload's address and MTU
	ProbeMetadata ProbeKind = "metadata" // an answer of 169.254.169.254
	ProbeARP      ProbeKind = "arp"      // the target's MAC address
	ProbeNDP      ProbeKind = "ndp"      // likewise, by IPv6
	ProbeICMP     ProbeKind = "icmp"     // an answer to a small echo
	ProbeMTU      ProbeKind = "mtu"      // an answer to the largest packet, and that a larger one is refused
	ProbeTCP      ProbeKind = "tcp"      // a connection to the open port
	ProbeUDP      ProbeKind = "udp"      // an answer of the open port
	ProbeBlocked  ProbeKind = "blocked"  // that no connection is possible to the closed port
)

// Probe is one thing to try. Those with a target try to reach another workload, by the version of
// IP of its address.
type Probe struct {
	Kind   ProbeKind  `json:"kind"`
	Target netip.Addr `json:"target,omitzero"`
	MAC    packet.MAC `json:"mac,omitzero"` // of the target
}

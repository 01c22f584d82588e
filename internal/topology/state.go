package topology

import (
	"net/netip"
	"time"

	"heddle/internal/topology/packet"
)

// What hosts report lives under the lease of the reporting host and goes with it (midonet-topology §6). Each host
// writes only below its own key, so that its etcd role can be limited to it.

// HostState says that a host's agent is alive.
type HostState struct {
	HostID    string     `json:"hostId"`
	Name      string     `json:"name"`
	Version   string     `json:"version"`
	TunnelIP  netip.Addr `json:"tunnelIp"`
	MTU       int        `json:"mtu"` // of the underlay, bytes
	StartedAt time.Time  `json:"startedAt"`
	Roles     []string   `json:"roles"` // overlay, policy, dhcp…
}

// PortState says that a bound port's interface is present and served by its host.
type PortState struct {
	PortID string    `json:"portId"`
	HostID string    `json:"hostId"`
	Since  time.Time `json:"since"`
}

// LearnedMAC is a MAC address seen behind a port of the reporting host.
type LearnedMAC struct {
	HostID    string     `json:"hostId"`
	NetworkID string     `json:"networkId"`
	VLAN      uint16     `json:"vlan,omitempty"`
	MAC       packet.MAC `json:"mac"`
	PortID    string     `json:"portId"`
}

// LearnedNeighbour is an IP to MAC binding seen by the reporting host.
type LearnedNeighbour struct {
	HostID    string     `json:"hostId"`
	NetworkID string     `json:"networkId"`
	IP        netip.Addr `json:"ip"`
	MAC       packet.MAC `json:"mac"`
}

// TraceRequest asks the host's agent to simulate a frame on a port with its live state; short-lived.
type TraceRequest struct {
	ID     string `json:"id"`
	HostID string `json:"hostId"`
	PortID string `json:"portId"`
	Frame  []byte `json:"frame"`
}

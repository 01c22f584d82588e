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

// TunnelKeys are the public keys by which a host and each other host derive what they share: the secrets in tunnelled
// frames between them, and the keys of their state messages. It stays when the host is not alive: its frames go on.
type TunnelKeys struct {
	HostID string   `json:"hostId"`
	Keys   [][]byte `json:"keys"`           // X25519, newest first, at most 2
	Open   bool     `json:"open,omitempty"` // it has only begun to use keys: what comes without secret may be its own
	Boot   uint64   `json:"boot,string"`    // another one when the host has forgotten which messages have come
	// Wireguard is the public X25519 key of the host's WireGuard device; without one the host does not encrypt. Next is
	// the one that takes its place, before it does.
	Wireguard     []byte `json:"wireguard,omitempty"`
	WireguardNext []byte `json:"wireguardNext,omitempty"`
}

// PoolMember says that the agent by which a host is a member of a XenAPI pool is alive. It reports more, which only the
// pool reads.
type PoolMember struct {
	Host    string    `json:"host"` // as the XenAPI refers to it
	Version string    `json:"version"`
	Started time.Time `json:"started"`
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

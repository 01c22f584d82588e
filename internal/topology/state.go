package topology

import (
	"net/netip"
	"time"

	"heddle/internal/topology/packet"
)

// What hosts report is under the lease of the reporting host and goes with it (midonet-topology
// §6). Each host writes below its own key alone, so that its etcd role can be limited to it.

// HostState reports that a host's agent is alive.
type HostState struct {
	HostID    string     `json:"hostId"`
	Name      string     `json:"name"`
	Version   string     `json:"version"`
	TunnelIP  netip.Addr `json:"tunnelIp"`
	MTU       int        `json:"mtu"` // of the underlay, bytes
	StartedAt time.Time  `json:"startedAt"`
	Roles     []string   `json:"roles"`            // overlay, policy, dhcp…
	Reads     int        `json:"reads,omitempty"`  // newest format of the store that it reads
	Writes    int        `json:"writes,omitempty"` // newest that it can write
	// Instance tells agents that report as the same host from each other; "" = of an earlier
	// version.
	Instance string `json:"instance,omitempty"`
}

// DisplacedAgent reports that an agent runs under a host's identity though another one has the
// host's place.
type DisplacedAgent struct {
	HostID    string     `json:"hostId"`
	Instance  string     `json:"instance"` // as in HostState, of the agent that yields
	TunnelIP  netip.Addr `json:"tunnelIp"`
	StartedAt time.Time  `json:"startedAt"`
}

// TunnelKeys are a host's public keys, from which it and each other host derive what they share:
// the secrets in tunnelled frames, and the keys of state messages. They outlive the agent, as
// frames do.
type TunnelKeys struct {
	HostID string   `json:"hostId"`
	Keys   [][]byte `json:"keys"`           // X25519, newest first, at most 2
	Open   bool     `json:"open,omitempty"` // frames without a secret may be its own
	Boot   uint64   `json:"boot,string"`    // changes when the host forgets received messages
	// Wireguard is the public X25519 key of the host's WireGuard device; without one the host does
	// not encrypt. WireguardNext will replace it.
	Wireguard     []byte `json:"wireguard,omitempty"`
	WireguardNext []byte `json:"wireguardNext,omitempty"`
	// Hellos: the host's agent takes hellos by the tunnel, unlike those of earlier versions.
	Hellos bool `json:"hellos,omitempty"`
}

// PoolHost reports that a host's agent in a XenAPI pool is alive. It has more fields.
type PoolHost struct {
	Host    string    `json:"host"` // as the XenAPI refers to it
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Reads   int       `json:"reads,omitempty"` // as in HostState
	Writes  int       `json:"writes,omitempty"`
}

// MemberHealth is the newest verdict of a health monitor's checks of a pool's member, reported by
// the host that runs them.
type MemberHealth struct {
	MemberID string    `json:"memberId"`
	HostID   string    `json:"hostId"`
	Status   string    `json:"status"` // MemberActive or MemberInactive
	Since    time.Time `json:"since"`
}

// VipTraffic is a host's count of a VIP's traffic since the agent started: of connections that the
// host has let in, and of the bytes of IP packets that it has sent on. Each host counts those that
// enter the virtual network by its ports: clients' packets, and members' replies.
type VipTraffic struct {
	VipID  string `json:"vipId"`
	HostID string `json:"hostId"`
	Active int    `json:"active"` // connections now
	Total  uint64 `json:"total"`  // connections
	In     uint64 `json:"in"`     // bytes from clients
	Out    uint64 `json:"out"`    // bytes to clients
}

// ContainerHost reports the kinds of service containers that a host runs.
type ContainerHost struct {
	HostID string   `json:"hostId"`
	Kinds  []string `json:"kinds"`           // that it is able to run, in order
	Lacks  []string `json:"lacks,omitempty"` // kinds for which it lacks a program
	Weight int      `json:"weight"`          // its share of the containers, counted up to 10; 0 = none that is new
	Limit  int      `json:"limit,omitempty"` // containers that it runs at most; 0 = any number
}

// States of a service container on its host.
const (
	ContainerStarting = "STARTING"
	ContainerRunning  = "RUNNING"
	ContainerStopping = "STOPPING"
	ContainerStopped  = "STOPPED"
	ContainerError    = "ERROR"
)

// ContainerState is the state of a service container that a host runs.
type ContainerState struct {
	ContainerID string    `json:"containerId"`
	HostID      string    `json:"hostId"`
	Status      string    `json:"status"`            // ContainerRunning, …
	Message     string    `json:"message,omitempty"` // what is wrong
	Namespace   string    `json:"namespace"`
	Interface   string    `json:"interface"`
	Since       time.Time `json:"since"`
	// Unchecked are the pools whose members it does not check although it runs, with the reason.
	Unchecked map[string]string `json:"unchecked,omitempty"`
}

// PortState reports that a bound port's interface is present and served by its host.
type PortState struct {
	PortID string    `json:"portId"`
	HostID string    `json:"hostId"`
	Since  time.Time `json:"since"`
}

// PortArrival reports that the machine of a port runs on a host that the port is not bound to yet:
// the host has a standby interface for it, by which the machine has sent a frame.
type PortArrival struct {
	PortID string    `json:"portId"`
	HostID string    `json:"hostId"`
	Since  time.Time `json:"since"` // the frame came
}

// NATBlock is a host's claim to the ports Block*64 and on of a router's translated address. Of
// several claims to one block the earliest counts, and of one host those to half of an address.
type NATBlock struct {
	HostID   string     `json:"hostId"`
	DeviceID string     `json:"deviceId"` // of the router
	Address  netip.Addr `json:"address"`
	Block    uint16     `json:"block"`
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

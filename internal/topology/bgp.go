package topology

import (
	"hash/fnv"
	"net/netip"
	"time"
)

// BgpPeer is a router outside with which the BGP speaker of a router has a session
// (midonet-topology §2.6).
type BgpPeer struct {
	ID       string     `json:"id"`
	RouterID string     `json:"routerId"`
	Address  netip.Addr `json:"address"` // IPv4
	ASNumber uint32     `json:"asNumber"`
	// KeepAlive, HoldTime and ConnectRetry are seconds; 0 = [BgpKeepAlive], [BgpHoldTime] and
	// [BgpConnectRetry].
	KeepAlive    int `json:"keepAlive,omitempty"`
	HoldTime     int `json:"holdTime,omitempty"`
	ConnectRetry int `json:"connectRetry,omitempty"`
	// Password is that of the TCP MD5 signature option (RFC 2385), "" for none. Stored bundles,
	// which all hosts read, lack it: see BgpPasswords.
	Password string `json:"password,omitempty"`
}

// BgpPasswords are the passwords of a router's peers, for the host that runs the router's speaker.
type BgpPasswords struct {
	HostID    string            `json:"hostId"`
	RouterID  string            `json:"routerId"`
	Passwords map[string]string `json:"passwords"` // by the peer's id
}

// Timers of sessions, seconds (midonet-topology §2.6).
const (
	BgpKeepAlive    = 60
	BgpHoldTime     = 180
	BgpConnectRetry = 120
)

// BgpNetwork is a destination that a router's speaker has to announce (midonet-topology §2.6).
type BgpNetwork struct {
	ID       string       `json:"id"`
	RouterID string       `json:"routerId"`
	Subnet   netip.Prefix `json:"subnet"`
}

// BgpSpeaker is the work of a router's BGP speaker, which runs in a service container (services
// §6). It is computed from the router, its ports and its Neutron speaker, so that the agent that
// runs it needs nothing else of them but FloatingAddresses. Link makes of it the router's AS number
// and redirect chain.
type BgpSpeaker struct {
	RouterID    string `json:"routerId"`
	ContainerID string `json:"containerId"`
	ASNumber    uint32 `json:"asNumber"`
	// Identifier is the BGP identifier of RFC 4271, the lowest local address of the sessions;
	// invalid while none has one.
	Identifier netip.Addr `json:"identifier,omitzero"`
	// RedirectChainID is the chain whose rules hand the peers' packets to the container.
	RedirectChainID string       `json:"redirectChainId"`
	Sessions        []BgpSession `json:"sessions"` // by peer's id
	// Announced are the destinations to announce now, in order: of the router's BgpNetworks those
	// that are up, and none if its Neutron speaker does not advertise tenants' networks.
	Announced []netip.Prefix `json:"announced,omitempty"`
	// AnnouncesFloating has the router's FloatingAddresses announced too, each as a host route.
	AnnouncesFloating bool      `json:"announcesFloating,omitempty"`
	Links             []BgpLink `json:"links,omitempty"` // by port's id
}

// BgpSession is the router's end of the session with a peer.
type BgpSession struct {
	PeerID string `json:"peerId"`
	// LocalAddress is the address of the router that the session is bound to, and PortID the
	// router's port that has it. Without them the router has no route to the peer.
	LocalAddress netip.Addr `json:"localAddress,omitzero"`
	PortID       string     `json:"portId,omitempty"`
}

// BgpLink is a port by which the router is on subnets, where next hops of learned routes are.
type BgpLink struct {
	PortID  string         `json:"portId"`
	Subnets []netip.Prefix `json:"subnets"` // masked, IPv4, in order
	// Addresses are the router's own there, in order; they are no next hops.
	Addresses []netip.Addr `json:"addresses"`
	// Tenant reports whether these are networks of machines, for which no routes may be learned,
	// nor for parts of them.
	Tenant bool `json:"tenant,omitempty"`
}

// FloatingAddress is an address of an external network that a router's port stands for: that of a
// floating IP. Several owners may have the same: each forwarding of the address's ports has it.
type FloatingAddress struct {
	RouterID string     `json:"routerId"`
	PortID   string     `json:"portId"` // of the router
	Address  netip.Addr `json:"address"`
}

// LearnedRouteWeight is the weight of learned routes, which those that clients make come before
// (services §6.3).
const LearnedRouteWeight = 200

// LearnedRouteBlocks is the number of LearnedRoutes that those of a port are divided into, so that
// a change of one of many is a small record.
const LearnedRouteBlocks = 64

// LearnedRoutes are routes by a router's port that the reporting host has learned by BGP: all those
// of the port whose destinations are in a block.
type LearnedRoutes struct {
	HostID string         `json:"hostId"`
	PortID string         `json:"portId"`
	Block  int            `json:"block"` // LearnedRouteBlock of each
	Routes []LearnedRoute `json:"routes"`
}

// LearnedRoute is a destination with a router on the port's subnet that leads to it. Several to one
// destination share its connections.
type LearnedRoute struct {
	Dst     netip.Prefix `json:"dst"` // masked, IPv4
	Gateway netip.Addr   `json:"gw"`
}

// LearnedRouteBlock returns the block of a destination, which a writer uses to divide routes.
// Readers take routes from any block.
func LearnedRouteBlock(dst netip.Prefix) int {
	h := fnv.New32a()
	a := dst.Addr().As16()
	_, _ = h.Write(append(a[:], byte(dst.Bits())))
	return int(h.Sum32() % LearnedRouteBlocks)
}

// States of a session (RFC 4271 §8.2.2).
const (
	BgpIdle        = "IDLE"
	BgpConnect     = "CONNECT"
	BgpActive      = "ACTIVE"
	BgpOpenSent    = "OPENSENT"
	BgpOpenConfirm = "OPENCONFIRM"
	BgpEstablished = "ESTABLISHED"
)

// BgpState is the state of a router's speaker, reported by the host that runs it. It changes with
// states of sessions; counts alone are reported at intervals.
type BgpState struct {
	HostID   string         `json:"hostId"`
	PortID   string         `json:"portId"` // the router's port that leads to the container
	RouterID string         `json:"routerId"`
	Peers    []BgpPeerState `json:"peers"` // by id
}

// BgpPeerState is the state of the session with a peer.
type BgpPeerState struct {
	PeerID     string     `json:"peerId"`
	Address    netip.Addr `json:"peer"`
	State      string     `json:"state"`      // BgpIdle, …
	Since      time.Time  `json:"since"`      // of the state
	Received   int        `json:"received"`   // routes in use, or kept while the peer restarts
	Refused    int        `json:"refused"`    // routes received that are not used
	Advertised int        `json:"advertised"` // destinations
	LastError  string     `json:"lastError,omitempty"`
}

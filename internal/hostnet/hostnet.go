// Package hostnet is the network of this machine as its agents see it: links, addresses, routes and
// neighbours of one network namespace, and the namespaces themselves. [Net] is the contract;
// [Linux] is the kernel over netlink, [Fake] behaves like it in memory. Both print themselves in
// the same words, see [Text].
//
// Operations are idempotent: deleting what is gone is success. Errors wrap the sentinels below
// where a caller can decide by them.
package hostnet

import (
	"context"
	"errors"
	"net/netip"
)

var (
	// ErrNotFound: no such link, or no route to the address.
	ErrNotFound = errors.New("not found")
	// ErrExists: a link with this name exists already.
	ErrExists = errors.New("exists already")
	// ErrInvalid: the kernel can never do that: a bad name, an MTU out of range, an unknown kind.
	ErrInvalid = errors.New("not valid")
	// ErrUnreachable: a route's gateway lies on no link of ours, or its link is down.
	ErrUnreachable = errors.New("unreachable")
	// ErrUnsupported: this kernel has no such thing, say a kind of link; a module may be missing.
	ErrUnsupported = errors.New("not supported by this kernel")
)

// MAC is a 48-bit Ethernet address.
type MAC = [6]byte

// Kind is the kind of a link as the kernel names it; [Device] has none.
type Kind string

const (
	Veth   Kind = "veth"
	Tap    Kind = "tap" // what a virtual machine opens
	Tun    Kind = "tun"
	VXLAN  Kind = "vxlan"
	IPIP   Kind = "ipip"
	Bridge Kind = "bridge"
	Dummy  Kind = "dummy"
	Bond   Kind = "bond"
	VLAN   Kind = "vlan" // the frames of one tag on another link
	// WireGuard is a device of the kernel that encrypts.
	WireGuard Kind = "wireguard"
	Loopback  Kind = "loopback"
	Device    Kind = "device" // a network card, or what the kernel gives no kind
)

// Link is a network interface.
type Link struct {
	Index   int
	Name    string
	Kind    Kind
	MAC     MAC
	MTU     int  // bytes
	Up      bool // set up by the administrator
	Running bool // up, and the other end is there (carrier)
	// Elsewhere: the other end of a veth is in another namespace.
	Elsewhere bool
	VXLAN     VXLANSpec // of a VXLAN that belongs to one network
	// Master is the index of the bridge or bond that the link is a port of; 0: none.
	Master int
	// Parent is the index of the link below a VLAN interface, and Tag the VLAN's; 0 for others.
	Parent, Tag int
}

// VXLANSpec holds the settings of a VXLAN of one network.
type VXLANSpec struct {
	VNI   uint32     // 1 to 2^24-1; 0: external, the sender chooses the network
	Port  uint16     // UDP, of both ends
	Local netip.Addr // outer source; the zero Addr: the kernel chooses
}

// LinkSpec describes a link to make. It is made down; see [Net.SetUp].
type LinkSpec struct {
	Name string
	Kind Kind // Veth, Tap, VXLAN, IPIP, Bridge, Dummy or WireGuard
	MAC  MAC  // zero = the kernel chooses
	MTU  int  // 0 = the kernel's default
	// Peer names the other end of a veth; it appears in PeerNet, or in the same namespace when that
	// is nil. PeerNet must be of the same implementation.
	Peer    string
	PeerNet Net
	// Port is the UDP port of a VXLAN. Without a VNI the link is made "external": the sender
	// chooses the network of each packet. With one it learns nothing: see SetForward.
	Port  uint16
	VNI   uint32
	Local netip.Addr // outer source of a VXLAN with a VNI
}

// Route is a route of the main table. The zero Gateway means that the destination is on the link.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
	Link    string // may be empty in SetRoute with a gateway
	Source  netip.Addr
	MTU     int  // bytes, 0 = the link's
	Kernel  bool // made by the kernel for an address
	// Protocol is the number of the program that made it; 0 in SetRoute: set by hand.
	Protocol uint8
	// OnLink: Link reaches the gateway whatever addresses it has, as a tunnel does.
	OnLink bool
	// Blackhole drops what goes there. It has no link or gateway.
	Blackhole bool
}

// NeighbourState groups the kernel's neighbour states by their use for a sender.
type NeighbourState uint8

const (
	Incomplete NeighbourState = iota + 1 // no answer yet
	Reachable                            // confirmed of late, or set by hand
	Stale                                // known, not confirmed of late: usable
	Failed                               // no answer
)

func (s NeighbourState) String() string {
	return [...]string{"none", "incomplete", "reachable", "stale", "failed"}[s]
}

// Neighbour is an address on a link with the MAC that answers for it.
type Neighbour struct {
	Link  string
	IP    netip.Addr
	MAC   MAC
	State NeighbourState
	// Permanent: set by hand, it stays until it is deleted.
	Permanent bool
}

// Proxy is an address of another machine for which this host answers on a link.
type Proxy struct {
	Link string
	IP   netip.Addr
}

// Forward is a MAC with the outer address behind which a VXLAN reaches it.
type Forward struct {
	MAC    MAC
	Remote netip.Addr
}

// Setting is a kernel parameter of a namespace. Name is its path below /proc/sys/net, such as
// ipv4/conf/eth0/rp_filter.
type Setting struct{ Name, Value string }

// Usable reports whether frames can be sent to the neighbour's MAC.
func (n Neighbour) Usable() bool { return n.State == Reachable || n.State == Stale }

// Hop is the way to an address: the link to leave by and the address to ask for on it.
type Hop struct {
	Link    Link
	Source  netip.Addr // of this host, as the kernel would choose it
	NextHop netip.Addr // the gateway, or the address itself when it is on the link
	MTU     int        // bytes: the route's, or the link's
	Local   bool       // the address is one of this host's own
}

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	LinkSet EventKind = iota + 1 // appeared or changed
	LinkGone
	AddressChanged // added or removed
	RouteChanged   // added, changed or removed
	NeighbourSet   // appeared or changed
	NeighbourGone
	Lost // events were missed: list again
)

// Event is one change.
type Event struct {
	Kind      EventKind
	Link      Link         // of LinkSet and LinkGone
	LinkIndex int          // of AddressChanged, RouteChanged, NeighbourSet and NeighbourGone
	Removed   bool         // of AddressChanged and RouteChanged
	Address   netip.Prefix // of AddressChanged
	Route     Route        // of RouteChanged; Link is empty
	Neighbour Neighbour    // of NeighbourSet and NeighbourGone; Link is empty
}

// Net is the network of one namespace. Its methods may be called from several goroutines at once.
type Net interface {
	// Links returns all links, by index.
	Links() ([]Link, error)
	// Link returns the link of that name, or ErrNotFound.
	Link(name string) (Link, error)
	// AddLink makes a link; ErrExists when the name is taken, ErrInvalid when it cannot be.
	AddLink(LinkSpec) (Link, error)
	// DeleteLink removes a link (of a veth, both ends).
	DeleteLink(name string) error
	// SetUp sets a link up or down; ErrNotFound without such a link.
	SetUp(name string, up bool) error
	// SetMTU sets a link's MTU in bytes.
	SetMTU(name string, mtu int) error

	// Silence disables this host's own IPv6 on a link, with its addresses and solicitations.
	Silence(name string) error

	// Addresses returns a link's addresses in order, without the kernel's own (fe80::/10).
	Addresses(link string) ([]netip.Prefix, error)
	// AllAddresses returns those of all links, by index of the link, in one request.
	AllAddresses() (map[int][]netip.Prefix, error)
	// LinkWith returns the link that has the address, or ErrNotFound.
	LinkWith(address netip.Addr) (Link, error)
	AddAddress(link string, address netip.Prefix) error
	DeleteAddress(link string, address netip.Prefix) error

	// Setting reads a kernel parameter; ErrNotFound if there is none, as after its link is gone.
	Setting(name string) (string, error)
	// Set writes those kernel parameters that differ, all of them even when one fails.
	Set(...Setting) error

	// Routes returns the unicast and blackhole routes of the main table in order.
	Routes() ([]Route, error)
	// SetRoute adds the route or puts it in place of the one to the same destination.
	SetRoute(Route) error
	// DeleteRoute removes the route to a destination.
	DeleteRoute(dst netip.Prefix) error
	// DeleteRouteOf removes the route to r.Dst if it has r's Link and Protocol, where given.
	DeleteRouteOf(r Route) error
	// RouteTo returns the kernel's way to an address; ErrNotFound without a route.
	RouteTo(netip.Addr) (Hop, error)
	// LinksTo returns the links of the route to an address: one for each next hop.
	LinksTo(netip.Addr) ([]Link, error)

	// Neighbours returns the neighbours of all links.
	Neighbours() ([]Neighbour, error)
	// SetNeighbour sets a permanent neighbour.
	SetNeighbour(link string, ip netip.Addr, mac MAC) error
	DeleteNeighbour(link string, ip netip.Addr) error
	// Probe has the kernel resolve ip on the link, unless it has been confirmed of late. The result
	// appears in Neighbours and Watch.
	Probe(link string, ip netip.Addr) error

	// Proxies returns the IPv6 addresses for which this host answers.
	Proxies() ([]Proxy, error)
	SetProxy(Proxy) error
	DeleteProxy(Proxy) error

	// Forwards returns the permanent entries of a VXLAN with a VNI in order.
	Forwards(link string) ([]Forward, error)
	// SetForward adds the entry or puts it in place of the one for the same MAC.
	SetForward(link string, f Forward) error
	DeleteForward(link string, f Forward) error

	// ForgetConnections deletes the tracked connections with one of the addresses at either end,
	// before or after translation.
	ForgetConnections(addresses ...netip.Addr) error

	// Watch sends changes from now on until ctx ends; the channel is then closed. Changes of links
	// come in order, so do those of addresses, of routes and of neighbours, but not across. A
	// reader that is too slow loses events and receives Lost.
	Watch(ctx context.Context) (<-chan Event, error)
	Close() error
}

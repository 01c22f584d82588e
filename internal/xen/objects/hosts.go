package objects

import (
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Bridge is a network's bridge on a host.
type Bridge struct {
	Name        string `json:"name"`         // at most 15 characters
	NetworkUUID string `json:"network_uuid"` // of the XenAPI's network
	MAC         string `json:"mac"`          // its other_config:hwaddr; "" leaves it to the host
	MTU         int    `json:"mtu"`          // bytes
	FailMode    string `json:"fail_mode"`    // standalone or secure
	// Parent is the bridge whose frames with the VLAN tag Tag belong to this one, and that carries
	// this one's tagged with it; "": none. Only hosts that report CanVLAN are asked for such
	// bridges.
	Parent string `json:"parent,omitempty"`
	Tag    int    `json:"tag,omitempty"`
}

// Order asks a host for one thing that no object speaks of yet. It is kept until it is deleted or
// its server is gone. Exactly one of Bridge (with a name), Address and Join is set. A bridge is
// answered by its [BridgeReport], which names the order; the others by an [OrderReport]. What a
// host does not say that it can is not asked of it.
type Order struct {
	Host    string   `json:"host"` // the host's ref
	ID      string   `json:"id"`
	Bridge  Bridge   `json:"bridge,omitzero"`
	Address *Address `json:"address,omitempty"`
	Join    *Join    `json:"join,omitempty"`
}

// Address has an interface configured, now and after each start of the host, until another order
// says otherwise. The host's report shows it when the order is answered, or soon after. Interfaces
// that no order is about are not touched.
type Address struct {
	Device  string   `json:"device"`         // as in Interface
	VLAN    int      `json:"vlan,omitempty"` // as in Interface
	Family  int      `json:"family"`         // 4 or 6
	Mode    string   `json:"mode"`           // None, DHCP, Static; of IPv6 Autoconf too
	IP      string   `json:"ip,omitempty"`
	Netmask string   `json:"netmask,omitempty"` // of IPv4
	IPv6    []string `json:"ipv6,omitempty"`    // with prefix lengths
	Gateway string   `json:"gateway,omitempty"`
	DNS     string   `json:"dns,omitempty"` // separated by commas
}

// Join has a host leave this pool for another: its agent joins there with the token, then answers
// with an OrderReport here, and from then on reports there alone. Where the token is refused it
// answers why, and stays.
type Join struct {
	Token string `json:"token"` // as heddle agent takes it
}

// Orders are "<host>/<id>".
var Orders = records.NewDerivedTable("xen-order", schema.XenPrefix+"orders/", func(o *Order) string { return o.Host + "/" + o.ID },
	records.Index("host", func(o *Order) []string { return []string{o.Host} }))

// OrderReport is a host's answer to an order not for a bridge. It is deleted with the order.
type OrderReport struct {
	Host  string `json:"host"` // the host's ref
	ID    string `json:"id"`
	Error string `json:"error,omitempty"` // why it could not be done; text for people
}

// OrderReports are "<host>/<id>".
var OrderReports = records.NewDerivedTable("xen-order-report", schema.XenPrefix+"state/*/orders/", func(r *OrderReport) string { return r.Host + "/" + r.ID },
	records.Index("host", func(r *OrderReport) []string { return []string{r.Host} }))

// Interface is one of a host's own, as a PIF has it.
type Interface struct {
	Device   string   `json:"device"`
	VLAN     int      `json:"vlan,omitempty"`    // the tag, of a VLAN interface on Device; 0: it is none
	Members  []string `json:"members,omitempty"` // the devices of a bond, the primary one first
	MAC      string   `json:"mac"`
	MTU      int      `json:"mtu"`              // bytes
	Bridge   string   `json:"bridge,omitempty"` // the bridge that it is a port of, which then has the addresses
	Carrier  bool     `json:"carrier"`
	Speed    int      `json:"speed"` // Mbit/s; 0 = unknown
	Duplex   bool     `json:"duplex"`
	Physical bool     `json:"physical"`
	Mode     string   `json:"mode"` // None, DHCP, Static: how it came to its IPv4 address
	IP       string   `json:"ip,omitempty"`
	Netmask  string   `json:"netmask,omitempty"`
	Gateway  string   `json:"gateway,omitempty"`
	DNS      string   `json:"dns,omitempty"`       // separated by commas
	IPv6     []string `json:"ipv6,omitempty"`      // with prefix lengths, without link-local ones
	IPv6Mode string   `json:"ipv6_mode,omitempty"` // None ("" too), DHCP, Static, Autoconf
}

// What a host may say in Can.
const (
	CanVLAN    = "vlan"    // bridges with a Parent
	CanAddress = "address" // orders for addresses
	CanJoin    = "join"    // orders to join another pool
	// Imagined is for hosts that exist in a file alone: their interfaces follow the pool.
	Imagined = "imagined"
)

// HostReport is the report of a host by its agent.
type HostReport struct {
	Host       string      `json:"host"` // the host's ref: "OpaqueRef:" and its id
	ID         string      `json:"id"`   // the agent's host id, a UUID: host.uuid
	Name       string      `json:"name"`
	Address    string      `json:"address"`
	Backend    string      `json:"backend"` // openvswitch or bridge
	Version    string      `json:"version"`
	Started    time.Time   `json:"started"`
	Reads      int         `json:"reads,omitempty"`  // newest format of the store that it reads
	Writes     int         `json:"writes,omitempty"` // newest that it can write
	Memory     [2]int64    `json:"memory"`           // bytes in all, bytes free
	Can        []string    `json:"can,omitempty"`    // what it can do beside plain bridges
	Interfaces []Interface `json:"interfaces"`
}

// HostReports say which hosts live; the id is the host's ref.
var HostReports = records.NewDerivedTable("xen-host-report", schema.XenPrefix+"state/*/alive", func(r *HostReport) string { return r.Host })

// BridgeReport is a host's report of a bridge that is there, or of why it is not.
type BridgeReport struct {
	Host   string   `json:"host"` // the host's ref
	Bridge Bridge   `json:"bridge"`
	Orders []string `json:"orders,omitempty"` // ids of the orders that it answers
	Error  string   `json:"error,omitempty"`  // why it could not be made; text for people
}

// BridgeReports are "<host>/<bridge>".
var BridgeReports = records.NewDerivedTable("xen-bridge", schema.XenPrefix+"state/*/bridges/", func(r *BridgeReport) string { return r.Host + "/" + r.Bridge.Name },
	records.Index("host", func(r *BridgeReport) []string { return []string{r.Host} }))

// Expulsion keeps a host that has left the pool from coming back by its reports alone. One that
// starts anew, and is still let into the store, has been let in again.
type Expulsion struct {
	Host    string    `json:"host"`    // the host's ref
	Started time.Time `json:"started"` // of its last report; zero: unknown
}

// Expelled are found by the host's ref.
var Expelled = records.NewTable("xen-expelled", schema.XenPrefix+"expelled/", func(e *Expulsion) string { return e.Host })

// Joiner holds the networks of a host that is about to join. It is found by its name.
type Joiner struct {
	Name     string            `json:"name"`     // of the host
	Networks map[string]string `json:"networks"` // by [DeviceKey]: the ref of the network that the interface is on
}

// Joining are found by the host's name.
var Joining = records.NewTable("xen-joining", schema.XenPrefix+"joining/", func(j *Joiner) string { return j.Name })

// Membership records that this pool's only host has joined another: clients are sent there.
type Membership struct {
	Coordinator string `json:"coordinator"` // its address, an IPv6 one without brackets
}

// Memberships holds one record at most, "pool".
var Memberships = records.NewTable("xen-membership", schema.XenPrefix+"membership/", func(*Membership) string { return "pool" })

// Coordinator returns the address of the pool that this store's host has joined, if any.
func Coordinator(r records.Reader) (string, bool) {
	m, ok := Memberships.Peek(r, "pool")
	if !ok {
		return "", false
	}
	return m.Coordinator, true
}

package topology

import (
	"net/netip"

	"heddle/internal/topology/packet"
)

// Instance holds what a host's metadata service answers the machine behind a port. Servers write
// one for each host that serves the port, and no other host may read it.
type Instance struct {
	HostID    string          `json:"hostId"`
	PortID    string          `json:"portId"`
	DeviceID  string          `json:"deviceId,omitempty"`
	ProjectID string          `json:"projectId"`
	Name      string          `json:"name,omitempty"` // dns_name of the port, else its name
	Domain    string          `json:"domain,omitempty"`
	Zone      string          `json:"zone"`             // availability zone of the host
	Groups    []string        `json:"groups,omitempty"` // names of security groups
	Links     []InstanceLink  `json:"links"`            // of all ports of the machine, oldest first
	Floating  []netip.Addr    `json:"floating,omitempty"`
	Secrets   *SealedForAHost `json:"secrets,omitempty"` // InstanceSecrets; nil: there are none
}

// InstanceLink is a network interface of a machine.
type InstanceLink struct {
	PortID    string           `json:"portId"`
	MAC       packet.MAC       `json:"mac"`
	MTU       int              `json:"mtu"` // bytes
	NetworkID string           `json:"networkId"`
	Subnets   []InstanceSubnet `json:"subnets,omitempty"` // in the order of the port's addresses
}

// InstanceSubnet is an address of an interface, with what its subnet says.
type InstanceSubnet struct {
	Address netip.Prefix  `json:"address"` // not masked
	Gateway netip.Addr    `json:"gateway,omitzero"`
	DNS     []netip.Addr  `json:"dns,omitempty"`
	Routes  []Opt121Route `json:"routes,omitempty"`
	Mode    string        `json:"mode,omitempty"` // IPv6: slaac, dhcpv6-stateful, dhcpv6-stateless, ""
	DHCP    bool          `json:"dhcp,omitempty"` // the subnet has DHCP
}

// InstanceSecrets holds the keys and data that users give to their machines. It is stored sealed.
type InstanceSecrets struct {
	Hostname     string   `json:"hostname,omitempty"`     // in place of Instance.Name
	SSHKeys      []string `json:"sshKeys,omitempty"`      // lines of authorized_keys
	PasswordHash string   `json:"passwordHash,omitempty"` // as crypt(3) makes it
	UserData     []byte   `json:"userData,omitempty"`
}

// SealedForAHost is a secret that one host is able to open.
type SealedForAHost struct {
	Key    string `json:"key"`    // fingerprint of the host's public key
	Digest []byte `json:"digest"` // keyed, of what is sealed: equal for equal secrets
	Box    []byte `json:"box"`
}

// MetadataKey is the public key for which servers seal what a host's metadata service may read.
type MetadataKey struct {
	HostID string `json:"hostId"`
	Key    []byte `json:"key"` // X25519
}

// Package operator defines the answers of the operators' API, which servers write and the command
// line reads.
package operator

import (
	"net/netip"
	"time"

	"heddle/internal/topology/flow"
)

// Host is a host as operators see it. What the host itself reports is missing while it is not
// alive.
type Host struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Alive     bool       `json:"alive"`
	TunnelIP  string     `json:"tunnel_ip"`
	MTU       int        `json:"mtu"` // of the underlay, bytes
	Version   string     `json:"version"`
	Roles     []string   `json:"roles"`
	Ports     int        `json:"ports"`      // bound to it
	JoinedAt  *time.Time `json:"joined_at"`  // null when it was never let in by a token
	StartedAt *time.Time `json:"started_at"` // of its agent
	CutOff    string     `json:"cut_off"`    // why it was cut off from the store; "" when it was not
}

// BGPRouter is a router that speaks BGP.
type BGPRouter struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	AS         uint32         `json:"as"`
	Host       string         `json:"host,omitempty"`    // name of the one that runs the speaker
	Status     string         `json:"status"`            // of the speaker: RUNNING, …; DOWN without a host
	Message    string         `json:"message,omitempty"` // what is wrong
	Announced  []netip.Prefix `json:"announced"`
	Learned    int            `json:"learned"` // destinations in use
	Identifier netip.Addr     `json:"identifier,omitzero"`
	Peers      []BGPPeer      `json:"peers"`
}

// BGPPeer is a router's session with a peer.
type BGPPeer struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Address    netip.Addr `json:"address"`
	AS         uint32     `json:"as"`
	State      string     `json:"state"`
	Since      time.Time  `json:"since,omitzero"`
	Received   int        `json:"received"`
	Refused    int        `json:"refused"`
	Advertised int        `json:"advertised"`
	LastError  string     `json:"last_error,omitempty"`
}

// Traffic holds the tunnels of a host, and what its ports have sent in each network.
type Traffic struct {
	Host     string              `json:"host"` // its name
	Tunnels  []flow.TunnelReport `json:"tunnels"`
	Networks []NetworkTraffic    `json:"networks"` // the busiest first
}

// NetworkTraffic counts what a host's ports have sent in a network.
type NetworkTraffic struct {
	Name string `json:"name"`
	flow.NetworkReport
}

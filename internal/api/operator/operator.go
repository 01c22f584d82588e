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

// Traffic holds the tunnels of a host, what its ports have sent in each network, and which of them
// keep it busy.
type Traffic struct {
	Host     string              `json:"host"` // its name
	Tunnels  []flow.TunnelReport `json:"tunnels"`
	Networks []NetworkTraffic    `json:"networks"` // the busiest first
	Ports    []PortTraffic       `json:"ports"`
}

// PortTraffic counts what a port makes its host do.
type PortTraffic struct {
	Name string `json:"name"`
	flow.PortReport
}

// NetworkTraffic counts what a host's ports have sent in a network.
type NetworkTraffic struct {
	Name string `json:"name"`
	flow.NetworkReport
}

// Authorities holds the authorities that sign certificates, a rotation of them, and who has a
// certificate of which one.
type Authorities struct {
	Rotating     bool          `json:"rotating"`
	Authorities  []Authority   `json:"authorities"`
	Certificates []Certificate `json:"certificates"`
	// WaitingFor lists the causes that hold up the next step of a rotation, and Problems things to
	// do without one.
	WaitingFor []string `json:"waiting_for"`
	Problems   []string `json:"problems"`
}

// Authority is an authority that is trusted.
type Authority struct {
	Name        string    `json:"name"`
	Fingerprint string    `json:"fingerprint"` // SHA-256, hex
	Role        string    `json:"role"`        // signs, next: trusted, will sign; former: trusted
	End         time.Time `json:"end"`
}

// Certificate is one that an authority has signed.
type Certificate struct {
	Kind     string    `json:"kind"` // server, host or program
	Name     string    `json:"name"` // of whose it is
	Alive    bool      `json:"alive"`
	SignedBy string    `json:"signed_by"` // fingerprint; "" = not known
	Former   bool      `json:"former"`    // not signed by the authority that signs now
	End      time.Time `json:"end"`       // zero: not known
}

// Server is a member of a cluster of servers.
type Server struct {
	Name     string `json:"name"`
	Role     string `json:"role"`  // leader, member, learner, or added
	Alive    bool   `json:"alive"` // it reports to the store
	PeerURL  string `json:"peer_url"`
	StoreURL string `json:"store_url"`
	Version  string `json:"version"`
}

// Formats holds the format that the store is in, and those that its live members know.
type Formats struct {
	Written   int      `json:"written"`    // the format in use
	MinReader int      `json:"min_reader"` // the oldest format that a program must know
	Newest    int      `json:"newest"`     // newest format that a member writes
	Members   []Reader `json:"members"`
	Silent    []Silent `json:"silent"`
}

// Silent is a server of a cluster, or the agent of a host, that does not report the formats it
// reads and writes.
type Silent struct {
	Role string `json:"role"` // serve or agent
	Name string `json:"name"`
}

// Reader is a program that works with the store.
type Reader struct {
	Role    string `json:"role"` // serve, xapi or agent
	Name    string `json:"name"`
	ID      string `json:"id"`
	Version string `json:"version"`
	Reads   int    `json:"reads"`  // newest format that it reads
	Writes  int    `json:"writes"` // newest format that it can write
	Behind  bool   `json:"behind"` // it does not read the newest format
}

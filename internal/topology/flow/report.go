package flow

import (
	"net/netip"
	"time"
)

// HostReport is the state of a host at one moment, which its agent reports on request.
type HostReport struct {
	Time    time.Time `json:"time"`    // by the host's clock
	Tunnels int       `json:"tunnels"` // other hosts that it reaches
	// DeadTunnels lists the first of the tunnels that are dead in a direction.
	DeadTunnels []TunnelReport `json:"deadTunnels,omitempty"`
	// Unreachable is the reason why no other host reaches this one by tunnels; "" = they do.
	Unreachable string `json:"unreachable,omitempty"`
	// Uncarried lists the physical networks that the host does not carry for that reason.
	Uncarried []string `json:"uncarried,omitempty"`
	// Traffic is nil unless asked for.
	Traffic *TrafficReport `json:"traffic,omitempty"`
	Tables  []TableFill    `json:"tables,omitempty"`
	// Faults are the first of the contradictions in other hosts' records, and of what keeps frames
	// from being encrypted, in words.
	Faults []string `json:"faults,omitempty"`
	// Failing has, by the id of each port that cannot be attached, the reason.
	Failing map[string]string `json:"failing,omitempty"`
	// CertificateEnd is the end of the certificate with which the host reads the store; the zero
	// time: it has none.
	CertificateEnd time.Time `json:"certificateEnd,omitzero"`
}

// TableFill is the fill of a table of a host.
type TableFill struct {
	Name string `json:"name"` // as in metrics: flows, connections, translations
	Used int    `json:"used"`
	Max  int    `json:"max"`
}

// TrafficReport holds the tunnels of a host, what its ports have sent in each network, and which of
// them keep it busy.
type TrafficReport struct {
	Tunnels  []TunnelReport  `json:"tunnels"`
	Networks []NetworkReport `json:"networks"`
	// Ports lists the ports with the most upcalls, then others with the most flows. Agents of
	// earlier versions report none.
	Ports []PortReport `json:"ports,omitempty"`
}

// PortReport counts what a port makes its host do.
type PortReport struct {
	ID      string `json:"id"`
	LANOf   string `json:"lanOf,omitempty"` // the network by whose LAN frames come in here
	Flows   int    `json:"flows"`           // in the kernel, of frames that came in by the port
	Upcalls int    `json:"upcalls"`         // frames a second that the agent decided
}

// TunnelReport is the state of the tunnel to another host.
type TunnelReport struct {
	Host    string     `json:"host"` // its id
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// In is for frames from there, Out for frames to there.
	In  TunnelDirection `json:"in"`
	Out TunnelDirection `json:"out"`
}

// TunnelDirection is one direction of a tunnel.
type TunnelDirection struct {
	State TunnelState `json:"state"`
	Lost  int         `json:"lost"` // hellos, of the last 32, that did not arrive
	Usage
}

// TunnelState is the state of one direction of a tunnel: whether it carries frames.
type TunnelState string

// States of one direction of a tunnel. It is unknown while the other agent is away or of an earlier
// version, and for frames to a host from which nothing arrives.
const (
	TunnelUnknown TunnelState = "unknown"
	TunnelAlive   TunnelState = "alive"
	TunnelDead    TunnelState = "dead"
)

// Usage counts what flows in the kernel have carried since the agent started, read every ten
// seconds.
type Usage struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// NetworkReport counts what a host's ports in a network have sent.
type NetworkReport struct {
	ID string `json:"id"`
	Usage
}

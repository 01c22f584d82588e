package filterlog

import (
	"encoding/json"

	"heddle/internal/topology/packet"
)

// record is a line of a file (services §9.3).
type record struct {
	Time       string    `json:"time"` // UTC
	Event      string    `json:"event"`
	Log        string    `json:"log"`
	Resource   string    `json:"resource,omitempty"` // these and router: of a firewall
	Firewall   string    `json:"firewall,omitempty"`
	Tenant     string    `json:"tenant"`
	Router     string    `json:"router,omitempty"`
	Port       string    `json:"port,omitempty"`      // these: of a port's filter
	Direction  string    `json:"direction,omitempty"` // as the machine of the port sees it
	Chain      string    `json:"chain"`
	Rule       string    `json:"rule"`
	Proto      uint8     `json:"proto"`
	Src        string    `json:"src"`
	Dst        string    `json:"dst"`
	SrcPort    uint16    `json:"sport"`
	DstPort    uint16    `json:"dport"`
	ICMP       *[2]uint8 `json:"icmp,omitempty"` // type and code
	Frag       string    `json:"frag,omitempty"`
	InPort     string    `json:"in_port,omitempty"`
	OutPort    string    `json:"out_port,omitempty"`
	Host       string    `json:"host"`
	Suppressed int       `json:"suppressed"` // records of the log left out before this one
}

// line returns the line for an entry.
func (e *entry) line(host string) ([]byte, error) {
	r := record{Time: e.at.UTC().Format("2006-01-02T15:04:05.000000Z"), Event: e.Event(), Log: e.Log, Resource: e.Resource, Firewall: e.Firewall, Tenant: e.TenantID,
		Router: e.RouterID, Port: e.PortID, Chain: e.Chain, Rule: e.Rule, Proto: e.Proto, Src: e.Src.String(), Dst: e.Dst.String(),
		InPort: e.InPort, OutPort: e.OutPort, Host: host, Suppressed: e.suppressed}
	switch {
	case e.PortID == "":
	case e.Ingress:
		r.Direction = "ingress"
	default:
		r.Direction = "egress"
	}
	switch {
	case !e.HasPorts:
	case e.Proto == packet.ProtoICMP, e.Proto == packet.ProtoICMPv6:
		r.ICMP = &[2]uint8{uint8(e.SrcPort), uint8(e.DstPort)}
	default:
		r.SrcPort, r.DstPort = e.SrcPort, e.DstPort
	}
	if e.Frag != packet.FragNone {
		r.Frag = e.Frag.String()
	}
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

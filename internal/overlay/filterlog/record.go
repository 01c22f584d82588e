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
	Tenant     string    `json:"tenant"`
	Port       string    `json:"port"`
	Direction  string    `json:"direction"` // as the machine of the port sees it
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
	r := record{Time: e.at.UTC().Format("2006-01-02T15:04:05.000000Z"), Event: e.Event(), Log: e.Log, Tenant: e.TenantID, Port: e.PortID,
		Direction: "egress", Chain: e.Chain, Rule: e.Rule, Proto: e.Proto, Src: e.Src.String(), Dst: e.Dst.String(),
		InPort: e.InPort, OutPort: e.OutPort, Host: host, Suppressed: e.suppressed}
	if e.Ingress {
		r.Direction = "ingress"
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

package flow

import (
	"net/netip"
	"time"
)

// FlowRecord is a line of a host's flow log: decisions of ten seconds about packets of one port to
// one peer and service, what its cached flows have carried since, or a loss (explain §4).
type FlowRecord struct {
	Time    time.Time `json:"time,omitzero"` // of the first decision
	Host    string    `json:"host,omitempty"`
	Port    string    `json:"port,omitempty"`    // id; where the packets came in
	Network string    `json:"network,omitempty"` // id, of the port
	Project string    `json:"project,omitempty"` // id, likewise
	Source  string    `json:"source,omitempty"`  // address of the first packet
	Peer    string    `json:"peer,omitempty"`    // destination address
	// PeerPort is the id of the port that the packets went to, or that dropped them; "": not known.
	PeerPort string `json:"peerPort,omitempty"`
	Protocol uint8  `json:"protocol,omitempty"`
	// SourcePort is that of the first packet. Of replies DestinationPort is the port that they come
	// from.
	SourcePort      uint16 `json:"sourcePort,omitempty"`
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	ICMPType        *uint8 `json:"icmpType,omitempty"`
	ICMPCode        *uint8 `json:"icmpCode,omitempty"`
	Verdict         string `json:"verdict,omitempty"`
	Code            Code   `json:"code,omitzero"` // of a drop
	// Rules are the ids of the rules that have decided, in order; of a drop the last dropped it.
	Rules []string `json:"rules,omitempty"`
	Reply bool     `json:"reply,omitempty"` // the packets answer others
	// NAT has the addresses and ports with which the first packet left, if they are others.
	NAT   *FlowNAT `json:"nat,omitempty"`
	Flows int      `json:"flows,omitempty"` // decisions
	// Packets and Bytes are those decided about, and those that cached flows have carried.
	Packets uint64 `json:"packets,omitempty"`
	Bytes   uint64 `json:"bytes,omitempty"`
	// First is set of a record of one packet that was dropped: it is in another one as well.
	First bool `json:"first,omitempty"`
	// Left is the number of dropped packets without a record of their own.
	Left int `json:"left,omitempty"`
	// Ports is the number of destination ports that a record stands for, if they are many.
	Ports int `json:"ports,omitempty"`
	// Lost is the number of records that are missing here; the record has nothing else then.
	Lost uint64 `json:"lost,omitempty"`
	// Begins is the time from which a host has records, if that is later than those asked for; the
	// record has nothing else then.
	Begins time.Time `json:"begins,omitzero"`
	// Error is the reason why a host's records are missing; the record has nothing else then.
	Error string `json:"error,omitempty"`
}

// FlowNAT has the addresses and ports with which a packet leaves.
type FlowNAT struct {
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
}

// FlowFilter selects records of a flow log; what is not set does not count.
type FlowFilter struct {
	Port     string       `json:"port,omitempty"` // id, at either end
	Project  string       `json:"project,omitempty"`
	Network  string       `json:"network,omitempty"`
	Peer     netip.Prefix `json:"peer,omitzero"` // of the source or destination address
	Verdict  string       `json:"verdict,omitempty"`
	Code     Code         `json:"code,omitzero"`
	Protocol uint8        `json:"protocol,omitempty"`
	Service  uint16       `json:"service,omitempty"` // destination port
	Since    time.Time    `json:"since,omitzero"`
	Until    time.Time    `json:"until,omitzero"` // exclusive
}

// Matches reports whether a record is selected.
func (f *FlowFilter) Matches(r *FlowRecord) bool {
	switch {
	case !f.Since.IsZero() && r.Time.Before(f.Since),
		!f.Until.IsZero() && !r.Time.Before(f.Until),
		f.Port != "" && f.Port != r.Port && f.Port != r.PeerPort,
		f.Project != "" && f.Project != r.Project,
		f.Network != "" && f.Network != r.Network,
		f.Verdict != "" && f.Verdict != r.Verdict,
		f.Code != 0 && f.Code != r.Code,
		f.Protocol != 0 && f.Protocol != r.Protocol,
		f.Service != 0 && f.Service != r.DestinationPort:
		return false
	}
	return !f.Peer.IsValid() || inPrefix(f.Peer, r.Source) || inPrefix(f.Peer, r.Peer)
}

func inPrefix(p netip.Prefix, address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && p.Contains(a)
}

// FlowSubscription asks a host's agent to post the records of its flow log to a server, as lines of
// JSON, while the request exists.
type FlowSubscription struct {
	FlowFilter
	Follow bool     `json:"follow,omitempty"` // else the records that there are
	URLs   []string `json:"urls"`             // of the server's operators' API
	Pin    string   `json:"pin,omitempty"`    // fingerprint of its certificate, "" without TLS
	// Secret proves to the server that a post is of the host: no other reads the request.
	Secret string `json:"secret"`
}

// FlowPost is the body with which a host posts records of a subscription.
type FlowPost struct {
	Secret string `json:"secret"`
	// Number counts a subscription's posts from 1 on: one that comes again, since its answer was
	// lost, is known by it.
	Number  int          `json:"number,omitempty"`
	Records []FlowRecord `json:"records"`
	End     bool         `json:"end"` // there are no more
}

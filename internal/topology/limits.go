package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits are the rates and the mark of a QoS policy. Ports and NAT rules refer to them by ID, so
// that a changed policy is one changed record, however many ports have it. Each port, and each
// [RuleLimits].LimitedID, has a rate of its own: they share the figures, not what is left of them.
//
// Directions are Neutron's, as the machine sees them: egress is what it sends, ingress what it
// receives. A reference to Limits that are missing limits nothing.
type Limits struct {
	ID      string `json:"id"`
	Egress  Limit  `json:"egress,omitzero"`
	Ingress Limit  `json:"ingress,omitzero"`
	// DSCP is the code point, 0 to 63, that IP packets from a port's machine get; nil leaves
	// theirs. NAT rules do not mark.
	DSCP *uint8 `json:"dscp,omitempty"`
}

// Limit bounds one direction, by bits, by packets or both. The zero value does not.
//
// What counts are the bytes of IP packets as they are on the wire: of a frame whose segmentation is
// left to hardware, those of each packet that it will be cut into, and as many packets. Of frames
// other than IP it is what follows the Ethernet header.
type Limit struct {
	Rate        uint64 `json:"rate,omitempty"`        // bits a second; 0 = any
	Burst       uint64 `json:"burst,omitempty"`       // bits at once; 0 = 80 % of a second's at Rate
	Packets     uint64 `json:"packets,omitempty"`     // packets a second; 0 = any
	PacketBurst uint64 `json:"packetBurst,omitempty"` // at once; 0 = 80 % of a second's at Packets
}

// RuleLimits are the limits for packets that a NAT rule translates: of a floating IP or a router's
// gateway. A rule that changes the source limits egress, one that changes the destination ingress;
// of reverse rules it is that of the address they restore, so that a reverse SNAT rule limits
// ingress. The host that a packet enters the virtual network by applies them (decision 0019).
type RuleLimits struct {
	LimitsID string `json:"limitsId"`
	// LimitedID is the id of the floating IP, or of the gateway's port. On one host rules with the
	// same LimitedID and LimitsID share one rate in each direction.
	LimitedID string `json:"limitedId"`
}

// defaultBurst is Neutron's: 80 % of a second's at the rate.
func defaultBurst(rate uint64) uint64 { return rate/10*8 + rate%10*8/10 }

// BurstBits returns the burst in bits, the default if Burst is 0.
func (l Limit) BurstBits() uint64 {
	if l.Burst == 0 {
		return defaultBurst(l.Rate)
	}
	return l.Burst
}

// BurstPackets returns the burst in packets, the default if PacketBurst is 0.
func (l Limit) BurstPackets() uint64 {
	if l.PacketBurst == 0 {
		return defaultBurst(l.Packets)
	}
	return l.PacketBurst
}

// String is "10000000 bit/s (burst 8000000 bit), 1000 packets/s (burst 800)", or "unlimited".
func (l Limit) String() string {
	var parts []string
	if l.Rate != 0 {
		parts = append(parts, fmt.Sprintf("%d bit/s (burst %d bit)", l.Rate, l.BurstBits()))
	}
	if l.Packets != 0 {
		parts = append(parts, fmt.Sprintf("%d packets/s (burst %d)", l.Packets, l.BurstPackets()))
	}
	if len(parts) == 0 {
		return "unlimited"
	}
	return strings.Join(parts, ", ")
}

// In returns the limit of what a machine receives (ingress) or else sends. Limits that are missing,
// nil, have none.
func (l *Limits) In(ingress bool) Limit {
	switch {
	case l == nil:
		return Limit{}
	case ingress:
		return l.Ingress
	}
	return l.Egress
}

// String says limits in words, such as "egress 1000000 bit/s (burst 800000 bit); DSCP 46".
func (l *Limits) String() string {
	var parts []string
	if l.Egress != (Limit{}) {
		parts = append(parts, "egress "+l.Egress.String())
	}
	if l.Ingress != (Limit{}) {
		parts = append(parts, "ingress "+l.Ingress.String())
	}
	if l.DSCP != nil {
		parts = append(parts, "DSCP "+strconv.Itoa(int(*l.DSCP)))
	}
	if len(parts) == 0 {
		return "unlimited"
	}
	return strings.Join(parts, "; ")
}

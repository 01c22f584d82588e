package simulate

import (
	"encoding/binary"
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// clause is a bit for each clause that a condition may have.
type clause uint32

const (
	onForward clause = 1 << iota
	onReturn
	onInPort
	onOutPort
	onSrcGroup
	onDstGroup
	onType
	onSrcMAC
	onDstMAC
	onTOS
	onProto
	onSrcIP
	onDstIP
	onTpSrc
	onTpDst
	onTarget
	onNoVLAN
	onVLAN
	onLinkOwn
	onPortGroup
	onInGroup
	onOutGroup
	onRewritten
	onSameScope
)

// Bits of the fragment policy, one for each packet.FragKind.
const (
	whole fragments = 1 << packet.FragNone
	first fragments = 1 << packet.FragFirst
	later fragments = 1 << packet.FragLater

	anyFragment = whole | first | later
	withHeader  = whole | first
)

type fragments uint8

// condition is a conjunction of clauses, compiled. What is asked most comes first.
type condition struct {
	set, inverted clause
	frags         fragments
	negated       bool // the conjunction as a whole
	ofNAT         bool // the rule's type
	proto, tos    uint8
	etherType     uint16
	vlan          uint16
	tpSrc, tpDst  span
	srcIP, dstIP  netip.Prefix
	srcGroup      *group
	dstGroup      *group

	srcMAC, srcMask   uint64
	dstMAC, dstMask   uint64
	inPorts, outPorts []*port
	portGroup         *portGroup // of the port by which the packet came in
	inGroup, outGroup *portGroup
	target            netip.Prefix
}

// span is an inclusive range of numbers.
type span struct{ low, high uint16 }

func (s span) has(n uint16) bool { return s.low <= n && n <= s.high }

func spanOf(r *topology.Range) span {
	s := span{0, 0xffff}
	if r.Low != nil {
		s.low = *r.Low
	}
	if r.High != nil {
		s.high = *r.High
	}
	return s
}

func macBits(m packet.MAC) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

// compileCondition compiles the condition of a rule of chain by; nil matches everything.
func (w *World) compileCondition(by *chain, from *topology.Condition, c *condition) {
	c.frags = anyFragment
	if from == nil {
		return
	}
	c.frags = fragmentsOf(from.FragmentPolicy)
	c.negated = from.ConjunctionInv
	add := func(present bool, bit clause, inverted bool) bool {
		if present {
			c.set |= bit
			if inverted {
				c.inverted |= bit
			}
		}
		return present
	}
	add(from.MatchForwardFlow, onForward, false)
	add(from.MatchReturnFlow, onReturn, false)
	add(from.NoVlan, onNoVLAN, false)
	add(from.NdLinkOwn, onLinkOwn, false)
	if add(from.Vlan != 0, onVLAN, false) {
		c.vlan = from.Vlan
	}
	if add(len(from.InPortIDs) > 0, onInPort, from.InPortInv) {
		c.inPorts = w.holdPorts(from.InPortIDs)
	}
	if add(len(from.OutPortIDs) > 0, onOutPort, from.OutPortInv) {
		c.outPorts = w.holdPorts(from.OutPortIDs)
	}
	add(from.MatchNwDstRewritten, onRewritten, false)
	add(from.MatchSameAddressScope, onSameScope, false)
	if add(from.PortGroupID != "", onPortGroup, from.InvPortGroup) {
		c.portGroup = hold(w.portGroups, from.PortGroupID)
	}
	if add(from.InPortGroupID != "", onInGroup, from.InvInPortGroup) {
		c.inGroup = hold(w.portGroups, from.InPortGroupID)
	}
	if add(from.OutPortGroupID != "", onOutGroup, from.InvOutPortGroup) {
		c.outGroup = hold(w.portGroups, from.OutPortGroupID)
	}
	if add(from.IPAddrGroupIDSrc != "", onSrcGroup, from.InvIPAddrGroupSrc) {
		c.srcGroup = w.useGroup(by, from.IPAddrGroupIDSrc)
	}
	if add(from.IPAddrGroupIDDst != "", onDstGroup, from.InvIPAddrGroupDst) {
		c.dstGroup = w.useGroup(by, from.IPAddrGroupIDDst)
	}
	c.compileHeaders(from, add)
}

// compileHeaders compiles the clauses on headers.
func (c *condition) compileHeaders(from *topology.Condition, add func(present bool, bit clause, inverted bool) bool) {
	if add(from.DlType != 0, onType, from.InvDlType) {
		c.etherType = from.DlType
	}
	if add(from.DlSrc != nil, onSrcMAC, from.InvDlSrc) {
		c.srcMask = maskBits(from.DlSrcMask)
		c.srcMAC = macBits(*from.DlSrc) & c.srcMask
	}
	if add(from.DlDst != nil, onDstMAC, from.InvDlDst) {
		c.dstMask = maskBits(from.DlDstMask)
		c.dstMAC = macBits(*from.DlDst) & c.dstMask
	}
	if add(from.NwTos != nil, onTOS, from.NwTosInv) {
		c.tos = *from.NwTos
	}
	if add(from.NwProto != nil, onProto, from.NwProtoInv) {
		c.proto = *from.NwProto
	}
	if add(from.NwSrcIP != nil, onSrcIP, from.NwSrcInv) {
		c.srcIP = *from.NwSrcIP
	}
	if add(from.NwDstIP != nil, onDstIP, from.NwDstInv) {
		c.dstIP = *from.NwDstIP
	}
	if add(from.TpSrc != nil, onTpSrc, from.TpSrcInv) {
		c.tpSrc = spanOf(from.TpSrc)
	}
	if add(from.TpDst != nil, onTpDst, from.TpDstInv) {
		c.tpDst = spanOf(from.TpDst)
	}
	if add(from.NdTargetIP != nil, onTarget, from.NdTargetInv) {
		c.target = *from.NdTargetIP
	}
}

func fragmentsOf(policy string) fragments {
	switch policy {
	case topology.FragAny:
		return anyFragment
	case topology.FragHeader:
		return withHeader
	case topology.FragNonHeader:
		return later
	}
	return whole // UNFRAGMENTED, and what an unset policy means (midonet-topology §3.3)
}

func maskBits(mask *packet.MAC) uint64 {
	if mask == nil {
		return 1<<48 - 1
	}
	return macBits(*mask)
}

func (w *World) holdPorts(ids []string) []*port {
	ports := make([]*port, len(ids))
	for i, id := range ids {
		ports[i] = hold(w.ports, id)
	}
	return ports
}

func (w *World) useGroup(by *chain, id string) *group {
	g := hold(w.groups, id)
	g.users.add(by)
	return g
}

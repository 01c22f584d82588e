package calico

import "net/netip"

// The actions of a rule. Allow is the default. NextTier acts as Allow in a profile.
const (
	Allow    = "allow"
	Deny     = "deny"
	Log      = "log"
	NextTier = "next-tier"
)

// Protocol is an IP protocol number. 0 stands for none given. It is written by name where it has one.
type Protocol uint8

// The protocols with names.
const (
	ProtocolICMP    Protocol = 1
	ProtocolTCP     Protocol = 6
	ProtocolUDP     Protocol = 17
	ProtocolICMPv6  Protocol = 58
	ProtocolSCTP    Protocol = 132
	ProtocolUDPLite Protocol = 136
)

// Ports are the port numbers from Low to High, both included. A port entry that is a string without digits or colon is
// kept for named ports of later versions, and is refused today.
type Ports struct {
	Low, High uint16
}

// Rule is one rule of a profile or a policy (seed 001, "Rules"). Every criterion that is given must hold. The zero value
// of each member but Action means that it is not given; within a list any of its entries is enough, within a negated
// list none may hold.
type Rule struct {
	Action    string // Allow, Deny, Log or NextTier
	IPVersion int    // 4, 6 or 0 for both

	Protocol, NotProtocol Protocol

	SrcNets, DstNets, NotSrcNets, NotDstNets []netip.Prefix // host bits as stored; masked when matched
	SrcTag, DstTag, NotSrcTag, NotDstTag     string
	// Canonical text of selectors; "all()" where the stored text was empty.
	SrcSelector, DstSelector, NotSrcSelector, NotDstSelector string
	SrcPorts, DstPorts, NotSrcPorts, NotDstPorts             []Ports

	ICMPType, ICMPCode       *uint8
	NotICMPType, NotICMPCode *uint8 // together one negated match

	LogPrefix string // cleaned and cut; the kernel's record has ": " after it
}

package calico

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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

// String is the protocol's name, or its number.
func (p Protocol) String() string {
	switch p {
	case ProtocolICMP:
		return "icmp"
	case ProtocolTCP:
		return "tcp"
	case ProtocolUDP:
		return "udp"
	case ProtocolICMPv6:
		return "icmpv6"
	case ProtocolSCTP:
		return "sctp"
	case ProtocolUDPLite:
		return "udplite"
	}
	return strconv.Itoa(int(p))
}

// ParseProtocol reads a name or a decimal number from 1 to 255.
func ParseProtocol(text string) (Protocol, error) {
	for _, p := range []Protocol{ProtocolTCP, ProtocolUDP, ProtocolICMP, ProtocolICMPv6, ProtocolSCTP, ProtocolUDPLite} {
		if p.String() == text {
			return p, nil
		}
	}
	if n, ok := decimal(text, 8); ok && n > 0 {
		return Protocol(n), nil
	}
	return 0, fmt.Errorf("protocol %q: %s", text, wantProtocol)
}

const (
	wantProtocol = "want tcp, udp, icmp, icmpv6, sctp, udplite or a number from 1 to 255"
	wantPorts    = `want a port from 1 to 65535, or a range "low:high" of them with low <= high`
	wantAction   = "want allow, deny, log or next-tier"
)

// Ports are the port numbers from Low to High, both included.
type Ports struct {
	Low, High uint16
}

// String is the port, or low:high.
func (p Ports) String() string {
	if p.Low == p.High {
		return strconv.Itoa(int(p.Low))
	}
	return fmt.Sprintf("%d:%d", p.Low, p.High)
}

// ParsePorts reads "n" or "low:high". Text without digits or colon is left for the named ports of later versions and
// refused too.
func ParsePorts(text string) (Ports, error) {
	low, high, isRange := strings.Cut(text, ":")
	if !isRange {
		high = low
	}
	l, ok1 := decimal(low, 16)
	h, ok2 := decimal(high, 16)
	if !ok1 || !ok2 || l == 0 || l > h {
		return Ports{}, fmt.Errorf("ports %q: %s", text, wantPorts)
	}
	return Ports{uint16(l), uint16(h)}, nil
}

// Rule is one rule of a profile or a policy (seed 001, "Rules"). Every criterion that is given must hold. The zero value
// of each member means that it is not given; within a list any of its entries is enough, within a negated list none may
// hold.
type Rule struct {
	Action    string // Allow, Deny, Log or NextTier; Decode gives Allow where none is stored
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

// maxLogPrefix leaves room for ": " in the 29 characters that the kernel takes.
const maxLogPrefix = 27

// cleanLogPrefix is the canonical form of a prefix: other characters than [A-Za-z0-9_:-] become _, then it is cut.
func cleanLogPrefix(text string) string {
	clean := strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf && (isLetter(byte(c)) || isDigit(byte(c)) || c == '_' || c == ':' || c == '-') {
			return c
		}
		return '_'
	}, text)
	return clean[:min(len(clean), maxLogPrefix)]
}

// member reads one member; a null one is not given.
func (rule *Rule) member(r *reader, name string) bool {
	switch name {
	case "action":
		rule.Action = r.action()
	case "ip_version":
		rule.IPVersion = r.integer(4, 6, "want 4 or 6")
	case "protocol":
		rule.Protocol = r.protocol()
	case "!protocol":
		rule.NotProtocol = r.protocol()
	case "icmp_type":
		rule.ICMPType = r.icmp(254)
	case "icmp_code":
		rule.ICMPCode = r.icmp(255)
	case "!icmp_type":
		rule.NotICMPType = r.icmp(254)
	case "!icmp_code":
		rule.NotICMPCode = r.icmp(255)
	case "log_prefix":
		rule.LogPrefix = cleanLogPrefix(r.optional())
	default:
		return rule.side(r, name)
	}
	return true
}

// side reads a criterion about the source or the destination.
func (rule *Rule) side(r *reader, name string) bool {
	switch name {
	case "src_net":
		r.net(&rule.SrcNets)
	case "dst_net":
		r.net(&rule.DstNets)
	case "!src_net":
		r.net(&rule.NotSrcNets)
	case "!dst_net":
		r.net(&rule.NotDstNets)
	case "src_nets":
		rule.SrcNets = append(rule.SrcNets, r.prefixes()...)
	case "dst_nets":
		rule.DstNets = append(rule.DstNets, r.prefixes()...)
	case "!src_nets":
		rule.NotSrcNets = append(rule.NotSrcNets, r.prefixes()...)
	case "!dst_nets":
		rule.NotDstNets = append(rule.NotDstNets, r.prefixes()...)
	case "src_tag":
		rule.SrcTag = r.tag()
	case "dst_tag":
		rule.DstTag = r.tag()
	case "!src_tag":
		rule.NotSrcTag = r.tag()
	case "!dst_tag":
		rule.NotDstTag = r.tag()
	case "src_selector":
		rule.SrcSelector = r.criterion()
	case "dst_selector":
		rule.DstSelector = r.criterion()
	case "!src_selector":
		rule.NotSrcSelector = r.criterion()
	case "!dst_selector":
		rule.NotDstSelector = r.criterion()
	case "src_ports":
		rule.SrcPorts = r.ports()
	case "dst_ports":
		rule.DstPorts = r.ports()
	case "!src_ports":
		rule.NotSrcPorts = r.ports()
	case "!dst_ports":
		rule.NotDstPorts = r.ports()
	default:
		return false
	}
	return true
}

func readRules(r *reader) (rules []Rule) {
	r.list(func(int) {
		rules = append(rules, Rule{Action: Allow})
		r.members(&rules[len(rules)-1], nil)
	})
	return rules
}

// action reads an action; empty is Allow, and the word of later versions is NextTier.
func (r *reader) action() string {
	start := r.next()
	switch text := r.optional(); text {
	case "", Allow:
		return Allow
	case Deny:
		return Deny
	case Log:
		return Log
	case NextTier, "pass":
		return NextTier
	}
	r.fail(start, wantAction)
	return ""
}

func (r *reader) protocol() Protocol {
	if r.null() {
		return 0
	}
	start := r.next()
	if r.peek() != '"' {
		return Protocol(r.integer(1, 255, wantProtocol))
	}
	p, err := ParseProtocol(r.text())
	if err != nil {
		r.fail(start, wantProtocol)
	}
	return p
}

// icmp reads a type or a code. The kernel cannot match type 255.
func (r *reader) icmp(highest int) *uint8 {
	if r.null() {
		return nil
	}
	n := uint8(r.integer(0, highest, "want a number from 0 to "+strconv.Itoa(highest)))
	return &n
}

// net reads a single CIDR, which comes before those of the list form.
func (r *reader) net(nets *[]netip.Prefix) {
	if !r.null() {
		*nets = slices.Insert(*nets, 0, r.prefix())
	}
}

func (r *reader) tag() string {
	if r.null() {
		return ""
	}
	start := r.next()
	tag := strings.Clone(r.text())
	if r.failed == nil && !isTag(tag) {
		r.fail(start, wantTag)
	}
	return tag
}

// criterion reads a selector. Empty text stands for everything that is managed: what is given must not vanish.
func (r *reader) criterion() string {
	if r.null() {
		return ""
	}
	return r.selector()
}

func (r *reader) ports() (list []Ports) {
	r.list(func(int) {
		start := r.next()
		if r.peek() != '"' {
			n := uint16(r.integerEntry(1, 65535, wantPorts))
			list = append(list, Ports{n, n})
			return
		}
		p, err := ParsePorts(r.text())
		if err != nil {
			r.fail(start, wantPorts)
		}
		list = append(list, p)
	})
	return list
}

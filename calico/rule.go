package calico

import (
	"cmp"
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

// Protocol is an IP protocol number; 0 stands for none. It is written by name if it has one.
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

// String returns the protocol's name, or its number.
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

// String returns the port, or low:high.
func (p Ports) String() string {
	if p.Low == p.High {
		return strconv.Itoa(int(p.Low))
	}
	return fmt.Sprintf("%d:%d", p.Low, p.High)
}

// ParsePorts reads "n" or "low:high". Text without digits or colon is left for the named ports of
// later versions and refused too.
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

// Rule is one rule of a profile or a policy (seed 001, "Rules"). Every criterion that is given must
// hold. The zero value of each member means that it is not given; within a list any of its entries
// is enough, within a negated list none may hold.
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

// cleanLogPrefix replaces characters other than [A-Za-z0-9_:-] by _, then cuts the prefix.
func cleanLogPrefix(text string) string {
	clean := strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf && (isLetter(byte(c)) || isDigit(byte(c)) || c == '_' || c == ':' || c == '-') {
			return c
		}
		return '_'
	}, text)
	return clean[:min(len(clean), maxLogPrefix)]
}

var ruleTable = table[Rule]{
	columns: slices.Concat(
		[]column[Rule]{
			member("action", func(rule *Rule) *string { return &rule.Action }, format[string]{(*reader).action, (*writer).action, nil}),
			member("ip_version", func(rule *Rule) *int { return &rule.IPVersion }, asInteger(4, 6, "want 4 or 6")),
			member("protocol", func(rule *Rule) *Protocol { return &rule.Protocol }, asProtocol),
			member("!protocol", func(rule *Rule) *Protocol { return &rule.NotProtocol }, asProtocol),
		},
		netColumnsOf(ruleNets[:]),
		columnsOf(ruleTags[:], format[string]{(*reader).tag, (*writer).string, isZero[string]}),
		columnsOf(ruleSelectors[:], asSelector),
		columnsOf(rulePorts[:], omitEmpty(asList((*reader).ports, (*writer).ports))),
		[]column[Rule]{
			member("icmp_type", func(rule *Rule) **uint8 { return &rule.ICMPType }, asICMP(maxICMPType)),
			member("icmp_code", func(rule *Rule) **uint8 { return &rule.ICMPCode }, asICMP(255)),
			member("!icmp_type", func(rule *Rule) **uint8 { return &rule.NotICMPType }, asICMP(maxICMPType)),
			member("!icmp_code", func(rule *Rule) **uint8 { return &rule.NotICMPCode }, asICMP(255)),
			member("log_prefix", func(rule *Rule) *string { return &rule.LogPrefix }, format[string]{
				func(r *reader) string { return cleanLogPrefix(r.text()) },
				func(w *writer, prefix string) { w.string(cleanLogPrefix(prefix)) },
				isZero[string],
			}),
		},
	),
	start: Rule{Action: Allow},
}

// criterion is a member that a rule has for its source and its destination, each plain and negated.
type criterion[V any] struct {
	name  string
	field func(rule *Rule) *V
}

var (
	ruleNets = [...]criterion[[]netip.Prefix]{
		{"src_net", func(rule *Rule) *[]netip.Prefix { return &rule.SrcNets }},
		{"dst_net", func(rule *Rule) *[]netip.Prefix { return &rule.DstNets }},
		{"!src_net", func(rule *Rule) *[]netip.Prefix { return &rule.NotSrcNets }},
		{"!dst_net", func(rule *Rule) *[]netip.Prefix { return &rule.NotDstNets }},
	}
	ruleTags = [...]criterion[string]{
		{"src_tag", func(rule *Rule) *string { return &rule.SrcTag }},
		{"dst_tag", func(rule *Rule) *string { return &rule.DstTag }},
		{"!src_tag", func(rule *Rule) *string { return &rule.NotSrcTag }},
		{"!dst_tag", func(rule *Rule) *string { return &rule.NotDstTag }},
	}
	ruleSelectors = [...]criterion[string]{
		{"src_selector", func(rule *Rule) *string { return &rule.SrcSelector }},
		{"dst_selector", func(rule *Rule) *string { return &rule.DstSelector }},
		{"!src_selector", func(rule *Rule) *string { return &rule.NotSrcSelector }},
		{"!dst_selector", func(rule *Rule) *string { return &rule.NotDstSelector }},
	}
	rulePorts = [...]criterion[[]Ports]{
		{"src_ports", func(rule *Rule) *[]Ports { return &rule.SrcPorts }},
		{"dst_ports", func(rule *Rule) *[]Ports { return &rule.DstPorts }},
		{"!src_ports", func(rule *Rule) *[]Ports { return &rule.NotSrcPorts }},
		{"!dst_ports", func(rule *Rule) *[]Ports { return &rule.NotDstPorts }},
	}
)

func columnsOf[V any](criteria []criterion[V], f format[V]) []column[Rule] {
	var columns []column[Rule]
	for _, c := range criteria {
		columns = append(columns, member(c.name, c.field, f))
	}
	return columns
}

// netColumnsOf returns two columns for each criterion: a single CIDR, as src_net, and a list, as
// src_nets. Both may be given; the single one comes first.
func netColumnsOf(criteria []criterion[[]netip.Prefix]) []column[Rule] {
	var columns []column[Rule]
	for _, c := range criteria {
		one, many := quoted(c.name), quoted(c.name+"s")
		columns = append(columns, column[Rule]{
			name: c.name,
			read: func(r *reader, rule *Rule) {
				nets := c.field(rule)
				*nets = slices.Insert(*nets, 0, r.prefix())
			},
			write: func(w *writer, rule *Rule) {
				switch nets := *c.field(rule); len(nets) {
				case 0:
				case 1:
					w.begin(one)
					w.prefix(nets[0])
				default:
					w.begin(many)
					asPrefixes.write(w, nets)
				}
			},
		}, column[Rule]{
			name: c.name + "s",
			read: func(r *reader, rule *Rule) {
				nets := c.field(rule)
				*nets = append(*nets, asPrefixes.read(r)...)
			},
		})
	}
	return columns
}

var asProtocol = format[Protocol]{(*reader).protocol, (*writer).protocol, isZero[Protocol]}

// maxICMPType is the highest type that the kernel can match.
const maxICMPType = 254

// asICMP returns the format of an ICMP type or code up to highest.
func asICMP(highest int) format[*uint8] {
	return format[*uint8]{
		func(r *reader) *uint8 {
			n := uint8(r.integer(0, highest, "want a number from 0 to "+strconv.Itoa(highest)))
			return &n
		},
		func(w *writer, n *uint8) { w.number(int(*n)) },
		isZero[*uint8],
	}
}

// action reads an action; empty is Allow, and the word of later versions is NextTier.
func (r *reader) action() string {
	start := r.next()
	switch r.text() {
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

func (w *writer) action(action string) { w.string(cmp.Or(action, Allow)) }

func (r *reader) protocol() Protocol {
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

// protocol writes a name where the protocol has one, else the number.
func (w *writer) protocol(p Protocol) {
	if text := p.String(); isDigit(text[0]) {
		w.number(int(p))
	} else {
		w.string(text)
	}
}

func (r *reader) tag() string {
	start := r.next()
	tag := r.kept()
	if r.failed == nil && !isTag(tag) {
		r.fail(start, wantTag)
	}
	return tag
}

func (r *reader) ports() Ports {
	start := r.next()
	if r.peek() != '"' {
		n := uint16(r.integer(1, 65535, wantPorts))
		return Ports{n, n}
	}
	p, err := ParsePorts(r.text())
	if err != nil {
		r.fail(start, wantPorts)
	}
	return p
}

func (w *writer) ports(p Ports) {
	if p.Low == p.High {
		w.number(int(p.Low))
	} else {
		w.string(p.String())
	}
}

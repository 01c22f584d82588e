package offline

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"heddle/internal/topology/packet"
)

// What frames carry where the file says nothing: enough to be a packet, the same every time.
const (
	fragmentID    = 0x4864 // of every fragment: those of one scenario belong together
	laterOffset   = 185    // of a later fragment in 8-byte units: what a 1500-byte link leaves
	transactionID = 0x48656464
	defaultTTL    = 64
	vxlanSource   = 49152 // UDP port
)

// ParseFrame reads the fields of a frame (file-formats §2), YAML or JSON without references, and
// builds the frame.
func ParseFrame(text []byte) ([]byte, error) {
	n, err := parseText(text)
	if err != nil {
		return nil, err
	}
	f, err := references{macs: map[string]string{"bcast": packet.Broadcast.String()}}.read(n, frameSchema())
	if err != nil {
		return nil, err
	}
	return f.build(n.place)
}

// build makes the bytes of a frame; place is where the fields were read, for messages.
func (f fields) build(place string) ([]byte, error) {
	var fault error
	b := builder{fields: f, place: place, fault: &fault}
	b.complete()
	var frame []byte
	switch b.text("type") {
	case "arp":
		frame = b.arp()
	case "ipv4", "ipv6":
		frame = b.ip()
	default:
		return nil, fileErrorf(place, "type is missing: want ipv4, ipv6 or arp")
	}
	return frame, fault
}

// builder takes fields out of a frame, or of a part of one; the first that is missing or unfit is
// the fault of all.
type builder struct {
	fields
	place string
	fault *error
}

func (b *builder) fail(format string, args ...any) {
	if *b.fault == nil {
		*b.fault = fileErrorf(b.place, format, args...)
	}
}

// known is the value of a field; it refuses a variable that nothing has captured.
func (b *builder) known(name string) any {
	if v, unknown := b.fields[name].(variable); unknown {
		b.fail("%s: nothing has captured $%s yet", name, string(v))
		return nil
	}
	return b.fields[name]
}

func (b *builder) has(name string) bool { return b.fields[name] != nil }

func (b *builder) text(name string) string {
	v := b.known(name)
	s, ok := v.(string)
	if !ok && v != nil {
		b.fail("%s: %v is not a text", name, v)
	}
	return s
}

// number reads a number up to most.
func (b *builder) number(name string, otherwise, most int) int {
	switch v := b.known(name).(type) {
	case nil:
		return otherwise
	case int:
		if v >= 0 && v <= most {
			return v
		}
	}
	b.fail("%s: %v is not a whole number up to %d", name, b.fields[name], most)
	return 0
}

func (b *builder) port(name string) uint16 { return uint16(b.number(name, 0, 65535)) }

func (b *builder) mac(name string) packet.MAC {
	text := b.text(name)
	if text == "" {
		return packet.MAC{}
	}
	m, err := packet.ParseMAC(text)
	if err != nil {
		b.fail("%s: %s", name, err)
	}
	return m
}

func (b *builder) addr(name string) netip.Addr {
	text := b.text(name)
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		b.fail("%s: %q is not an IP address", name, text)
	}
	return a
}

// part is a nested part of the frame.
func (b *builder) part(name string) *builder {
	p, _ := b.fields[name].(fields)
	return &builder{fields: p, place: node{place: b.place}.under(name), fault: b.fault}
}

// complete fills in what follows from other fields.
func (b *builder) complete() {
	b.fields = maps.Clone(b.fields)
	otherwise := func(name string, value any) {
		if !b.has(name) {
			b.fields[name] = value
		}
	}
	if b.has("dhcp") {
		b.completeDHCP(otherwise)
	}
	if b.has("vxlan") {
		otherwise("proto", "udp")
		otherwise("sport", int(vxlanSource))
		otherwise("dport", int(packet.VXLANPort))
	}
	v6 := b.text("type") == "ipv6"
	if b.has("icmp_type") || b.has("inner") || b.has("nd_target") || b.has("ra") || b.has("icmp_id") {
		otherwise("proto", "icmp")
	}
	if v6 && b.fields["proto"] == "icmp" {
		b.fields["proto"] = "icmpv6"
	}
	if proto := b.fields["proto"]; proto == "icmp" || proto == "icmpv6" {
		otherwise("icmp_type", b.icmpType(v6))
	}
	if dst := b.addr("ip_dst"); dst.IsMulticast() {
		otherwise("eth_dst", packet.MulticastMAC(dst).String())
	}
	if b.fields["type"] == "arp" && b.fields["op"] != "reply" || b.has("dhcp") {
		otherwise("eth_dst", packet.Broadcast.String())
	}
}

func (b *builder) completeDHCP(otherwise func(string, any)) {
	otherwise("proto", "udp")
	if slices.Contains([]any{"offer", "ack", "nak"}, b.part("dhcp").known("type")) {
		otherwise("sport", int(packet.DHCPServerPort))
		otherwise("dport", int(packet.DHCPClientPort))
	}
	otherwise("sport", int(packet.DHCPClientPort))
	otherwise("dport", int(packet.DHCPServerPort))
	otherwise("ip_src", "0.0.0.0")
	otherwise("ip_dst", "255.255.255.255")
}

// icmpType is the type that the other fields speak of: an error about a quoted packet, a
// solicitation, an echo request.
func (b *builder) icmpType(v6 bool) int {
	switch {
	case b.has("inner") && v6:
		return int(packet.ICMPv6Unreachable)
	case b.has("inner"):
		return int(packet.ICMPUnreachable)
	case b.has("nd_target"):
		return int(packet.ICMPv6NeighborSolicit)
	case b.has("ra"):
		return int(packet.ICMPv6RouterAdvert)
	case v6:
		return int(packet.ICMPv6EchoRequest)
	}
	return int(packet.ICMPEchoRequest)
}

// ethernet is the frame's Ethernet header.
func (b *builder) ethernet(etherType uint16) []byte {
	for _, name := range []string{"eth_src", "eth_dst"} {
		if !b.has(name) {
			b.fail("%s is missing", name)
		}
	}
	h := packet.Ethernet{Dst: b.mac("eth_dst"), Src: b.mac("eth_src"), Type: etherType, Tagged: b.has("vlan")}
	h.VLAN = uint16(b.number("vlan", 0, 4095))
	return h.Append(nil)
}

func (b *builder) arp() []byte {
	a := packet.ARP{Op: packet.ARPRequest, SHA: b.mac("sha"), THA: b.mac("tha"), SPA: b.addr("spa"), TPA: b.addr("tpa")}
	if b.text("op") == "reply" {
		a.Op = packet.ARPReply
	}
	if !b.has("sha") {
		a.SHA = b.mac("eth_src")
	}
	return a.Append(b.ethernet(packet.TypeARP))
}

func (b *builder) ip() []byte {
	src, dst := b.addr("ip_src"), b.addr("ip_dst")
	v4 := b.text("type") == "ipv4"
	for _, name := range []string{"ip_src", "ip_dst"} {
		if a := b.addr(name); !a.IsValid() || a.Is4() != v4 {
			b.fail("%s: %q is not an address of type %s", name, b.text(name), b.text("type"))
		}
	}
	ttl := defaultTTL
	if b.has("nd_target") || b.has("ra") {
		ttl = 255 // neighbour discovery counts only from the link itself (RFC 4861 §7.1)
	}
	proto, frag := b.protocol("proto"), b.text("frag")
	if *b.fault != nil {
		return nil
	}
	payload := b.payload(src, dst, proto)
	first, later := frag == "first", frag == "later"
	switch {
	case later:
		payload = make([]byte, 16)
	case first: // the length of every fragment but the last is a multiple of 8
		payload = append(payload, make([]byte, 8+(8-len(payload)%8)%8)...)
	}
	hop := uint8(b.number("ttl", ttl, 255))
	var offset uint16
	if later {
		offset = laterOffset
	}
	if v4 {
		h := packet.IPv4{TTL: hop, Proto: proto, ID: fragmentID, MoreFragments: first, Offset: offset, Src: src, Dst: dst}
		return append(h.Append(b.ethernet(packet.TypeIPv4), len(payload)), payload...)
	}
	h := packet.IPv6{HopLimit: hop, Next: proto, Src: src, Dst: dst, Fragment: first || later, MoreFragments: first, Offset: offset, ID: fragmentID}
	return append(h.Append(b.ethernet(packet.TypeIPv6), len(payload)), payload...)
}

func (b *builder) protocol(name string) uint8 {
	switch v := b.known(name).(type) {
	case string:
		return namedProtocols()[v]
	case int:
		return uint8(v)
	}
	b.fail("%s is missing", name)
	return 0
}

// payload returns the content of the IP packet: a transport header, and what it carries by the
// fields.
func (b *builder) payload(src, dst netip.Addr, proto uint8) []byte {
	sport, dport := b.port("sport"), b.port("dport")
	switch proto {
	case packet.ProtoTCP:
		return packet.TCP{SrcPort: sport, DstPort: dport, Flags: packet.TCPAck, Window: 0xffff}.Append(nil, src, dst, nil)
	case packet.ProtoUDP:
		var data []byte
		switch {
		case b.has("dhcp"):
			data = b.dhcp()
		case b.has("vxlan"):
			data = b.vxlan()
		}
		return packet.UDP{SrcPort: sport, DstPort: dport}.Append(nil, src, dst, data)
	case packet.ProtoICMP:
		h, body := b.icmp(src)
		return h.Append(nil, body)
	case packet.ProtoICMPv6:
		h, body := b.icmp(src)
		return h.AppendV6(nil, src, dst, body)
	}
	data := make([]byte, 16)
	if packet.HasPorts(proto) {
		binary.BigEndian.PutUint16(data, sport)
		binary.BigEndian.PutUint16(data[2:], dport)
	}
	return data
}

// vxlan returns the payload of a VXLAN packet.
func (b *builder) vxlan() []byte {
	in := b.part("vxlan")
	inner, _ := in.fields["frame"].(fields)
	frame, err := inner.build(node{place: in.place}.under("frame"))
	if err != nil && *b.fault == nil {
		*b.fault = err
	}
	return packet.AppendVXLAN(nil, uint32(in.number("vni", 0, 1<<24-1)), frame)
}

// icmp returns the header of an ICMP message and what follows its eight bytes.
func (b *builder) icmp(src netip.Addr) (h packet.ICMP, body []byte) {
	h = packet.ICMP{Type: uint8(b.number("icmp_type", 0, 255)), Code: uint8(b.number("icmp_code", 0, 255))}
	if b.has("icmp_id") {
		h.Rest = packet.EchoRest(uint16(b.number("icmp_id", 0, 65535)), 1)
	}
	switch {
	case b.has("inner"):
		body = b.quote(src.Is4())
	case b.has("nd_target") || b.has("ra"):
		h.Rest, body = b.discovery(h.Type)
	case src.Is6() && h.Type == packet.ICMPv6RouterSolicit: // without options
	default:
		body = make([]byte, 8)
	}
	return h, body
}

// quote is the packet that an ICMP error is about.
func (b *builder) quote(v4 bool) []byte {
	in := b.part("inner")
	src, dst, proto := in.addr("ip_src"), in.addr("ip_dst"), in.protocol("proto")
	sport, dport := in.port("sport"), in.port("dport")
	echo := packet.EchoRest(cmp.Or(sport, dport), 1)
	if !src.IsValid() || !dst.IsValid() || src.Is4() != v4 || dst.Is4() != v4 {
		in.fail("ip_src and ip_dst must be addresses of the family of the frame")
	}
	if *b.fault != nil {
		return nil
	}
	if !v4 && proto == packet.ProtoICMP {
		proto = packet.ProtoICMPv6
	}
	var transport []byte
	switch proto {
	case packet.ProtoTCP:
		transport = packet.TCP{SrcPort: sport, DstPort: dport}.Append(nil, src, dst, nil)
	case packet.ProtoICMP:
		transport = packet.ICMP{Type: packet.ICMPEchoRequest, Rest: echo}.Append(nil, nil)
	case packet.ProtoICMPv6:
		transport = packet.ICMP{Type: packet.ICMPv6EchoRequest, Rest: echo}.AppendV6(nil, src, dst, nil)
	default:
		transport = packet.UDP{SrcPort: sport, DstPort: dport}.Append(nil, src, dst, nil)
	}
	if v4 {
		h := packet.IPv4{TTL: defaultTTL, Proto: proto, Src: src, Dst: dst}
		return append(h.Append(nil, len(transport)), transport...)
	}
	h := packet.IPv6{HopLimit: defaultTTL, Next: proto, Src: src, Dst: dst}
	return append(h.Append(nil, len(transport)), transport...)
}

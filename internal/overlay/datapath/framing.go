package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"heddle/internal/topology/packet"
)

// Framing holds the tag and outer headers that frames get when they leave, in this order. The zero
// Framing has neither.
type Framing struct {
	PopVLAN  bool   // their outermost tag goes
	PushVLAN uint16 // a tag with this VLAN id comes in front; 0: none
	// Encap puts them into VXLAN packets; the zero Encap does not.
	Encap Encap
}

// Encap holds the outer headers of VXLAN packets that a VTEP of the virtual network sends: IPv4
// without options, which may be fragmented, and UDP without a checksum.
type Encap struct {
	VNI            uint32
	SrcMAC, DstMAC packet.MAC
	Src, Dst       netip.Addr // IPv4
	SrcPort        uint16     // UDP, of one flow always the same
	DstPort        uint16     // UDP, usually VXLANPort
	TTL            uint8
}

// VXLANPort is the UDP port of VTEPs (RFC 7348 §5).
const VXLANPort = 4789

// wraps reports whether frames leave in VXLAN packets.
func (f *Framing) wraps() bool { return f.Encap.Dst.IsValid() }

// room returns by how many bytes less than its way carries a frame may have, in a tunnel between
// hosts or not. Of a tag that a frame has already, only one that goes counts.
func (f *Framing) room(frame []byte, tunnelled bool) int {
	n := 0
	if f.wraps() {
		n += Overhead
	}
	if f.PushVLAN != 0 && (tunnelled || f.wraps()) {
		n += vlanTagLen
	}
	if f.PopVLAN && isTagged(frame) {
		n -= vlanTagLen
	}
	return n
}

// RoomOf returns how many bytes an IP packet with key k needs on the way of the output beyond its
// own.
func (o Output) RoomOf(k Key) int {
	n := o.Framing.room(nil, o.Tunnel != 0)
	if k.VLAN != 0 && !o.Framing.PopVLAN && o.Framing.PushVLAN == 0 && (o.Tunnel != 0 || o.Framing.wraps()) {
		n += vlanTagLen
	}
	return n
}

const vlanTagLen = 4

func isTagged(frame []byte) bool {
	return len(frame) >= ethHeaderLen+vlanTagLen && binary.BigEndian.Uint16(frame[12:]) == etherVLAN
}

// check returns why the programs cannot frame so.
func (f *Framing) check() error {
	switch e := &f.Encap; {
	case f.PushVLAN > maxVLAN:
		return fmt.Errorf("VLAN id %d: want at most %d", f.PushVLAN, maxVLAN)
	case f.wraps() && (!e.Src.Is4() || !e.Dst.Is4()):
		return fmt.Errorf("VXLAN packets from %s to %s: want two IPv4 addresses", e.Src, e.Dst)
	case f.wraps() && e.VNI > 0xffffff:
		return fmt.Errorf("VNI %d: want at most %d", e.VNI, 0xffffff)
	}
	return nil
}

// pack writes it as the programs have it, without the UDP source, which is in the flow.
func (f *Framing) pack() (g bpfFraming) {
	if f.PushVLAN != 0 {
		g.Tci = vlanPresent | f.PushVLAN
	}
	if f.PopVLAN {
		g.Pops = 1
	}
	if !f.wraps() {
		return g
	}
	g.Wraps = 1
	e := &f.Encap
	b := outerHeaders(g.Outer[:0], outerHeader{dstMAC: e.DstMAC, srcMAC: e.SrcMAC, src: e.Src, dst: e.Dst, ttl: e.TTL, port: e.DstPort})
	g.IpSum = foldedSum(b[ethHeaderLen : ethHeaderLen+ipv4HeaderLen])
	binary.BigEndian.PutUint32(g.Outer[vniOffset:], e.VNI<<8)
	return g
}

// vniOffset is the offset of the VNI in outer headers, bytes.
const vniOffset = ethHeaderLen + ipv4HeaderLen + 8 + 4

// framingOf is the reverse of pack, for a flow with that UDP source in network order.
func framingOf(g bpfFraming, outerPort uint16) (f Framing) {
	f.PopVLAN, f.PushVLAN = g.Pops != 0, g.Tci&maxVLAN
	if g.Wraps == 0 {
		return f
	}
	o := g.Outer[:]
	f.Encap = Encap{VNI: binary.BigEndian.Uint32(o[vniOffset:]) >> 8, DstMAC: [6]byte(o), SrcMAC: [6]byte(o[6:]), TTL: o[22], DstPort: binary.BigEndian.Uint16(o[36:]),
		Src: netip.AddrFrom4([4]byte(o[26:])), Dst: netip.AddrFrom4([4]byte(o[30:])), SrcPort: swap16(outerPort)}
	return f
}

// outerHeader holds those outer headers in which packets differ.
type outerHeader struct {
	dstMAC, srcMAC packet.MAC
	src, dst       netip.Addr
	dontFragment   bool
	ttl            uint8
	port           uint16 // UDP, of the receiver
}

const ipv4HeaderLen = 20

// outerHeaders appends Ethernet, IPv4, UDP and VXLAN headers to b, with 0 where the programs fill
// in: lengths, IP checksum, UDP source and VNI.
func outerHeaders(b []byte, o outerHeader) []byte {
	b = append(b, o.dstMAC[:]...)
	b = append(b, o.srcMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherIPv4)
	src, dst := o.src.As4(), o.dst.As4()
	var flags byte
	if o.dontFragment {
		flags = 0x40
	}
	// Version 4, 5 words; TOS; length; id; flags; TTL; UDP; checksum.
	b = append(b, 0x45, 0, 0, 0, 0, 0, flags, 0, o.ttl, protoUDP, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, o.port)
	b = append(b, 0, 0, 0, 0)                   // length; no checksum, as RFC 7348 §5 prefers
	return append(b, 0x08, 0, 0, 0, 0, 0, 0, 0) // the key is valid (RFC 7348 §5)
}

// errFramingsFull reports that flows in force use all numbers.
var errFramingsFull = errors.New("flows leave in too many different framings")

// framingNumber returns the number of a framing, which the kernel has by then; 0 for none. It needs
// the lock of the framings.
func (c *flowCache) framingNumber(f Framing) (uint16, error) {
	if f == (Framing{}) {
		return 0, nil
	}
	if err := f.check(); err != nil {
		return 0, err
	}
	number, err := c.framings.number(f.pack(), c.maps.Framings, c.releaseFramings, errFramingsFull)
	if err != nil {
		return 0, fmt.Errorf("number of a framing: %w", err)
	}
	return number, nil
}

// releaseFramings gives back the numbers that neither flows nor lists of copies have.
func (c *flowCache) releaseFramings() error {
	used := maps.Clone(c.framings.given)
	for _, list := range c.copySets.values {
		for _, to := range list.All {
			used[to.Framing] = true
		}
	}
	slot := func(v *bpfFlow) (uint16, bool) { return v.Slots[MaxTags-2], v.Kind&outFramed != 0 }
	err := errors.Join(numbersInUse[bpfKey4, bpfFlow4](c.maps.Flows4, used, slot), numbersInUse[bpfKey6, bpfFlow6](c.maps.Flows6, used, slot))
	if err != nil {
		return fmt.Errorf("find the framings that flows have: %w", err)
	}
	c.framings.keep(used)
	return nil
}

// numbersInUse adds the numbers that flows have in a slot.
func numbersInUse[K bpfKey, V any, PV bpfValue[V]](m *ebpf.Map, used map[uint16]bool, slot func(*bpfFlow) (uint16, bool)) error {
	return eachEntry(m, func(_ []K, values []V) bool {
		for i := range values {
			if number, has := slot(PV(&values[i]).common()); has {
				used[number] = true
			}
		}
		return true
	})
}

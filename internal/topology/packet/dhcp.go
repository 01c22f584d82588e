package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Ports of DHCPv4.
const (
	DHCPServerPort uint16 = 67
	DHCPClientPort uint16 = 68
)

// BOOTP operations.
const (
	BootRequest uint8 = 1
	BootReply   uint8 = 2
)

// DHCP message types, the value of option 53 (RFC 2132 §9.6).
const (
	DHCPDiscover uint8 = iota + 1
	DHCPOffer
	DHCPRequest
	DHCPDecline
	DHCPAck
	DHCPNak
	DHCPRelease
	DHCPInform
)

// DHCPTypeName is the name of a message type, its number for one that has none.
func DHCPTypeName(typ uint8) string {
	names := [...]string{"none", "discover", "offer", "request", "decline", "ack", "nak", "release", "inform"}
	if int(typ) < len(names) {
		return names[typ]
	}
	return strconv.Itoa(int(typ))
}

// DHCP options that Heddle writes or reads by itself (RFC 2132, RFC 3397, RFC 3442).
const (
	OptSubnetMask      uint8 = 1
	OptRouter          uint8 = 3
	OptDNSServer       uint8 = 6
	OptHostName        uint8 = 12
	OptDomainName      uint8 = 15
	OptInterfaceMTU    uint8 = 26
	OptBroadcast       uint8 = 28
	OptRequestedIP     uint8 = 50
	OptLeaseTime       uint8 = 51
	OptOverload        uint8 = 52
	OptMessageType     uint8 = 53
	OptServerID        uint8 = 54
	OptParameterList   uint8 = 55
	OptMaxMessageSize  uint8 = 57
	OptClientID        uint8 = 61
	OptTFTPServerName  uint8 = 66
	OptBootfileName    uint8 = 67
	OptClasslessRoutes uint8 = 121
	OptMicrosoftRoutes uint8 = 249 // option 121 under the number that it had before RFC 3442

	optPad uint8 = 0
	optEnd uint8 = 255
)

const (
	dhcpHeaderLen = 236 // up to the magic cookie
	dhcpMinLen    = 300 // of a BOOTP message; some clients refuse less (RFC 951)
)

var dhcpCookie = [4]byte{99, 130, 83, 99}

// DHCPOption is one option of a DHCP message.
type DHCPOption struct {
	Code  uint8 // 1–254
	Value []byte
}

// DHCP is a DHCPv4 message (RFC 2131 §2).
type DHCP struct {
	Op, Hops                       uint8
	XID                            uint32
	Secs, Flags                    uint16
	CIAddr, YIAddr, SIAddr, GIAddr netip.Addr // IPv4; the zero Addr is written as 0.0.0.0
	CHAddr                         MAC
	ServerName, File               []byte // without trailing zeros; at most 64 and 128 bytes
	Options                        []DHCPOption
}

// Option is the value of the option with that code.
func (d *DHCP) Option(code uint8) ([]byte, bool) {
	for i := range d.Options {
		if d.Options[i].Code == code {
			return d.Options[i].Value, true
		}
	}
	return nil, false
}

// Set gives the option its value, in the place of an earlier one or else at the end.
func (d *DHCP) Set(code uint8, value []byte) {
	for i := range d.Options {
		if d.Options[i].Code == code {
			d.Options[i].Value = value
			return
		}
	}
	d.Options = append(d.Options, DHCPOption{code, value})
}

// Type is the message type, 0 if there is none.
func (d *DHCP) Type() uint8 {
	if v, ok := d.Option(OptMessageType); ok && len(v) == 1 {
		return v[0]
	}
	return 0
}

// Addr is the value of an option that holds one IPv4 address.
func (d *DHCP) Addr(code uint8) (netip.Addr, bool) {
	v, ok := d.Option(code)
	if !ok || len(v) != 4 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(v)), true
}

// ParseDHCP reads a DHCPv4 message about Ethernet from a UDP payload. It joins options in several
// parts (RFC 3396), and those that overflow into the file and server name fields.
func ParseDHCP(b []byte) (*DHCP, error) {
	if len(b) < dhcpHeaderLen+len(dhcpCookie) {
		return nil, &Malformed{"DHCP", "shorter than its header"}
	}
	if b[1] != 1 || b[2] != 6 {
		return nil, &Malformed{"DHCP", "not about Ethernet"}
	}
	if [4]byte(b[dhcpHeaderLen:]) != dhcpCookie {
		return nil, &Malformed{"DHCP", "no magic cookie"}
	}
	d := &DHCP{
		Op: b[0], Hops: b[3], XID: binary.BigEndian.Uint32(b[4:]),
		Secs: binary.BigEndian.Uint16(b[8:]), Flags: binary.BigEndian.Uint16(b[10:]),
		CIAddr: netip.AddrFrom4([4]byte(b[12:16])), YIAddr: netip.AddrFrom4([4]byte(b[16:20])),
		SIAddr: netip.AddrFrom4([4]byte(b[20:24])), GIAddr: netip.AddrFrom4([4]byte(b[24:28])),
		CHAddr: MAC(b[28:34]),
	}
	serverName, file := b[44:108], b[108:236]
	if err := d.parseOptions(b[dhcpHeaderLen+len(dhcpCookie):]); err != nil {
		return nil, err
	}
	var overload byte
	if v, ok := d.Option(OptOverload); ok && len(v) == 1 {
		overload = v[0]
	}
	for _, f := range []struct {
		overloaded byte // the bit for the field
		field      []byte
		to         *[]byte
	}{{1, file, &d.File}, {2, serverName, &d.ServerName}} {
		if overload&f.overloaded == 0 {
			*f.to = untilZero(f.field)
		} else if err := d.parseOptions(f.field); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func untilZero(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

func (d *DHCP) parseOptions(b []byte) error {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optPad {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return &Malformed{"DHCP", "option cut short"}
		}
		code, value := b[0], b[2:2+int(b[1])]
		old, _ := d.Option(code)
		d.Set(code, append(old[:len(old):len(old)], value...))
		b = b[2+int(b[1]):]
	}
	return nil
}

// OptionsEnd returns the length of the message without the padding that Append adds.
func (d *DHCP) OptionsEnd() int {
	n := dhcpHeaderLen + len(dhcpCookie) + 1
	for _, o := range d.Options {
		n += OptionLen(len(o.Value))
	}
	return n
}

// OptionLen is the length of an option in a message, by that of its value.
func OptionLen(value int) int { return value + 2*max(1, (value+254)/255) }

// Append adds the message to b, padded to BOOTP's 300 bytes, long values in parts (RFC 3396).
func (d *DHCP) Append(b []byte) []byte {
	at := len(b)
	b = append(b, d.Op, 1, 6, d.Hops)
	b = binary.BigEndian.AppendUint32(b, d.XID)
	b = binary.BigEndian.AppendUint16(b, d.Secs)
	b = binary.BigEndian.AppendUint16(b, d.Flags)
	for _, a := range [...]netip.Addr{d.CIAddr, d.YIAddr, d.SIAddr, d.GIAddr} {
		v := as4(a)
		b = append(b, v[:]...)
	}
	b = append(b, d.CHAddr[:]...)
	b = append(b, make([]byte, 10+64+128)...)
	copy(b[at+44:at+108], d.ServerName)
	copy(b[at+108:at+236], d.File)
	b = append(b, dhcpCookie[:]...)
	for _, o := range d.Options {
		v := o.Value
		for {
			n := min(len(v), 255)
			b = append(append(b, o.Code, byte(n)), v[:n]...)
			v = v[n:]
			if len(v) == 0 {
				break
			}
		}
	}
	b = append(b, optEnd)
	if short := dhcpMinLen - (len(b) - at); short > 0 {
		b = append(b, make([]byte, short)...)
	}
	return b
}

// AppendClasslessRoute adds one IPv4 route of option 121 (RFC 3442).
func AppendClasslessRoute(b []byte, dst netip.Prefix, router netip.Addr) []byte {
	net, gw := as4(dst.Masked().Addr()), as4(router)
	bits := min(max(dst.Bits(), 0), 32)
	b = append(b, byte(bits))
	b = append(b, net[:(bits+7)/8]...)
	return append(b, gw[:]...)
}

// ClasslessRoute is one route of option 121.
type ClasslessRoute struct {
	Dst    netip.Prefix
	Router netip.Addr
}

// ParseClasslessRoutes reads the value of option 121.
func ParseClasslessRoutes(b []byte) ([]ClasslessRoute, error) {
	var routes []ClasslessRoute
	for len(b) > 0 {
		bits := int(b[0])
		n := (bits + 7) / 8
		if bits > 32 || len(b) < 1+n+4 {
			return nil, &Malformed{"DHCP", "classless route cut short or longer than 32 bits"}
		}
		var net [4]byte
		copy(net[:], b[1:1+n])
		routes = append(routes, ClasslessRoute{
			Dst:    netip.PrefixFrom(netip.AddrFrom4(net), bits).Masked(),
			Router: netip.AddrFrom4([4]byte(b[1+n : 5+n])),
		})
		b = b[5+n:]
	}
	return routes, nil
}

package offline

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"heddle/internal/topology/packet"
)

// dhcp builds the DHCP message of a frame.
func (b *builder) dhcp() []byte {
	in := b.part("dhcp")
	d := &packet.DHCP{Op: packet.BootRequest, XID: transactionID, CHAddr: in.mac("chaddr"), YIAddr: in.addr("yiaddr")}
	if !in.has("chaddr") {
		d.CHAddr = b.mac("eth_src")
	}
	if a := b.addr("ip_src"); a.IsValid() && !a.IsUnspecified() {
		d.CIAddr = a
	}
	typ := packet.DHCPDiscover
	if in.has("type") {
		typ = uint8(1 + slices.Index(dhcpTypes(), in.text("type")))
	}
	if typ == packet.DHCPOffer || typ == packet.DHCPAck || typ == packet.DHCPNak {
		d.Op, d.CIAddr = packet.BootReply, netip.Addr{}
	}
	d.Set(packet.OptMessageType, []byte{typ})
	for _, o := range dhcpOptions() {
		if !in.has(o.name) {
			continue
		}
		if value, ok := o.encode(in); ok {
			d.Set(o.code, value)
		}
	}
	return d.Append(nil)
}

// dhcpOption joins a field of a frame's dhcp with the option that carries it.
type dhcpOption struct {
	name   string
	code   uint8
	encode func(in *builder) ([]byte, bool)
	decode func(value []byte) (any, bool)
}

func dhcpOptions() []dhcpOption {
	return []dhcpOption{
		addrOption("server_id", packet.OptServerID),
		addrOption("mask", packet.OptSubnetMask),
		addrOption("broadcast", packet.OptBroadcast),
		addrOption("requested_ip", packet.OptRequestedIP),
		addrsOption("router", packet.OptRouter, true),
		addrsOption("dns", packet.OptDNSServer, false),
		numberOption("lease", packet.OptLeaseTime, 4),
		numberOption("mtu", packet.OptInterfaceMTU, 2),
		{"classless_routes", packet.OptClasslessRoutes, encodeRoutes, decodeRoutes},
		{
			"tftp_server_name", packet.OptTFTPServerName,
			func(in *builder) ([]byte, bool) { return []byte(in.text("tftp_server_name")), true },
			func(v []byte) (any, bool) { return string(v), true },
		},
	}
}

func addrOption(name string, code uint8) dhcpOption {
	return dhcpOption{
		name, code,
		func(in *builder) ([]byte, bool) {
			a := in.addr(name)
			return a.AsSlice(), a.Is4()
		},
		func(v []byte) (any, bool) {
			a, ok := netip.AddrFromSlice(v)
			return a.String(), ok
		},
	}
}

// addrsOption holds one address or more; plain shows a single one as itself.
func addrsOption(name string, code uint8, plain bool) dhcpOption {
	return dhcpOption{
		name, code,
		func(in *builder) ([]byte, bool) {
			list, isList := in.known(name).([]string)
			if !isList {
				list = []string{in.text(name)}
			}
			var value []byte
			for _, text := range list {
				a, err := netip.ParseAddr(text)
				if err != nil || !a.Is4() {
					in.fail("%s: %q is not an IPv4 address", name, text)
				}
				value = append(value, a.AsSlice()...)
			}
			return value, true
		},
		func(v []byte) (any, bool) {
			var list []string
			for ; len(v) >= 4; v = v[4:] {
				list = append(list, netip.AddrFrom4([4]byte(v)).String())
			}
			if plain && len(list) == 1 {
				return list[0], true
			}
			return list, true
		},
	}
}

// numberOption holds a number of 2 or 4 bytes.
func numberOption(name string, code uint8, size int) dhcpOption {
	return dhcpOption{
		name, code,
		func(in *builder) ([]byte, bool) {
			v := binary.BigEndian.AppendUint32(nil, uint32(in.number(name, 0, 1<<(8*size)-1)))
			return v[4-size:], true
		},
		func(v []byte) (any, bool) {
			if len(v) != size {
				return nil, false
			}
			return int(binary.BigEndian.Uint32(append(make([]byte, 4-size, 4), v...))), true
		},
	}
}

func encodeRoutes(in *builder) ([]byte, bool) {
	routes, ok := in.known("classless_routes").([][2]string)
	var value []byte
	for _, r := range routes {
		dst, err := netip.ParsePrefix(r[0])
		hop, hopErr := netip.ParseAddr(r[1])
		if err != nil || hopErr != nil || !dst.Addr().Is4() || !hop.Is4() {
			in.fail("classless_routes: %s by %s is not an IPv4 route", r[0], r[1])
			return nil, false
		}
		value = packet.AppendClasslessRoute(value, dst, hop)
	}
	return value, ok
}

func decodeRoutes(v []byte) (any, bool) {
	routes, err := packet.ParseClasslessRoutes(v)
	list := [][2]string{}
	for _, r := range routes {
		list = append(list, [2]string{r.Dst.String(), r.Router.String()})
	}
	return list, err == nil
}

// showDHCP are the fields of a DHCP message.
func showDHCP(payload []byte) (fields, bool) {
	d, err := packet.ParseDHCP(payload)
	if err != nil {
		return nil, false
	}
	f := fields{"chaddr": d.CHAddr.String()}
	if t := int(d.Type()); t >= 1 && t <= len(dhcpTypes()) {
		f["type"] = dhcpTypes()[t-1]
	}
	if !d.YIAddr.IsUnspecified() {
		f["yiaddr"] = d.YIAddr.String()
	}
	for _, o := range dhcpOptions() {
		if raw, ok := d.Option(o.code); ok {
			if value, ok := o.decode(raw); ok {
				f[o.name] = value
			}
		}
	}
	return f, true
}

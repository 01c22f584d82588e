package offline

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"

	"heddle/internal/topology/packet"
)

// discovery builds a message of IPv6 neighbour discovery from its fields: the four bytes after the
// checksum, and what follows.
func (b *builder) discovery(icmpType uint8) (rest uint32, body []byte) {
	var m ndp.Message
	target := b.addr("nd_target")
	switch {
	case b.has("ra"):
		m = b.part("ra").routerAdvertisement(b.mac("eth_src"))
	case icmpType == packet.ICMPv6NeighborAdvert:
		m = &ndp.NeighborAdvertisement{Override: true, TargetAddress: target, Options: b.linkAddress(ndp.Target)}
	default:
		m = &ndp.NeighborSolicitation{TargetAddress: target, Options: b.linkAddress(ndp.Source)}
	}
	raw, err := ndp.MarshalMessage(m)
	if err != nil {
		b.fail("%v", err)
		return 0, nil
	}
	return binary.BigEndian.Uint32(raw[4:]), raw[8:]
}

// linkAddress returns the option with the frame's nd_lladdr, if it has one.
func (b *builder) linkAddress(d ndp.Direction) []ndp.Option {
	if !b.has("nd_lladdr") {
		return nil
	}
	mac := b.mac("nd_lladdr")
	return []ndp.Option{&ndp.LinkLayerAddress{Direction: d, Addr: mac[:]}}
}

// routerAdvertisement builds an advertisement from the fields of a frame's ra.
func (b *builder) routerAdvertisement(source packet.MAC) *ndp.RouterAdvertisement {
	m := &ndp.RouterAdvertisement{CurrentHopLimit: defaultTTL,
		RouterLifetime: time.Duration(b.number("lifetime", 0, 65535)) * time.Second,
		Options:        []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: source[:]}}}
	m.ManagedConfiguration, _ = b.known("managed").(bool)
	m.OtherConfiguration, _ = b.known("other").(bool)
	if b.has("mtu") {
		m.Options = append(m.Options, ndp.NewMTU(uint32(b.number("mtu", 0, 1<<32-1))))
	}
	prefixes, _ := b.known("prefixes").([]string)
	for _, text := range prefixes {
		p, err := (node{b.place + ".prefixes", text}).prefix()
		if err != nil || !p.Addr().Is6() {
			b.fail("prefixes: %q is not an IPv6 prefix", text)
			continue
		}
		m.Options = append(m.Options, &ndp.PrefixInformation{PrefixLength: uint8(p.Bits()), Prefix: p.Addr(),
			OnLink: true, AutonomousAddressConfiguration: true})
	}
	return m
}

// showRA returns the fields of a router advertisement, from its ICMP header on.
func showRA(raw []byte) (fields, bool) {
	parsed, err := ndp.ParseMessage(raw)
	m, ok := parsed.(*ndp.RouterAdvertisement)
	if err != nil || !ok {
		return nil, false
	}
	f := fields{"managed": m.ManagedConfiguration, "other": m.OtherConfiguration, "lifetime": int(m.RouterLifetime / time.Second)}
	var prefixes []string
	for _, o := range m.Options {
		switch o := o.(type) {
		case *ndp.MTU:
			f["mtu"] = int(o.MTU)
		case *ndp.PrefixInformation:
			prefixes = append(prefixes, netip.PrefixFrom(o.Prefix, int(o.PrefixLength)).String())
		}
	}
	f["prefixes"] = prefixes
	return f, true
}

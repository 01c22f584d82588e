package netlab

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Connection is a connection as the kernel tracks it: the first packet went from Src to Dst. For
// ICMP and ICMPv6 the ports are type and code (SrcPort) and the identifier of an echo (DstPort).
type Connection struct {
	Protocol uint8
	Src, Dst netip.AddrPort
	// Translated is the address that packets to Dst go to instead, if valid.
	Translated netip.Addr
}

// Attributes of linux/netfilter/nfnetlink_conntrack.h that the netlink library lacks.
const (
	attrNATDst       = 13                 // CTA_NAT_DST
	attrNATv4Least   = 1                  // CTA_NAT_V4_MINIP
	attrNATv6Least   = 4                  // CTA_NAT_V6_MINIP
	attrICMPID       = 4                  // CTA_PROTO_ICMP_ID; type and code follow
	attrICMPv6ID     = 7                  // CTA_PROTO_ICMPV6_ID; type and code follow
	statusBothWays   = 1<<1 | 1<<2 | 1<<3 // IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED
	tcpEstablished   = 3
	connectionExpiry = 60 // seconds
)

// Establish makes the namespace track a connection in which packets have gone both ways.
func (n *Namespace) Establish(c Connection) error {
	req := nl.NewNetlinkRequest(int(netlink.ConntrackTable)<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family(c.Src.Addr())), Version: nl.NFNETLINK_V0})
	req.AddData(tuple(nl.CTA_TUPLE_ORIG, c.Protocol, c.Src, c.Dst, false))
	req.AddData(tuple(nl.CTA_TUPLE_REPLY, c.Protocol, c.Dst, c.Src, true)) // the kernel itself translates it
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(statusBothWays)))
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(connectionExpiry)))
	if c.Protocol == unix.IPPROTO_TCP {
		info := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO, nil)
		info.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO_TCP, nil).AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, nl.Uint8Attr(tcpEstablished))
		req.AddData(info)
	}
	if c.Translated.IsValid() {
		nat := nl.NewRtAttr(unix.NLA_F_NESTED|attrNATDst, nil)
		least := attrNATv4Least
		if c.Translated.Is6() {
			least = attrNATv6Least
		}
		nat.AddRtAttr(least, c.Translated.AsSlice())
		req.AddData(nat)
	}
	return n.Do(func() error {
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
			return fmt.Errorf("in namespace %s: track a connection of protocol %d from %s to %s: %w", n.Name, c.Protocol, c.Src, c.Dst, err)
		}
		return nil
	})
}

// ForgetConnections makes the namespace forget all connections.
func (n *Namespace) ForgetConnections() error {
	return n.Do(func() error {
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return fmt.Errorf("in namespace %s: forget connections: %w", n.Name, err)
		}
		return nil
	})
}

// tuple describes the packets of one direction of a connection.
func tuple(kind int, protocol uint8, src, dst netip.AddrPort, reply bool) *nl.RtAttr {
	srcAttr, dstAttr := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if src.Addr().Is6() {
		srcAttr, dstAttr = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	t := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	ip := t.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(srcAttr, src.Addr().AsSlice())
	ip.AddRtAttr(dstAttr, dst.Addr().AsSlice())
	proto := t.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{protocol})
	switch protocol {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		addICMP(proto, protocol, src, dst, reply)
	default:
		proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, src.Port()))
		proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, dst.Port()))
	}
	return t
}

// addICMP adds type, code and identifier, which are the ports of a request's ends; a reply has
// another type.
func addICMP(proto *nl.RtAttr, protocol uint8, src, dst netip.AddrPort, reply bool) {
	asked, id, attr := src.Port(), dst.Port(), attrICMPID
	if reply {
		asked, id = dst.Port(), src.Port()
	}
	typ, code := byte(asked>>8), byte(asked)
	if reply {
		typ = answerTo(protocol, typ)
	}
	if protocol == unix.IPPROTO_ICMPV6 {
		attr = attrICMPv6ID
	}
	proto.AddRtAttr(attr, binary.BigEndian.AppendUint16(nil, id))
	proto.AddRtAttr(attr+1, []byte{typ})
	proto.AddRtAttr(attr+2, []byte{code})
}

func answerTo(protocol, typ uint8) uint8 {
	if protocol == unix.IPPROTO_ICMP && typ == 8 {
		return 0
	}
	return typ + 1 // of ICMP to 13, 15 and 17, of ICMPv6 to 128 and 139
}

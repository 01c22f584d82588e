package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// errTooLarge: a frame is larger than the MTU of the workload's interface.
var errTooLarge = errors.New("larger than the MTU of the interface")

// exchange sends a frame, and again while it is not answered, until match accepts a frame received
// or returns an error.
func (w *workload) exchange(ctx context.Context, frame []byte, match func(*packet.Frame, []byte) (bool, error)) error {
	socket, err := w.net.PacketSocket(w.link)
	if err != nil {
		return err
	}
	defer socket.Close()
	for range tries {
		if _, err := socket.Write(frame); errors.Is(err, unix.EMSGSIZE) {
			return errTooLarge
		} else if err != nil {
			return err
		}
		if err := socket.SetReadDeadline(time.Now().Add(tryTime)); err != nil {
			return err
		}
		err := receive(socket, match)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errNoAnswer
}

// receive reads frames until match accepts one or returns an error.
func receive(socket *os.File, match func(*packet.Frame, []byte) (bool, error)) error {
	b := make([]byte, 1<<16)
	for {
		n, err := socket.Read(b)
		if err != nil {
			return err
		}
		var f packet.Frame
		if packet.Decode(b[:n], &f) != nil {
			continue
		}
		if done, err := match(&f, b[:n]); done || err != nil {
			return err
		}
	}
}

// probeARP asks for the MAC address of a target.
func (w *workload) probeARP(ctx context.Context, p *topology.Probe) (string, error) {
	err := w.exchange(ctx, packet.ARPRequestFor(p.Target, w.MAC, w.Address.Addr()), func(f *packet.Frame, _ []byte) (bool, error) {
		if f.ARPOp != packet.ARPReply || f.SrcIP != p.Target {
			return false, nil
		}
		if f.SHA != p.MAC {
			return false, fmt.Errorf("%s answers, which is not the port's address %s", f.SHA, p.MAC)
		}
		return true, nil
	})
	return p.MAC.String(), err
}

// probeNDP asks for the MAC address of a target by IPv6.
func (w *workload) probeNDP(ctx context.Context, p *topology.Probe) (string, error) {
	group := packet.SolicitedNode(p.Target)
	question := packet.NeighborSolicit(packet.MulticastMAC(group), w.MAC, w.Address6.Addr(), group, p.Target)
	err := w.exchange(ctx, question, func(f *packet.Frame, _ []byte) (bool, error) {
		ip, mac, ok := f.Binding()
		if !ok || f.TpSrc != uint16(packet.ICMPv6NeighborAdvert) || ip != p.Target {
			return false, nil
		}
		if mac != p.MAC {
			return false, fmt.Errorf("%s answers, which is not the port's address %s", mac, p.MAC)
		}
		return true, nil
	})
	return p.MAC.String(), err
}

// Bytes of the headers of an echo.
const (
	ipHeader   = 20
	ip6Header  = 40
	echoHeader = 8
)

// probeICMP pings a target with a small packet.
func (w *workload) probeICMP(ctx context.Context, p *topology.Probe) (string, error) {
	return "answered", w.ping(ctx, p, ip6Header+echoHeader)
}

// probeMTU pings a target with the largest packet, and finds that one byte more is refused.
func (w *workload) probeMTU(ctx context.Context, p *topology.Probe) (string, error) {
	if err := w.ping(ctx, p, w.MTU); err != nil {
		return "", fmt.Errorf("%d bytes: %w", w.MTU, err)
	}
	if err := w.ping(ctx, p, w.MTU+1); !errors.Is(err, errTooLarge) {
		return "", fmt.Errorf("%d bytes: sent and %w, want it refused, since the MTU is %d", w.MTU+1, cmpErr(err), w.MTU)
	}
	return fmt.Sprintf("%d bytes pass, %d are refused", w.MTU, w.MTU+1), nil
}

// cmpErr names success.
func cmpErr(err error) error {
	if err == nil {
		return errors.New("answered")
	}
	return err
}

// ping sends an echo of a size, in bytes with the IP header, that must not be fragmented.
func (w *workload) ping(ctx context.Context, p *topology.Probe, size int) error {
	id := uint16(rand.Uint32())
	return w.exchange(ctx, w.echo(p, id, size), func(f *packet.Frame, b []byte) (bool, error) {
		switch {
		case f.Proto != packet.ProtoICMP && f.Proto != packet.ProtoICMPv6 || f.L4 == 0:
			return false, nil
		case f.IsICMPError() && f.Quote.Dst == p.Target && isTooBig(f):
			return false, fmt.Errorf("%s says that at most %d bytes pass", f.SrcIP, binary.BigEndian.Uint16(b[f.L4+6:]))
		}
		return isEchoReply(f) && f.SrcIP == p.Target && f.EchoID == id, nil
	})
}

// echo returns a frame with an echo request of a size.
func (w *workload) echo(p *topology.Probe, id uint16, size int) []byte {
	rest := packet.EchoRest(id, 1)
	if p.Target.Is6() {
		frame := packet.Ethernet{Dst: p.MAC, Src: w.MAC, Type: packet.TypeIPv6}.Append(nil)
		frame = packet.IPv6{HopLimit: 64, Next: packet.ProtoICMPv6, Src: w.Address6.Addr(), Dst: p.Target}.Append(frame, size-ip6Header)
		return packet.ICMP{Type: packet.ICMPv6EchoRequest, Rest: rest}.AppendV6(frame, w.Address6.Addr(), p.Target, make([]byte, size-ip6Header-echoHeader))
	}
	frame := packet.Ethernet{Dst: p.MAC, Src: w.MAC, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoICMP, ID: id, DontFragment: true, Src: w.Address.Addr(), Dst: p.Target}.Append(frame, size-ipHeader)
	return packet.ICMP{Type: packet.ICMPEchoRequest, Rest: rest}.Append(frame, make([]byte, size-ipHeader-echoHeader))
}

// isTooBig reports whether an ICMP error says that a packet was too large. The MTU is in the last
// two bytes of the first eight, also by IPv6, where no MTU of ours has more.
func isTooBig(f *packet.Frame) bool {
	if f.Proto == packet.ProtoICMPv6 {
		return f.TpSrc == uint16(packet.ICMPv6PacketTooBig)
	}
	return f.TpSrc == uint16(packet.ICMPUnreachable) && f.TpDst == uint16(packet.ICMPFragNeeded)
}

func isEchoReply(f *packet.Frame) bool {
	reply := packet.ICMPEchoReply
	if f.Proto == packet.ProtoICMPv6 {
		reply = packet.ICMPv6EchoReply
	}
	return f.Echo && f.TpSrc == uint16(reply)
}

// probeDHCP gets a lease, which has to be of the port's address and its network's MTU.
func (w *workload) probeDHCP(ctx context.Context) (string, error) {
	offer, err := w.askDHCP(ctx, packet.DHCPDiscover, packet.DHCPOffer)
	if err != nil {
		return "", err
	}
	options := []packet.DHCPOption{{Code: packet.OptRequestedIP, Value: offer.YIAddr.AsSlice()}}
	if server, ok := offer.Option(packet.OptServerID); ok {
		options = append(options, packet.DHCPOption{Code: packet.OptServerID, Value: server})
	}
	lease, err := w.askDHCP(ctx, packet.DHCPRequest, packet.DHCPAck, options...)
	if err != nil {
		return "", err
	}
	if lease.YIAddr != w.Address.Addr() {
		return "", fmt.Errorf("leases %s, and the port has %s", lease.YIAddr, w.Address.Addr())
	}
	if err := checkMTU(lease, w.MTU); err != nil {
		return "", err
	}
	return fmt.Sprintf("leased %s, MTU %d", lease.YIAddr, w.MTU), nil
}

// checkMTU returns an error if a lease has another MTU than the network. It may have none.
func checkMTU(lease *packet.DHCP, network int) error {
	v, ok := lease.Option(packet.OptInterfaceMTU)
	if !ok {
		return nil
	}
	if len(v) != 2 {
		return fmt.Errorf("leases with an MTU of %d bytes, want 2 (RFC 2132 §5.1)", len(v))
	}
	if leased := int(binary.BigEndian.Uint16(v)); leased != network {
		return fmt.Errorf("leases with MTU %d, and the network has %d", leased, network)
	}
	return nil
}

// askDHCP sends a message and returns the answer, which has to be of a type.
func (w *workload) askDHCP(ctx context.Context, typ, wanted uint8, options ...packet.DHCPOption) (answer *packet.DHCP, err error) {
	id := rand.Uint32()
	question := packet.DHCP{Op: packet.BootRequest, XID: id, Flags: broadcastFlag, CHAddr: w.MAC}
	question.Set(packet.OptMessageType, []byte{typ})
	question.Set(packet.OptParameterList, []byte{packet.OptSubnetMask, packet.OptInterfaceMTU})
	question.Options = append(question.Options, options...)
	zero, all := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	datagram := packet.UDP{SrcPort: packet.DHCPClientPort, DstPort: packet.DHCPServerPort}.Append(nil, zero, all, question.Append(nil))
	frame := packet.Ethernet{Dst: packet.Broadcast, Src: w.MAC, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: zero, Dst: all}.Append(frame, len(datagram))
	err = w.exchange(ctx, append(frame, datagram...), func(f *packet.Frame, b []byte) (bool, error) {
		if f.Proto != packet.ProtoUDP || f.TpDst != packet.DHCPClientPort || f.L4 == 0 {
			return false, nil
		}
		m, err := packet.ParseDHCP(b[f.L4+udpHeader : f.End])
		if err != nil || m.XID != id {
			return false, nil // of another exchange
		}
		if m.Type() != wanted {
			return false, fmt.Errorf("answers %s to %s", packet.DHCPTypeName(m.Type()), packet.DHCPTypeName(typ))
		}
		answer = m
		return true, nil
	})
	return answer, err
}

const (
	udpHeader = 8
	// broadcastFlag asks for answers that a client without an address receives (RFC 2131 §2).
	broadcastFlag = 0x8000
)

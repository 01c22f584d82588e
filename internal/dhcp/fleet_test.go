package dhcp

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/topology/packet"
)

// fleet is many machines in one namespace: machine n is the interface eN there, and tapN on the
// host.
type fleet struct {
	*lab
	ns      *netlab.Namespace
	answers time.Duration // in which the answer to a message must come
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	l := newLab(t)
	f := &fleet{l, l.MustNamespace(t, "fleet"), timeout}
	if _, ok := t.(*testing.B); ok {
		f.answers = answerTimeout
	}
	if err := f.ns.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	return f
}

// address is that of machine n in the subnet of the fleet.
func address(n int) string { return fmt.Sprintf("10.65.%d.%d", 1+n/250, 1+n%250) }

// subnet is the key and value of the fleet's subnet.
func (f *fleet) subnet() (string, string) {
	return subnet("a", "10.65.0.0/16", "10.65.0.1", `, "dns_servers": ["172.18.10.55"]`)
}

// plug makes the interfaces of count machines from first on. The length of their queues is set
// last, which has the kernel let packets out at once: by itself it does up to a second after the
// other end of a pair has come up.
func (f *fleet) plug(first, count int) error {
	var links, taps, queues []string
	for n := first; n < first+count; n++ {
		m := machine{n: n}
		links = append(links, fmt.Sprintf("link add e%d address %s type veth peer name %s netns %s", n, m.mac(), m.tap(), f.host.Name), fmt.Sprintf("link set e%d up", n))
		taps = append(taps, "link set "+m.tap()+" up", "link set "+m.tap()+" txqueuelen 1001")
		queues = append(queues, fmt.Sprintf("link set e%d txqueuelen 1001", n))
	}
	return cmp.Or(f.ns.IP(links...), f.host.IP(taps...), f.ns.IP(queues...))
}

// unplug takes a machine's interfaces away.
func (f *fleet) unplug(n int) error { return f.ns.IP(fmt.Sprintf("link delete e%d", n)) }

// endpoint is the key and value of a machine's endpoint.
func (f *fleet) endpoint(n int, address string) (string, string) {
	m := machine{lab: f.lab, n: n}
	return m.endpoint(address, "a")
}

// populate plugs machines in, writes their endpoints, and has each take a lease.
func (f *fleet) populate(t testing.TB, count int) {
	t.Helper()
	if err := f.plug(0, count); err != nil {
		t.Fatal(err)
	}
	f.put(f.subnet())
	var pairs []string
	for n := range count {
		key, value := f.endpoint(n, address(n))
		pairs = append(pairs, key, value)
	}
	f.put(pairs...)
	f.start()
	f.serving(1)
	for n := range count {
		if err := f.lease(n, address(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// client is a DHCP client of one machine that speaks in raw frames, so that it knows when each
// arrived.
type client struct {
	file    *os.File
	mac     packet.MAC
	xid     uint32
	answers time.Duration
	buf     [2048]byte
}

// client opens a socket on a machine's interface.
func (f *fleet) client(n int) (*client, error) {
	mac, err := packet.ParseMAC((&machine{n: n}).mac())
	if err != nil {
		return nil, err
	}
	c := &client{mac: mac, answers: f.answers}
	name := fmt.Sprintf("e%d", n)
	err = f.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		c.file = os.NewFile(uintptr(fd), name)
		link, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		return cmp.Or(unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, link), unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP >> 8, Ifindex: int(link.Uint32())})) // in network byte order
	})
	if err != nil {
		return nil, fmt.Errorf("DHCP client of machine %d: %w", n, err)
	}
	c.renew()
	return c, nil
}

// lease has a machine ask for an address with one message of each kind; it must get this one.
func (f *fleet) lease(n int, address string) error {
	c, err := f.client(n)
	if err != nil {
		return err
	}
	defer c.close()
	got, err := c.try()
	if err == nil && got.String() != address {
		err = fmt.Errorf("got %s, want %s", got, address)
	}
	if err != nil {
		return fmt.Errorf("machine %d: %w", n, err)
	}
	return nil
}

// leaseOnceServed has a machine ask until it is offered its address, and then take the offer with
// one message.
func (f *fleet) leaseOnceServed(n int, address string) error {
	c, err := f.client(n)
	if err != nil {
		return err
	}
	defer c.close()
	// Seldom enough that many machines together do not fill the server's socket, where the request
	// would be lost.
	offer, err := c.untilOffered(time.Now().Add(f.answers), 100*time.Millisecond)
	if err == nil {
		var got netip.Addr
		if got, err = c.request(offer); err == nil && got.String() != address {
			err = fmt.Errorf("got %s, want %s", got, address)
		}
	}
	if err != nil {
		return fmt.Errorf("machine %d: %w", n, err)
	}
	return nil
}

func (c *client) close() { c.file.Close() }

// renew begins another exchange.
func (c *client) renew() {
	var random [4]byte
	rand.Read(random[:])
	c.xid = binary.BigEndian.Uint32(random[:])
}

// send broadcasts a message, as a machine does that has no address.
func (c *client) send(kind uint8, options ...packet.DHCPOption) error {
	m := packet.DHCP{Op: packet.BootRequest, XID: c.xid, CHAddr: c.mac, Options: append([]packet.DHCPOption{
		{Code: packet.OptMessageType, Value: []byte{kind}},
		{Code: packet.OptParameterList, Value: []byte{packet.OptSubnetMask, packet.OptRouter, packet.OptDNSServer, packet.OptHostName}},
	}, options...)}
	from, to := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	udp := packet.UDP{SrcPort: packet.DHCPClientPort, DstPort: packet.DHCPServerPort}.Append(nil, from, to, m.Append(nil))
	frame := packet.Ethernet{Dst: packet.Broadcast, Src: c.mac, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: from, Dst: to}.Append(frame, len(udp))
	_, err := c.file.Write(append(frame, udp...))
	return err
}

// receive waits for the next answer of this exchange until a time; os.ErrDeadlineExceeded when
// there is none.
func (c *client) receive(until time.Time) (*packet.DHCP, error) {
	if err := c.file.SetReadDeadline(until); err != nil {
		return nil, err
	}
	const udpAt = 14 + 20 // dnsmasq's packets have no IP options
	for {
		n, err := c.file.Read(c.buf[:])
		if err != nil {
			return nil, err
		}
		b := c.buf[:n]
		if n < udpAt+8 || b[14+9] != packet.ProtoUDP || binary.BigEndian.Uint16(b[udpAt+2:]) != packet.DHCPClientPort {
			continue
		}
		if m, err := packet.ParseDHCP(b[udpAt+8:]); err == nil && m.Op == packet.BootReply && m.XID == c.xid {
			return m, nil
		}
	}
}

// answerTimeout bounds the wait of a client of a benchmark for the answer to a message of which it
// sends one, as udhcpc does.
const answerTimeout = 3 * time.Second

// expect waits for an answer of one kind; a refusal is an error, as is silence.
func (c *client) expect(kind uint8) (*packet.DHCP, error) {
	until := time.Now().Add(c.answers)
	for {
		m, err := c.receive(until)
		switch {
		case err != nil:
			return nil, fmt.Errorf("no %s: %w", packet.DHCPTypeName(kind), err)
		case m.Type() == kind:
			return m, nil
		case m.Type() == packet.DHCPNak:
			return nil, fmt.Errorf("refused instead of %s", packet.DHCPTypeName(kind))
		}
	}
}

// try asks for an address with one message of each kind: discover, offer, request, ack.
func (c *client) try() (netip.Addr, error) {
	c.renew()
	if err := c.send(packet.DHCPDiscover); err != nil {
		return netip.Addr{}, err
	}
	offer, err := c.expect(packet.DHCPOffer)
	if err != nil {
		return netip.Addr{}, err
	}
	return c.request(offer)
}

// request takes an offer.
func (c *client) request(offer *packet.DHCP) (netip.Addr, error) {
	server, _ := offer.Option(packet.OptServerID)
	err := c.send(packet.DHCPRequest, packet.DHCPOption{Code: packet.OptRequestedIP, Value: offer.YIAddr.AsSlice()}, packet.DHCPOption{Code: packet.OptServerID, Value: server})
	if err != nil {
		return netip.Addr{}, err
	}
	ack, err := c.expect(packet.DHCPAck)
	if err != nil {
		return netip.Addr{}, err
	}
	return ack.YIAddr, nil
}

// untilOffered asks again and again, so far apart, until it is offered an address.
func (c *client) untilOffered(until time.Time, apart time.Duration) (*packet.DHCP, error) {
	c.renew()
	for {
		if err := c.send(packet.DHCPDiscover); err != nil {
			return nil, err
		}
		next := time.Now().Add(apart)
		for {
			m, err := c.receive(next)
			if err == nil && m.Type() == packet.DHCPOffer {
				return m, nil
			}
			if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(until) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("no offer: %w", err)
			}
		}
	}
}

package services

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// probes are the checks of a container that the agent makes itself, a goroutine for each member:
// pings, and datagrams to UDP ports.
type probes struct {
	ns        *hostnet.Namespace
	health    *verdicts
	known     func(member string) string // the last verdict about a member, "" for none
	sight     *sight
	container string
	running   map[string]*probe // by member; of the container's goroutine
}

// probe is the check of one member.
type probe struct {
	pool   plan.Pool // without members
	member topology.PoolMember
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newProbes(ns *hostnet.Namespace, health *verdicts, known func(string) string, sight *sight, container string) *probes {
	return &probes{ns: ns, health: health, known: known, sight: sight, container: container, running: map[string]*probe{}}
}

// set makes the checks those of a container.
func (p *probes) set(ctx context.Context, c *plan.Container) {
	wanted := map[string]bool{}
	for _, pool := range c.Probed() {
		members := pool.Members
		pool.Members = nil
		for _, m := range members {
			wanted[m.ID] = true
			old := p.running[m.ID]
			if old != nil && reflect.DeepEqual(old.pool, pool) && reflect.DeepEqual(old.member, m) {
				continue
			}
			if old != nil {
				old.stop()
			}
			p.running[m.ID] = p.start(ctx, pool, m)
		}
	}
	for id, old := range p.running {
		if !wanted[id] {
			old.stop()
			delete(p.running, id)
		}
	}
}

// stop ends all checks.
func (p *probes) stop() {
	for _, one := range p.running {
		one.stop()
	}
}

func (p *probe) stop() {
	p.cancel()
	p.done.Wait()
}

// start checks a member until the probe is stopped.
func (p *probes) start(ctx context.Context, pool plan.Pool, m topology.PoolMember) *probe {
	ctx, cancel := context.WithCancel(ctx)
	one := &probe{pool: pool, member: m, cancel: cancel}
	one.done.Go(func() {
		counter := plan.NewCounter(pool.Fall(), pool.Rise(), p.known(m.ID))
		tick := time.NewTicker(time.Duration(pool.Monitor.Delay) * time.Second)
		defer tick.Stop()
		for {
			begun := time.Now()
			err := one.check(ctx, p.ns)
			if ctx.Err() != nil {
				return
			}
			if since, ok := p.sight.since(); err == nil || ok && since.Before(begun) {
				if status := counter.Add(err == nil); status != "" {
					p.health.set(p.container, plan.Verdict{MemberID: m.ID, Status: status})
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return one
}

// check makes one check.
func (p *probe) check(ctx context.Context, ns *hostnet.Namespace) error {
	to := netip.AddrPortFrom(p.member.Address, p.member.ProtocolPort)
	if p.member.MonitorAddress.IsValid() {
		to = netip.AddrPortFrom(p.member.MonitorAddress, to.Port())
	}
	if p.member.MonitorPort != 0 {
		to = netip.AddrPortFrom(to.Addr(), p.member.MonitorPort)
	}
	timeout := time.Duration(p.pool.Monitor.Timeout) * time.Second
	network := "udp"
	if p.pool.Monitor.Type == topology.MonitorPing {
		network = "ip4:icmp"
	}
	var c net.Conn
	err := ns.Do(func() (err error) {
		c, err = dial(ctx, network, p.pool.Source, to)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if raw, ok := c.(*net.IPConn); ok {
		return ping(raw)
	}
	return probeUDP(c)
}

// dial opens a socket to a member from an address of the container, invalid for any.
func dial(ctx context.Context, network string, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	if network == "udp" {
		if from.IsValid() {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		return d.DialContext(ctx, network, to.String())
	}
	if !to.Addr().Is4() {
		return nil, fmt.Errorf("ping of %v: only IPv4 addresses are checked", to.Addr())
	}
	if from.IsValid() {
		d.LocalAddr = &net.IPAddr{IP: from.AsSlice()}
	}
	return d.DialContext(ctx, network, to.Addr().String())
}

// probeUDP sends an empty datagram. The port counts as open unless an ICMP error comes back: most
// servers answer nothing to it.
func probeUDP(c net.Conn) error {
	if _, err := c.Write(nil); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

// echoLength is the length of an echo request and of its reply, without data.
const echoLength = 8

// ping sends an echo request, and waits for the reply.
func ping(c *net.IPConn) error {
	request := echoRequest(uint16(time.Now().UnixNano()), 1)
	if _, err := c.Write(request); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buffer) // without the IP header
		if err != nil {
			return err
		}
		// Sockets of this kind receive all ICMP messages from the member.
		if isReply(buffer[:n], request) {
			return nil
		}
	}
}

// echoRequest builds an ICMP echo request.
func echoRequest(id, sequence uint16) []byte {
	b := make([]byte, echoLength)
	b[0] = 8
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], sequence)
	sum := uint32(b[0])<<8 + uint32(id) + uint32(sequence)
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

// isReply reports whether an ICMP message is the reply to a request.
func isReply(b, request []byte) bool {
	return len(b) >= echoLength && b[0] == 0 && b[1] == 0 && slices.Equal(b[4:echoLength], request[4:echoLength])
}

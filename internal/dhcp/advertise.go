package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"heddle/internal/dhcp/plan"
	"heddle/internal/hostnet"
)

const (
	// routerLifetime bounds the use of a router without another advertisement; advertiseEvery is
	// the time between two (RFC 4861 §6.2.1: a third of that).
	routerLifetime = 30 * time.Minute
	advertiseEvery = routerLifetime / 3

	// mostServers bounds the DNS servers that an advertisement names, as DHCPv6 does.
	mostServers = 20
)

// advertiser advertises to each workload its router and prefixes, on its own interface: dnsmasq
// would advertise all subnets on all interfaces, and answer solicitations on the gateway device,
// where no machine is.
//
// The router is the host, by its link-local address on that interface. A host forwards, so its
// kernel receives solicitations.
type advertiser struct {
	conn *ipv6.PacketConn
	host *hostnet.Linux
	log  *slog.Logger

	mu    sync.Mutex
	ports map[string][]byte // advertisements by interface
}

// newAdvertiser opens the socket in the network namespace of the caller. Where the kernel has no
// IPv6, it returns nil, which advertises nothing.
func newAdvertiser(host *hostnet.Linux, log *slog.Logger) (*advertiser, error) {
	// Not by package net, which checks once for a process whether there is IPv6.
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	file := os.NewFile(uintptr(fd), "router advertisements")
	defer file.Close()
	socket, err := net.FilePacketConn(file)
	if err != nil {
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	conn := ipv6.NewPacketConn(socket)
	filter := &ipv6.ICMPFilter{}
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(conn.SetICMPFilter(filter), conn.SetControlMessage(ipv6.FlagInterface|ipv6.FlagHopLimit, true),
		conn.SetMulticastHopLimit(255), conn.SetMulticastLoopback(false))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	return &advertiser{conn: conn, host: host, log: log, ports: map[string][]byte{}}, nil
}

// apply makes the ports' advertisements those that are sent, and sends new ones at once.
func (a *advertiser) apply(ports []plan.Port) {
	if a == nil {
		return
	}
	now := map[string][]byte{}
	for _, p := range ports {
		if p.Advertisement == nil {
			continue
		}
		message, err := marshal(p.Advertisement)
		if err != nil {
			a.log.Error("cannot write the router advertisement", "interface", p.Interface, "err", err)
			continue
		}
		now[p.Interface] = message
	}
	a.mu.Lock()
	before := a.ports
	a.ports = now
	a.mu.Unlock()
	for name, message := range now {
		if string(before[name]) != string(message) {
			a.send(name, message)
		}
	}
}

// send advertises on an interface, if it is there yet.
func (a *advertiser) send(name string, message []byte) {
	link, err := a.host.Link(name)
	if err != nil {
		return
	}
	_, err = a.conn.WriteTo(message, &ipv6.ControlMessage{IfIndex: link.Index}, &net.IPAddr{IP: net.IPv6linklocalallnodes})
	// A new interface has no address to send from for a while; Run sends again then.
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, net.ErrClosed) {
		a.log.Debug("cannot advertise", "interface", name, "err", err)
	}
}

// Run advertises, until ctx ends: to machines that solicit, on interfaces whose link-local address
// has just become usable, as nothing could be sent there before, and to all from time to time.
func (a *advertiser) Run(ctx context.Context) error {
	if a == nil {
		return nil
	}
	usable, err := a.host.WatchLinkLocal(ctx)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { a.conn.Close() })
	solicited := make(chan int)
	go a.listen(ctx, solicited)
	all := time.Tick(advertiseEvery)
	for {
		index := 0 // all
		select {
		case <-ctx.Done():
			return nil
		case index = <-solicited:
		case i, ok := <-usable:
			if !ok {
				usable = nil // with ctx, or the namespace
				continue
			}
			index = i
		case <-all:
		}
		a.sendTo(index)
	}
}

// sendTo advertises on the interface with an index, if it is still there, or with 0 on all.
func (a *advertiser) sendTo(index int) {
	a.mu.Lock()
	ports := a.ports
	a.mu.Unlock()
	if index == 0 {
		for port, message := range ports {
			a.send(port, message)
		}
		return
	}
	link, err := a.host.LinkByIndex(index)
	if message, ok := ports[link.Name]; ok && err == nil {
		a.send(link.Name, message)
	}
}

// listen sends the interfaces on which machines solicit routers, until the socket is closed.
// Solicitations from beyond the link do not count (RFC 4861 §6.1.1).
func (a *advertiser) listen(ctx context.Context, solicited chan<- int) {
	packet := make([]byte, 256)
	for {
		n, control, _, err := a.conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 || control == nil || control.HopLimit != 255 || control.IfIndex == 0 {
			continue
		}
		select {
		case solicited <- control.IfIndex:
		case <-ctx.Done():
			return
		}
	}
}

// marshal returns the ICMPv6 message of a router advertisement (RFC 4861 §4.2), without its
// checksum, which the kernel computes.
func marshal(a *plan.Advertisement) ([]byte, error) {
	lifetime := time.Duration(a.LeaseSeconds) * time.Second
	if a.LeaseSeconds == plan.Infinite {
		lifetime = ndp.Infinity
	}
	m := &ndp.RouterAdvertisement{
		CurrentHopLimit:      64,
		ManagedConfiguration: a.Managed,
		OtherConfiguration:   a.Other,
		RouterLifetime:       routerLifetime,
	}
	for _, p := range a.Prefixes {
		m.Options = append(m.Options, &ndp.PrefixInformation{
			Prefix:                         p.Prefix.Addr(),
			PrefixLength:                   uint8(p.Prefix.Bits()),
			AutonomousAddressConfiguration: p.Autonomous,
			ValidLifetime:                  lifetime,
			PreferredLifetime:              lifetime,
		})
	}
	if a.MTU > 0 {
		m.Options = append(m.Options, ndp.NewMTU(uint32(a.MTU)))
	}
	if servers := a.DNSServers[:min(len(a.DNSServers), mostServers)]; len(servers) > 0 {
		m.Options = append(m.Options, &ndp.RecursiveDNSServer{Lifetime: routerLifetime, Servers: servers})
	}
	if a.Domain != "" {
		m.Options = append(m.Options, &ndp.DNSSearchList{Lifetime: routerLifetime, DomainNames: []string{a.Domain}})
	}
	return ndp.MarshalMessage(m)
}

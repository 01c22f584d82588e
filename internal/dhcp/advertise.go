package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"heddle/internal/dhcp/plan"
	"heddle/internal/hostnet"
)

const (
	// routerLifetime is how long a machine keeps its host as its router without another advertisement, and advertiseEvery
	// the time between two (RFC 4861 §6.2.1: a third of that).
	routerLifetime = 30 * time.Minute
	advertiseEvery = routerLifetime / 3

	// mostServers is how many DNS servers an advertisement names, as DHCPv6 does.
	mostServers = 20

	routerSolicitation = 133
)

// advertiser tells each workload its router and prefixes, on its own interface: dnsmasq tells all interfaces of all
// subnets, and sends its answer to a machine that asks to the gateway device, where nobody is.
//
// The router is the host, by its link-local address on that interface. A host forwards, so its kernel listens to what
// machines ask of all routers.
type advertiser struct {
	socket *os.File
	log    *slog.Logger

	mu    sync.Mutex
	ports map[string][]byte // by interface: its advertisement
}

// newAdvertiser opens the socket in the network namespace of the caller. Where the kernel has no IPv6, nil: it advertises
// nothing.
func newAdvertiser(log *slog.Logger) (*advertiser, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	filter := unix.ICMPv6Filter{}
	for i := range filter.Data {
		filter.Data[i] = ^uint32(0) // block
	}
	filter.Data[routerSolicitation/32] &^= 1 << (routerSolicitation % 32)
	err = errors.Join(
		unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &filter),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	return &advertiser{socket: os.NewFile(uintptr(fd), "router advertisements"), log: log, ports: map[string][]byte{}}, nil
}

// apply makes the ports' advertisements those that are sent, and tells at once what is new.
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
	link, err := a.interfaceOf(unix.SIOCGIFINDEX, name, 0)
	if err != nil {
		return
	}
	raw, err := a.socket.SyscallConn()
	if err != nil {
		return // closed
	}
	everybody := &unix.SockaddrInet6{Addr: [16]byte{0xff, 2, 15: 1}, ZoneId: link.Uint32()}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), message, 0, everybody)
		return !errors.Is(failed, unix.EAGAIN)
	})
	// A new interface has no address to send from for a while; Run sends again then.
	if err = errors.Join(err, failed); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, os.ErrClosed) {
		a.log.Debug("cannot advertise", "interface", name, "err", err)
	}
}

// Run answers those who ask, tells those on whose interface the host has just become able to speak, as nothing could be
// said to them before, and all from time to time, until ctx ends.
func (a *advertiser) Run(ctx context.Context, host *hostnet.Linux) error {
	if a == nil {
		return nil
	}
	usable, err := host.WatchLinkLocal(ctx)
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		a.socket.Close()
	}()
	asked := make(chan string)
	go a.listen(ctx, asked)
	all := time.NewTicker(advertiseEvery)
	defer all.Stop()
	for {
		name := ""
		select {
		case <-ctx.Done():
			return nil
		case name = <-asked:
		case index, ok := <-usable:
			if !ok {
				usable = nil // with ctx, or the namespace
				continue
			}
			if name, ok = a.nameOf(index); !ok {
				continue
			}
		case <-all.C:
		}
		a.mu.Lock()
		ports := a.ports
		a.mu.Unlock()
		for port, message := range ports {
			if name == "" || name == port {
				a.send(port, message)
			}
		}
	}
}

// listen tells on which interfaces machines ask for routers, until the socket is closed.
func (a *advertiser) listen(ctx context.Context, asked chan<- string) {
	raw, err := a.socket.SyscallConn()
	if err != nil {
		return
	}
	packet, control := make([]byte, 256), make([]byte, 256)
	for {
		var n, c int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, c, _, _, failed = unix.Recvmsg(int(fd), packet, control, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		if failed != nil || n < 8 {
			continue
		}
		index, ok := solicited(control[:c])
		if !ok {
			continue
		}
		name, ok := a.nameOf(index)
		if !ok {
			continue
		}
		select {
		case asked <- name:
		case <-ctx.Done():
			return
		}
	}
}

// nameOf is the name of the interface with an index, if it is there still; "" for 0, which means all.
func (a *advertiser) nameOf(index int) (name string, ok bool) {
	if index == 0 {
		return "", true
	}
	link, err := a.interfaceOf(unix.SIOCGIFNAME, "", uint32(index))
	if err != nil {
		return "", false
	}
	return link.Name(), true
}

// interfaceOf asks the kernel for the index or the name of one interface: package net would read all that a host has.
func (a *advertiser) interfaceOf(request uint, name string, index uint32) (*unix.Ifreq, error) {
	link, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	link.SetUint32(index)
	raw, err := a.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlIfreq(int(fd), request, link) })
	return link, errors.Join(err, failed)
}

// solicited reads where a solicitation came in. One that did not come from the link itself does not count (RFC 4861
// §6.1.1).
func solicited(control []byte) (index int, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	hops := 0
	for _, m := range messages {
		switch {
		case m.Header.Level != unix.IPPROTO_IPV6:
		case m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			index = int(binary.NativeEndian.Uint32(m.Data[16:]))
		case m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4:
			hops = int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return index, index > 0 && hops == 255
}

// marshal returns a router advertisement as ICMPv6 carries it (RFC 4861 §4.2). The kernel computes the checksum.
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

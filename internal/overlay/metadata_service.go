package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology/flow"
)

// MetadataServer answers the requests of this host's workloads for metadata.
type MetadataServer interface {
	// Serve answers the connections that the listeners accept until ctx ends, and closes all then.
	// client returns the port behind the remote address of a connection, and the source address
	// that the workload itself has; not ok if there is none, or none any more.
	Serve(ctx context.Context, listeners []net.Listener, client func(remote netip.Addr) (port string, source netip.Addr, ok bool)) error
}

const (
	// metadataLink is the host's end of the veth pair to the metadata service's namespace.
	metadataLink = "heddle-md"
	// metadataInner is the other end.
	metadataInner = "eth0"
)

// MetadataNamespacePrefix begins the names of the namespaces of metadata services.
const MetadataNamespacePrefix = metadataLink + "-"

// metadataNamespace returns the name of the namespace of the metadata service.
func metadataNamespace(datapath string) string { return MetadataNamespacePrefix + datapath }

// metadataService keeps the namespace of the metadata service, which workloads' requests reach by
// its port of the datapath, and has a server listen there (decision 0040). The namespace outlives
// the agent: the next one finds it.
type metadataService struct {
	host      *hostnet.Linux
	namespace string
	server    MetadataServer
	clients   *metadataClients
	gone      task.Notice // the link has gone
	log       *slog.Logger
}

// Run works until ctx ends. What fails it tries again: a host without metadata still forwards.
func (m *metadataService) Run(ctx context.Context) error {
	var retry task.Backoff
	for {
		err := m.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			m.log.Error("cannot serve metadata; trying again", "err", err)
		}
		if !retry.Pause(ctx) {
			return nil
		}
	}
}

// serve serves until ctx ends or the link goes.
func (m *metadataService) serve(ctx context.Context) error {
	listeners, err := m.listen()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-m.gone:
			}
			if _, err := m.host.Link(metadataLink); errors.Is(err, hostnet.ErrNotFound) {
				return
			}
		}
	}()
	return m.server.Serve(ctx, listeners, m.client)
}

// client implements the lookup of MetadataServer.
func (m *metadataService) client(remote netip.Addr) (port string, source netip.Addr, ok bool) {
	c, ok := m.clients.find(remote.Unmap().WithZone(""))
	return c.PortID, c.IP, ok
}

// listen returns listeners in the namespace, on all of its addresses: no others lead there. Without
// IPv6 in the kernel there is one.
func (m *metadataService) listen() (listeners []net.Listener, err error) {
	ns, err := m.open()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		for _, network := range []string{"tcp4", "tcp6"} {
			l, err := net.Listen(network, fmt.Sprintf(":%d", flow.MetadataTCPPort))
			if errors.Is(err, unix.EAFNOSUPPORT) {
				continue
			}
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
		}
		return nil
	})
	if err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	return listeners, err
}

// open returns the namespace of an earlier agent, or a new one.
func (m *metadataService) open() (*hostnet.Namespace, error) {
	_, err := m.host.Link(metadataLink)
	if err == nil {
		var ns *hostnet.Namespace
		if ns, err = hostnet.OpenNamespace(m.namespace); err == nil {
			if err = configureMetadata(ns); err == nil {
				return ns, nil
			}
			ns.Close()
		}
	}
	if !errors.Is(err, hostnet.ErrNotFound) {
		return nil, err
	}
	if err := removeMetadata(m.host, m.namespace); err != nil {
		return nil, err
	}
	return m.build()
}

// build makes the namespace.
func (m *metadataService) build() (*hostnet.Namespace, error) {
	ns, err := hostnet.NewNamespace()
	if err != nil {
		return nil, err
	}
	if err := m.buildIn(ns); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// buildIn makes the network in a new namespace. That gets its name last, so that one that is not
// complete has none.
func (m *metadataService) buildIn(ns *hostnet.Namespace) error {
	inside, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	_, err = inside.AddLink(hostnet.LinkSpec{Name: metadataInner, Kind: hostnet.Veth, MAC: hostnet.MAC(flow.MetadataMAC), Peer: metadataLink, PeerNet: m.host})
	if err != nil {
		return err
	}
	if err := configureMetadata(ns); err != nil {
		return err
	}
	return ns.Name(m.namespace)
}

// configureMetadata gives the namespace the service's addresses and the way back to its clients. It
// asks nobody for MAC addresses: all is sent to its own, and the flows of the port set the others.
func configureMetadata(ns *hostnet.Namespace) error {
	inside, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	if _, err := inside.Link(metadataInner); err != nil {
		return err
	}
	conf := "ipv6/conf/" + metadataInner + "/"
	// addr_gen_mode 1: no address but ours.
	err = inside.Set(hostnet.Setting{Name: conf + "disable_ipv6", Value: "0"}, hostnet.Setting{Name: conf + "addr_gen_mode", Value: "1"},
		hostnet.Setting{Name: conf + "accept_ra", Value: "0"}, hostnet.Setting{Name: conf + "router_solicitations", Value: "0"})
	hasIPv6 := !errors.Is(err, hostnet.ErrNotFound)
	if err != nil && hasIPv6 {
		return err
	}
	steps := []func() error{
		func() error { return inside.SetNoARP(metadataInner) },
		func() error { return inside.SetUp(metadataInner, true) },
		func() error {
			return inside.AddAddress(metadataInner, netip.PrefixFrom(flow.MetadataIPv4, flow.MetadataIPv4.BitLen()))
		},
		func() error {
			return inside.SetRoute(hostnet.Route{Dst: flow.MetadataSources, Link: metadataInner})
		},
	}
	if hasIPv6 {
		steps = append(steps, func() error { return inside.AddAddress(metadataInner, netip.PrefixFrom(flow.MetadataIPv6, 64)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("namespace %s of the metadata service: %w", ns, err)
		}
	}
	return nil
}

// removeMetadata removes the namespace and the link to it.
func removeMetadata(host *hostnet.Linux, namespace string) error {
	return errors.Join(host.DeleteLink(metadataLink), hostnet.Unname(namespace))
}

// attachMetadata attaches the port to the metadata service, which no host reports as served.
func (a *attachments) attachMetadata(link hostnet.Link, want attachment) error {
	number, err := a.engine.dp.AttachPort(flow.MetadataPort, link.Name, datapath.PortOptions{MTU: link.MTU})
	if err != nil {
		return err
	}
	a.engine.net.attached(localPort{id: flow.MetadataPort, number: number, mtu: link.MTU})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.placed[flow.MetadataPort] = placed{link: link, att: want}
	return nil
}

// wantMetadata has the port to the metadata service attached whenever its link is there.
func (a *attachments) wantMetadata() {
	a.mu.Lock()
	a.wanted[flow.MetadataPort] = metadataLink
	a.mu.Unlock()
	a.reconciler.Want(flow.MetadataPort, attachment{Interface: metadataLink})
}

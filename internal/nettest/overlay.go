package nettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

// wiring is a datapath with the least agent there can be: it knows where each MAC is, and caches both directions of
// whatever goes there. What it forwards after the first packet is forwarded as under the real agent.
type wiring struct {
	*datapath.Datapath
	net   *hostnet.Linux
	ns    *hostnet.Namespace
	opts  datapath.Options
	where map[packet.MAC]datapath.Output
	ports map[packet.MAC]datapath.Port

	cancel context.CancelFunc
	done   chan error
}

func newWiring(ns *Namespace) (w *wiring, err error) {
	w = &wiring{where: map[packet.MAC]datapath.Output{}, ports: map[packet.MAC]datapath.Port{}}
	if w.ns, err = hostnet.OpenNamespace(ns.Path()); err != nil {
		return nil, err
	}
	if w.net, err = hostnet.NewLinux(w.ns); err != nil {
		return nil, err
	}
	w.opts = datapath.Options{Name: "bench-" + ns.Name, Namespace: w.ns}
	w.Datapath, err = datapath.Open(w.opts)
	return w, err
}

// port makes an interface of the host a port.
func (w *wiring) port(ifname string, mac packet.MAC, key uint32) error {
	p, err := w.AttachPort(ifname, ifname, datapath.PortOptions{TunnelKey: key, MTU: workloadMTU})
	w.where[mac], w.ports[mac] = datapath.Output{Port: p}, p
	return err
}

// remote makes a tunnel to the other host, where mac is.
func (w *wiring) remote(local, remote string, other *wiring, mac packet.MAC, key uint32) error {
	mine, err := w.net.Link("under")
	if err != nil {
		return err
	}
	theirs, err := other.net.Link("under")
	if err != nil {
		return err
	}
	if err := w.AttachUnderlay("under", netip.MustParseAddr(local)); err != nil {
		return err
	}
	t, err := w.SetTunnel(datapath.TunnelPath{Interface: mine.Index, SrcMAC: mine.MAC, DstMAC: theirs.MAC, MTU: mine.MTU,
		Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(remote)})
	w.where[mac] = datapath.Output{Tunnel: t, TunnelKey: key}
	return err
}

// start serves upcalls until Close.
func (w *wiring) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done = cancel, make(chan error, 1)
	go func() { w.done <- w.Run(ctx, w.handle) }()
}

// handle forwards a frame and caches its flow, and the replies' if they come in here too. Frames that are too big or go
// nowhere are not answered.
func (w *wiring) handle(u *datapath.Upcall) {
	if len(u.Frame) < 14 {
		return
	}
	out, ok := w.where[packet.MAC(u.Frame[:6])]
	if !ok {
		return
	}
	if key, ok := u.Key(); ok {
		tags := w.Tags(datapath.SlotAll, datapath.SlotOf("bench"))
		flows := []datapath.Flow{{Key: key, Out: out, Tags: tags}}
		if out.Port != 0 {
			flows = append(flows, datapath.Flow{Key: key.Reverse(out.Port), Out: w.where[key.SrcMAC], Tags: tags})
		}
		_ = w.Install(flows) // a flow that is not cached goes up again
	}
	_ = w.Send(out, u.Frame, u.Offload) // a lost packet is what a measurement shows
}

func (w *wiring) Close() error {
	if w.cancel != nil {
		w.cancel()
	}
	var errs []error
	if w.done != nil {
		errs = append(errs, <-w.done)
	}
	return errors.Join(append(errs, w.Datapath.Close(), datapath.Cleanup(w.opts), w.net.Close(), w.ns.Close())...)
}

// closers are closed in order.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

const (
	clientKey = 101
	serverKey = 102
)

// overlayPath is two workloads on one host with Heddle's datapath.
func overlayPath(l *Lab) (Path, io.Closer, error) {
	h, err := l.Namespace("host")
	if err != nil {
		return Path{}, nil, err
	}
	p, err := l.ends("Heddle", h, h)
	if err != nil {
		return p, nil, err
	}
	w, err := newWiring(h)
	if err != nil {
		return p, nil, err
	}
	err = errors.Join(w.port("client", mustMAC(clientMAC), clientKey), w.port("server", mustMAC(serverMAC), serverKey))
	w.start()
	return p, closers{w, l}, err
}

// overlayHostsPath is two workloads on two hosts with Heddle's datapath.
func overlayHostsPath(segmented bool) func(*Lab) (Path, io.Closer, error) {
	return func(l *Lab) (Path, io.Closer, error) {
		h1, h2, err := l.hosts(segmented)
		if err != nil {
			return Path{}, nil, err
		}
		p, err := l.ends("Heddle", h1, h2)
		if err != nil {
			return p, nil, err
		}
		w1, err := newWiring(h1)
		if err != nil {
			return p, nil, err
		}
		w2, err := newWiring(h2)
		if err != nil {
			return p, closers{w1, l}, err
		}
		client, server := mustMAC(clientMAC), mustMAC(serverMAC)
		err = errors.Join(w1.port("client", client, clientKey), w2.port("server", server, serverKey),
			w1.remote(underlay1, underlay2, w2, server, serverKey), w2.remote(underlay2, underlay1, w1, client, clientKey))
		w1.start()
		w2.start()
		return p, closers{w1, w2, l}, err
	}
}

// mustMAC reads one of the addresses above.
func mustMAC(s string) packet.MAC {
	m, err := packet.ParseMAC(s)
	if err != nil {
		panic(fmt.Sprintf("nettest: %v", err))
	}
	return m
}

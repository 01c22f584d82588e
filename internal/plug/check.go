package plug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"heddle/internal/hostnet"
)

// Ready returns an error unless ports can be plugged on this host: its agent runs and is
// registered.
func (p *Plugger) Ready(ctx context.Context) error {
	if runs, err := agentRuns(); err != nil || !runs {
		return errors.Join(err, errors.New("no agent runs on this host: `systemctl start heddle-agent`"))
	}
	_, err := p.agents(ctx)
	return err
}

// Check returns an error unless an attachment is as it was made: the port is bound to this host and
// ACTIVE, and the container has its interface, addresses and routes.
func (p *Plugger) Check(ctx context.Context, at Place) (*Result, error) {
	a := *at.Attachment
	records, err := p.recordsOf(a)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("container %s has no interface %s of a port", a.ContainerID, a.Interface)
	}
	r := records[0]
	port, err := p.readPort(ctx, r.PortID)
	if err != nil {
		return nil, err
	}
	switch {
	case port.host() != p.Host:
		return nil, fmt.Errorf("port %s is bound to host %q, want %s", port, port.host(), p.Host)
	case port.Status != statusActive:
		return nil, p.diagnose(ctx, port, r.Device, "")
	}
	w, err := p.wiring(ctx, port)
	if err != nil {
		return nil, err
	}
	t, err := p.open(at)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if _, err := p.Net.Link(r.Device); err != nil {
		return nil, fmt.Errorf("port %s: interface on the host: %w", port, err)
	}
	if err := t.check(w); err != nil {
		return nil, fmt.Errorf("port %s: %w", port, err)
	}
	return &Result{PortID: port.ID, Name: port.Name, Host: p.Host, Device: r.Device, Place: t.place, MACAddress: port.MACAddress,
		MTU: w.mtu, Addresses: w.addresses, Nameservers: w.nameservers, Status: port.Status}, nil
}

// check compares the interface in the namespace with its settings.
func (t *target) check(w *wiring) error {
	name := t.place.Interface
	link, err := t.net.Link(name)
	if err != nil {
		return err
	}
	if link.MAC != w.mac {
		return fmt.Errorf("interface %s has the MAC address %s, want %s", name, net.HardwareAddr(link.MAC[:]), net.HardwareAddr(w.mac[:]))
	}
	addresses, err := t.net.Addresses(name)
	if err != nil {
		return err
	}
	for _, a := range w.addresses {
		if !slices.Contains(addresses, a) {
			return fmt.Errorf("interface %s lacks the address %s", name, a)
		}
	}
	routes, err := t.net.Routes()
	if err != nil {
		return err
	}
	for _, want := range w.routes { // by another interface too: plug leaves those
		if !slices.ContainsFunc(routes, func(r hostnet.Route) bool { return r.Dst == want.Dst }) {
			return fmt.Errorf("there is no route %s", Route{want.Dst, want.Gateway})
		}
	}
	return nil
}

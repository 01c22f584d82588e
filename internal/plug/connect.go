package plug

import (
	"errors"
	"fmt"
	"net/netip"

	"heddle/internal/hostnet"
)

// connect makes the interface of a port, with all of its settings.
func (t *target) connect(host *hostnet.Linux, r *record, w *wiring, result *Result) error {
	if t.net == nil {
		return connectTap(host, r.Device, w)
	}
	name := t.place.Interface
	if err := t.makePair(host, r.Device, w); err != nil {
		return err
	}
	for _, a := range w.addresses {
		if err := t.net.AddAddress(name, a); err != nil {
			return err
		}
	}
	if err := errors.Join(t.net.SetUp(name, true), host.SetUp(r.Device, true)); err != nil {
		return err
	}
	return t.setRoutes(w, result)
}

// makePair makes the veth pair, unless both ends are there.
func (t *target) makePair(host *hostnet.Linux, device string, w *wiring) error {
	name := t.place.Interface
	inner, errInner := t.net.Link(name)
	_, errOuter := host.Link(device)
	if errInner == nil && errOuter == nil && inner.MAC == w.mac {
		return errors.Join(t.net.SetMTU(name, w.mtu), host.SetMTU(device, w.mtu))
	}
	if err := host.DeleteLink(device); err != nil { // and with it the other end
		return err
	}
	_, err := t.net.AddLink(hostnet.LinkSpec{Name: name, Kind: hostnet.Veth, MAC: w.mac, MTU: w.mtu, Peer: device, PeerNet: host})
	return err
}

// setRoutes sets the routes by the interface. It leaves routes by other interfaces to the same
// destinations, and notes them.
func (t *target) setRoutes(w *wiring, result *Result) error {
	now, err := t.net.Routes()
	if err != nil {
		return err
	}
	others := map[netip.Prefix]string{}
	for _, r := range now {
		if r.Link != t.place.Interface {
			others[r.Dst] = r.Link
		}
	}
	for _, r := range w.routes {
		if link, taken := others[r.Dst]; taken {
			result.Notes = append(result.Notes, fmt.Sprintf("the route to %s by interface %s stays", r.Dst, link))
			continue
		}
		r.Link = t.place.Interface
		if err := t.net.SetRoute(r); err != nil {
			return err
		}
		result.Routes = append(result.Routes, Route{r.Dst, r.Gateway})
	}
	return nil
}

// connectTap makes the persistent tap, unless it is there. It keeps a MAC address of its own: that
// of the port belongs to the machine that opens it.
func connectTap(host *hostnet.Linux, device string, w *wiring) error {
	switch _, err := host.Link(device); {
	case errors.Is(err, hostnet.ErrNotFound):
		if _, err := host.AddLink(hostnet.LinkSpec{Name: device, Kind: hostnet.Tap, MTU: w.mtu}); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	return errors.Join(host.SetMTU(device, w.mtu), host.SetUp(device, true))
}

package xapi

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"

	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// inheritedKey in a tunnel's other_config marks one that its host got from the coordinator and that
// is to be plugged as soon as that can be done.
const inheritedKey = "heddle:inherited"

func tunnelMessages() map[string]handler {
	return map[string]handler{"tunnel.create": tunnelCreate, "tunnel.destroy": tunnelDestroy}
}

// tunnelSite is the place of a tunnel.
type tunnelSite struct{ transport, network *objects.Object }

// checkTunnel fails if a tunnel may not be made, with the errors in the order of spec 7.1.
func (p *pool) checkTunnel(transport, network string) tunnelSite {
	site := tunnelSite{p.get("PIF", transport), p.get("network", network)}
	pif := site.transport
	report := p.alive(pif.Text("host"))
	p.connectable(pif.Text("host"), site.network)
	switch {
	case !pif.Bool("managed"):
		p.fail(model.PIFUnmanaged(pif.Ref))
	case isSlave(pif):
		p.fail(model.CannotAddTunnelToBondSlave(pif.Ref))
	case tunnelOf(p, pif.Ref) != nil:
		p.fail(model.IsTunnelAccessPIF(pif.Ref))
	case report.Backend != "openvswitch":
		p.fail(model.OpenvswitchNotActive())
	case !configured(pif):
		p.fail(model.TransportPIFNotConfigured(pif.Ref))
	}
	return site
}

// connectable fails if a host may not get a PIF on the network.
func (p *pool) connectable(host string, network *objects.Object) {
	if !network.Bool("managed") {
		p.fail(model.NetworkUnmanaged(network.Ref))
	}
	if pif := on(p, host, network.Ref); pif != nil {
		p.fail(model.NetworkAlreadyConnected(host, pif.Ref))
	}
}

// newTunnel returns a tunnel and its access PIF, unplugged and not yet stored.
func (p *pool) newTunnel(site tunnelSite, protocol, mac string) (tunnel, access *objects.Object) {
	transport := site.transport
	access = newObject("PIF", model.Record{
		"device": p.freeDevice(transport.Text("host"), "tunnel"), "network": site.network.Ref, "host": transport.Text("host"), "MAC": mac, "MTU": int64(-1),
		"IPv6": []string{""}, "metrics": transport.Text("metrics"), "primary_address_type": transport.Text("primary_address_type"),
	})
	tunnel = newObject("tunnel", model.Record{"access_PIF": access.Ref, "transport_PIF": transport.Ref, "protocol": protocol})
	return tunnel, access
}

// putTunnel stores a new tunnel.
func (p *pool) putTunnel(tunnel, access *objects.Object) {
	p.uses(access.Text("network"), access.Text("host"), tunnel.Text("transport_PIF"))
	p.put(access, tunnel)
}

// tunnelCreate makes a tunnel with its bridge: all of it or nothing.
func tunnelCreate(c *call) (any, error) {
	transport, network, protocol, mac := c.text("transport_PIF"), c.text("network"), c.text("protocol"), randomMAC()
	p := c.look()
	site := p.checkTunnel(transport, network)
	orders := p.bridgesFor(p.rising(site.transport))
	if p.err != nil {
		return nil, p.err
	}
	_, planned := p.newTunnel(site, protocol, mac)
	orders = append(orders, bridgeOrder(site.transport.Text("host"), objects.BridgeFor(p, site.network, planned)))
	var made string
	err := c.fulfil(orders, func(p *pool) {
		tunnel, access := p.newTunnel(p.checkTunnel(transport, network), protocol, mac)
		p.putTunnel(tunnel, access)
		p.attach(p.rising(access))
		made = tunnel.Ref
	})
	return made, err
}

// tunnelDestroy unplugs the access PIF and removes it with its tunnel.
func tunnelDestroy(c *call) (any, error) {
	return nil, c.clearing(func(p *pool) []place {
		tunnel := p.get("tunnel", c.text("self"))
		access := p.get("PIF", tunnel.Text("access_PIF"))
		p.alive(access.Text("host"))
		places := p.detach(p.falling(access))
		p.removeTunnel(tunnel)
		return places
	})
}

// removeTunnel removes a tunnel and its access PIF.
func (p *pool) removeTunnel(tunnel *objects.Object) {
	p.remove("tunnel", tunnel.Ref)
	p.remove("PIF", tunnel.Text("access_PIF"))
}

// randomMAC returns a unicast address that no manufacturer assigns.
func randomMAC() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	b[0] = b[0]&^1 | 2
	return net.HardwareAddr(b).String()
}

// validMAC reports whether an interface may have the address.
func validMAC(mac string) bool {
	b, err := net.ParseMAC(mac)
	return err == nil && len(b) == 6 && len(mac) == len("00:00:00:00:00:00") && b[0]&1 == 0
}

// without returns a copy of a map that lacks a key.
func without(m map[string]string, key string) map[string]string {
	c := maps.Clone(m)
	delete(c, key)
	return c
}

// with returns a copy of a map in which the key has the value.
func with(m map[string]string, key string, value any) map[string]string {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]string{}
	}
	c[key] = fmt.Sprint(value)
	return c
}

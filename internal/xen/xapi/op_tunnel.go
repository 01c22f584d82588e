package xapi

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// inheritedKey in a tunnel's other_config marks one that its host got from the coordinator and that is to be plugged as
// soon as that can be done.
const inheritedKey = "heddle:inherited"

func tunnelMessages() map[string]handler {
	return map[string]handler{"tunnel.create": tunnelCreate, "tunnel.destroy": tunnelDestroy}
}

// tunnelSite is where a tunnel is to be made.
type tunnelSite struct{ transport, network *objects.Object }

// checkTunnel says whether a tunnel may be made, with the errors in the order of spec 7.1.
func checkTunnel(r records.Reader, transport, network string) (site tunnelSite, err error) {
	if site.transport, err = object(r, "PIF", transport); err != nil {
		return site, err
	}
	if site.network, err = object(r, "network", network); err != nil {
		return site, err
	}
	host := site.transport.Text("host")
	report, err := alive(r, host)
	if err != nil {
		return site, err
	}
	if err := connectable(r, host, site.network); err != nil {
		return site, err
	}
	switch pif := site.transport; {
	case !pif.Bool("managed"):
		return site, model.PIFUnmanaged(pif.Ref)
	case isSlave(pif):
		return site, model.CannotAddTunnelToBondSlave(pif.Ref)
	case tunnelOf(r, pif.Ref) != nil:
		return site, model.IsTunnelAccessPIF(pif.Ref)
	case report.Backend != "openvswitch":
		return site, model.OpenvswitchNotActive()
	case !configured(pif):
		return site, model.TransportPIFNotConfigured(pif.Ref)
	}
	return site, nil
}

// connectable says whether a host may get a PIF on the network.
func connectable(r records.Reader, host string, network *objects.Object) error {
	if !network.Bool("managed") {
		return model.NetworkUnmanaged(network.Ref)
	}
	if pif := on(r, host, network.Ref); pif != nil {
		return model.NetworkAlreadyConnected(host, pif.Ref)
	}
	return nil
}

// newTunnel is a tunnel and its access PIF, unplugged.
func newTunnel(r records.Reader, site tunnelSite, protocol, mac string) (tunnel, access *objects.Object) {
	transport := site.transport
	access = newObject("PIF", model.Record{
		"device": freeDevice(r, transport.Text("host"), "tunnel"), "network": site.network.Ref, "host": transport.Text("host"), "MAC": mac, "MTU": int64(-1),
		"IPv6": []string{""}, "metrics": transport.Text("metrics"), "primary_address_type": transport.Text("primary_address_type"),
	})
	tunnel = newObject("tunnel", model.Record{"access_PIF": access.Ref, "transport_PIF": transport.Ref, "protocol": protocol})
	return tunnel, access
}

// putTunnel stores a new tunnel.
func putTunnel(tx *records.Tx, tunnel, access *objects.Object) error {
	for _, used := range []string{access.Text("network"), access.Text("host"), tunnel.Text("transport_PIF")} {
		uses(tx, used)
	}
	if err := put(tx, access); err != nil {
		return err
	}
	return put(tx, tunnel)
}

// tunnelCreate makes a tunnel with its bridge: all of it or nothing.
func tunnelCreate(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	transport, network, protocol, mac := c.text("transport_PIF"), c.text("network"), c.text("protocol"), randomMAC()
	site, err := checkTunnel(r, transport, network)
	if err != nil {
		return nil, err
	}
	below, err := rising(r, site.transport)
	if err != nil {
		return nil, err
	}
	orders, err := bridgesFor(r, below)
	if err != nil {
		return nil, err
	}
	_, planned := newTunnel(r, site, protocol, mac)
	orders = append(orders, bridgeOrder(site.transport.Text("host"), objects.BridgeFor(r, site.network, planned)))
	var made string
	err = c.fulfil(orders, func(tx *records.Tx) error {
		site, err := checkTunnel(tx, transport, network)
		if err != nil {
			return err
		}
		tunnel, access := newTunnel(tx, site, protocol, mac)
		if err := putTunnel(tx, tunnel, access); err != nil {
			return err
		}
		made = tunnel.Ref
		pifs, err := rising(tx, access)
		if err != nil {
			return err
		}
		return attach(tx, pifs)
	})
	return made, err
}

// tunnelDestroy unplugs the access PIF and takes it away with its tunnel.
func tunnelDestroy(c *call) (any, error) {
	var places []place
	err := c.update(func(tx *records.Tx) error {
		tunnel, err := object(tx, "tunnel", c.text("self"))
		if err != nil {
			return err
		}
		access, err := object(tx, "PIF", tunnel.Text("access_PIF"))
		if err != nil {
			return err
		}
		if _, err := alive(tx, access.Text("host")); err != nil {
			return err
		}
		pifs, err := falling(tx, access)
		if err != nil {
			return err
		}
		if places, err = detach(tx, pifs); err != nil {
			return err
		}
		return removeTunnel(tx, tunnel)
	})
	if err == nil {
		c.cleared(places)
	}
	return nil, err
}

// removeTunnel takes a tunnel and its access PIF away.
func removeTunnel(tx *records.Tx, tunnel *objects.Object) error {
	if err := remove(tx, "tunnel", tunnel.Ref); err != nil {
		return err
	}
	return remove(tx, "PIF", tunnel.Text("access_PIF"))
}

// randomMAC is a unicast address that no manufacturer has given.
func randomMAC() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	b[0] = b[0]&^1 | 2
	return net.HardwareAddr(b).String()
}

// validMAC says whether an interface may have the address.
func validMAC(mac string) bool {
	b, err := net.ParseMAC(mac)
	return err == nil && len(b) == 6 && len(mac) == len("00:00:00:00:00:00") && b[0]&1 == 0
}

// without is a copy of a map that lacks a key.
func without(m map[string]string, key string) map[string]string {
	c := maps.Clone(m)
	delete(c, key)
	return c
}

// with is a copy of a map in which the key has the value.
func with(m map[string]string, key string, value any) map[string]string {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]string{}
	}
	c[key] = fmt.Sprint(value)
	return c
}

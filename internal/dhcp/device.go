package dhcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"heddle/internal/hostnet"
)

// DeviceName is the link that carries the gateways' addresses. A host has one.
const DeviceName = "ns-calico"

// device keeps that link.
type device struct {
	net  *hostnet.Linux
	name string
	log  *slog.Logger

	applied []netip.Prefix // what the link was given last, while known
	known   bool
}

// apply gives the link these addresses and no others, unless it gave it them last. Without any it
// deletes the link.
func (d *device) apply(gateways []netip.Prefix) error {
	if d.known && slices.Equal(d.applied, gateways) {
		return nil // to look takes the kernel milliseconds on a host with hundreds of links
	}
	err := d.restore(gateways)
	d.applied, d.known = slices.Clone(gateways), err == nil
	return err
}

// restore reads the link back, and gives it these addresses and no others.
func (d *device) restore(gateways []netip.Prefix) error {
	if len(gateways) == 0 {
		return d.net.DeleteLink(d.name)
	}
	_, err := d.net.Link(d.name)
	fresh := errors.Is(err, hostnet.ErrNotFound)
	link, err := d.net.AddGateway(d.name, hostnet.MAC{2})
	if err != nil {
		return fmt.Errorf("gateway device: %w", err)
	}
	if fresh {
		d.log.Info("made the gateway device", "link", d.name, "kind", link.Kind)
	}
	found, err := d.net.Addresses(d.name)
	if err != nil {
		return err
	}
	var errs []error
	// First delete: IPv4 addresses in the same network may be deleted along with one.
	for _, a := range found {
		if !slices.Contains(gateways, a) {
			errs = append(errs, d.net.DeleteAddress(d.name, a))
		}
	}
	if found, err = d.net.Addresses(d.name); err != nil {
		return err
	}
	for _, a := range gateways {
		if !slices.Contains(found, a) {
			errs = append(errs, d.net.AddAddressAlone(d.name, a))
		}
	}
	return errors.Join(errs...)
}

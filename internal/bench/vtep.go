package bench

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsecurity"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	vtepVNI = 77
	// vtepMTU leaves room for the VXLAN headers of the VTEP and of a tunnel.
	vtepMTU = 1400
	// vtepPeerMAC and vtepPeerIP are of the machine behind the other VTEP.
	vtepPeerMAC, vtepPeerIP = "02:00:00:00:00:77", "10.9.0.200"
)

// vtep compares the path from a workload by a VTEP of the virtual network to a vxlan device of the
// kernel with that by a Linux bridge and another vxlan device (services §14, row 9).
func (b *bench) vtep(ctx context.Context, x *balancing) error {
	ours, err := x.vtepPath(ctx)
	if err != nil {
		return err
	}
	l := netlab.New(prefix + "-v")
	defer l.Close() // what is left goes with the next run's start
	kernel, err := netlab.VTEPPath(l)
	if err != nil {
		return err
	}
	if err := connected(ctx, ours, kernel); err != nil {
		return err
	}
	f, err := netlab.Compare(ctx, []netlab.Path{ours, kernel},
		netlab.CompareOptions{Slices: b.slices, Slice: b.slice(), Progress: func(kind string) { b.logf("VTEP: %s", kind) }})
	if err != nil {
		return err
	}
	b.add(compareRoundTrips("VTEP: round trip p50 / bridge + vxlan", f[0], f[1], atMost(1)))
	b.add(compareDatagrams("VTEP: UDP packets/s / bridge + vxlan", f[0], f[1], nil))
	b.add(compareStream("VTEP: TCP / bridge + vxlan", f[0], f[1], nil))
	return nil
}

// vtepPath joins a network to the router's VTEP, whose peer is a vxlan device of a machine outside,
// and returns the path from a workload to that device.
func (x *balancing) vtepPath(ctx context.Context) (p netlab.Path, err error) {
	network, err := x.tenant.Network(ctx, "l2", "10.9.0.0/16", "")
	if err != nil {
		return p, err
	}
	workload, err := x.place(ctx, x.tenant, "l2", x.h1, network.ID, "10.9.0.10", x.group)
	if err != nil {
		return p, err
	}
	peer, err := x.outsider(ctx, "peer", x.external.ID, "192.0.2.101", x.group)
	if err != nil {
		return p, err
	}
	// The other VTEP is a machine outside, which has no security groups.
	open := portsecurity.PortUpdateOptsExt{UpdateOptsBuilder: ports.UpdateOpts{SecurityGroups: new([]string)}, PortSecurityEnabled: new(bool)}
	if _, err := ports.Update(ctx, x.tenant.Admin, peer.Port.ID, open).Extract(); err != nil {
		return p, fmt.Errorf("port of the other VTEP: %w", err)
	}
	if err := workload.NS.IP(fmt.Sprintf("link set eth0 mtu %d", vtepMTU)); err != nil {
		return p, err
	}
	if err := peer.NS.IP(
		fmt.Sprintf("link add vx0 address %s type vxlan id %d dstport 4789 local %s remote %s noudpcsum", vtepPeerMAC, vtepVNI, peer.Address(false), x.gateway),
		fmt.Sprintf("link set vx0 mtu %d up", vtepMTU), "addr add "+vtepPeerIP+"/16 dev vx0"); err != nil {
		return p, err
	}
	return netlab.Path{Name: "Heddle, VTEP", Client: workload.NS, Server: peer.NS, Address: netip.MustParseAddr(vtepPeerIP)},
		x.connectVTEP(ctx, network.ID, peer)
}

// connectVTEP makes the router a VTEP of a network, with a peer for the machine behind it and for
// frames to many.
func (x *balancing) connectVTEP(ctx context.Context, network string, peer *lab.Workload) error {
	operator := x.operator()
	device, err := operator.Create(ctx, "gateway_device", map[string]any{"type": "router_vtep", "resource_id": x.router, "tunnel_ips": []string{x.gateway}}, "gw", "gateway_devices")
	if err != nil {
		return err
	}
	for _, mac := range []string{vtepPeerMAC, "ff:ff:ff:ff:ff:ff"} {
		_, err := operator.Create(ctx, "remote_mac_entry", map[string]any{"mac_address": mac, "vtep_address": peer.Address(false), "segmentation_id": vtepVNI},
			"gw", "gateway_devices", device, "remote_mac_entries")
		if err != nil {
			return err
		}
	}
	gateway, err := operator.Create(ctx, "l2_gateway", map[string]any{"name": "bench", "devices": []any{map[string]any{"device_id": device}}}, "l2-gateways")
	if err != nil {
		return err
	}
	_, err = operator.Create(ctx, "l2_gateway_connection", map[string]any{"l2_gateway_id": gateway, "network_id": network, "segmentation_id": vtepVNI}, "l2-gateway-connections")
	return err
}

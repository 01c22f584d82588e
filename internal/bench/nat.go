package bench

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"heddle/internal/netlab"
)

// nat compares a cached flow by a router's SNAT with a veth pair, and with a kernel that routes and
// translates by nftables.
func (b *bench) nat(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		ours, err := s.translated(ctx)
		if err != nil {
			return err
		}
		var kernel [2]netlab.Path
		for i, build := range []func(*netlab.Lab) (netlab.Path, error){netlab.DirectPath, netlab.TranslatedPath} {
			l := netlab.New(fmt.Sprintf("%s-n%d", prefix, i))
			defer l.Close() // what is left goes with the next run's start
			if kernel[i], err = build(l); err != nil {
				return err
			}
		}
		f, err := netlab.Compare(ctx, []netlab.Path{kernel[0], kernel[1], ours},
			netlab.CompareOptions{Slices: b.slices, Slice: b.slice(), Progress: func(kind string) { b.logf("%s", kind) }})
		if err != nil {
			return err
		}
		b.add(compareRoundTrips("SNAT, one host: round trip p50 / direct veth", f[2], f[0], atMost(1.10)))
		b.add(compareRoundTrips("SNAT, one host: round trip p50 / routed + nftables NAT", f[2], f[1], nil))
		b.add(compareDatagrams("SNAT, one host: UDP packets/s / routed + nftables NAT", f[2], f[1], nil))
		b.add(compareStream("SNAT, one host: TCP / routed + nftables NAT", f[2], f[1], atLeast(0.95)))
		return nil
	})
}

// translated makes a router with SNAT between the tenant's network and an external one, and returns
// the path from a workload through it to another.
func (s *stand) translated(ctx context.Context) (p netlab.Path, err error) {
	group, err := s.openGroup(ctx)
	if err != nil {
		return p, err
	}
	outside, err := s.externalNetwork(ctx, "192.0.2.0/24")
	if err != nil {
		return p, err
	}
	t := s.tenant
	r, err := routers.Create(ctx, t.API, routers.CreateOpts{Name: "bench", GatewayInfo: &routers.GatewayInfo{NetworkID: outside.ID}}).Extract()
	if err != nil {
		return p, fmt.Errorf("router: %w", err)
	}
	n, err := networks.Get(ctx, t.API, s.network.ID).Extract()
	if err != nil {
		return p, err
	}
	if _, err := routers.AddInterface(ctx, t.API, r.ID, routers.AddInterfaceOpts{SubnetID: n.Subnets[0]}).Extract(); err != nil {
		return p, fmt.Errorf("interface of the router: %w", err)
	}
	client, err := s.workload(ctx, "inside", s.h1, group)
	if err != nil {
		return p, err
	}
	server, err := s.outsider(ctx, "outside", outside.ID, "192.0.2.100", group)
	if err != nil {
		return p, err
	}
	if err := client.NS.IP("route add default via 10.0.0.1"); err != nil {
		return p, err
	}
	if p, err = path("Heddle, SNAT", client, server); err != nil {
		return p, err
	}
	return p, warm(ctx, p)
}

// externalNetwork makes a network to which routers lead, and which the tenant may use as well.
func (s *stand) externalNetwork(ctx context.Context, cidr string) (*networks.Network, error) {
	yes := true
	n, err := networks.Create(ctx, s.tenant.Admin, external.CreateOptsExt{CreateOptsBuilder: networks.CreateOpts{Name: "outside", Shared: &yes}, External: &yes}).Extract()
	if err != nil {
		return nil, fmt.Errorf("external network: %w", err)
	}
	_, err = subnets.Create(ctx, s.tenant.Admin, subnets.CreateOpts{NetworkID: n.ID, CIDR: cidr, IPVersion: gophercloud.IPv4}).Extract()
	if err != nil {
		return nil, fmt.Errorf("external subnet: %w", err)
	}
	return n, nil
}

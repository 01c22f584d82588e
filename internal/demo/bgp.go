package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	outsideAS, tenantAS = 65001, 64512
	// bgpWithin bounds the time from a call of the API to a route at the other end: the container
	// begins, its first connection comes 2 s later, and BIRD tries every second.
	bgpWithin   = 20 * time.Second
	redSubnet   = "10.0.0.0/24"
	bgpPassword = "demo"
)

// showBGP has a router of tenant red speak BGP with BIRD on the machine outside, which learns the
// tenant's prefix and reaches its machine by that.
func (d *demo) showBGP(ctx context.Context, c *cast, w *wayOut) error {
	router, gateway, err := d.leadRedOut(ctx, c, w)
	if err != nil {
		return err
	}
	b, err := d.startBird(gateway)
	if err != nil {
		return fmt.Errorf("BIRD: %w (scripts/setup demo installs it)", err)
	}
	defer b.Stop()
	begun := time.Now()
	if err := d.speakBGP(ctx, router); err != nil {
		return err
	}
	d.checkWithin("BGP: BIRD outside learns tenant red's prefix from its router", bgpWithin, func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*bgpWithin)
		defer cancel()
		err := netlab.Until(ctx, "the prefix at BIRD", func() (bool, error) {
			routes, err := b.Do(ctx, "show route protocol heddle")
			return err == nil && strings.Contains(routes, redSubnet), nil // it may not listen yet
		})
		return time.Since(begun), err
	})
	d.check("ping from outside to b1 at its own address, by that route", answered, func() (string, error) {
		return d.outside.ping(ctx, c.b1.Address(false), "-I", outsideAddress)
	})
	return nil
}

// leadRedOut gives tenant red a router to the external network that translates no addresses, and
// returns its id and its address outside.
func (d *demo) leadRedOut(ctx context.Context, c *cast, w *wayOut) (router string, gateway netip.Addr, err error) {
	admin, err := d.lab.Admin.Network()
	if err != nil {
		return "", gateway, err
	}
	untranslated := false
	made, err := routers.Create(ctx, admin, routers.CreateOpts{Name: "red", ProjectID: c.b1.Port.ProjectID,
		GatewayInfo: &routers.GatewayInfo{NetworkID: w.network, EnableSNAT: &untranslated}}).Extract()
	if err != nil {
		return "", gateway, fmt.Errorf("router: %w", err)
	}
	d.undo.Add("router", func(ctx context.Context) error { return routers.Delete(ctx, admin, made.ID).ExtractErr() })
	inside := c.b1.Port.FixedIPs[0].SubnetID
	if _, err := routers.AddInterface(ctx, admin, made.ID, routers.AddInterfaceOpts{SubnetID: inside}).Extract(); err != nil {
		return "", gateway, fmt.Errorf("router interface: %w", err)
	}
	d.undo.Add("router interface", func(ctx context.Context) error {
		_, err := routers.RemoveInterface(ctx, admin, made.ID, routers.RemoveInterfaceOpts{SubnetID: inside}).Extract()
		return err
	})
	gateway, err = netip.ParseAddr(made.GatewayInfo.ExternalFixedIPs[0].IPAddress)
	return made.ID, gateway, err
}

// speakBGP has a router speak BGP with the machine outside.
func (d *demo) speakBGP(ctx context.Context, router string) error {
	admin, err := d.lab.Admin.Network()
	if err != nil {
		return err
	}
	operator := &lab.Tenant{API: admin, Admin: admin, Undo: &d.undo}
	return operator.SpeakBGP(ctx, router, lab.BGPSession{AS: tenantAS, Peer: outsideAddress, PeerAS: outsideAS, Password: bgpPassword})
}

// startBird starts BIRD on the machine outside, which waits for a router at an address and puts its
// routes into the machine's kernel.
func (d *demo) startBird(router netip.Addr) (*lab.Bird, error) {
	return lab.StartBird(d.outside.NS, d.lab.Dir, fmt.Sprintf(`log stderr all;
router id %[1]s;
protocol device {}
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol bgp heddle {
  local %[1]s as %[3]d; neighbor %[2]s as %[4]d; password "%[5]s";
  connect delay time 1; connect retry time 1; error wait time 1, 2;
  ipv4 { import all; export none; };
}
`, outsideAddress, router, outsideAS, tenantAS, bgpPassword))
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"

	"heddle/internal/netlab"
)

const (
	outsideAS, tenantAS = 65001, 64512
	// bgpWithin bounds the time from a call of the API to a route at the other end: the container
	// begins, its first connection comes 2 s later, and BIRD tries every second.
	bgpWithin = 20 * time.Second
	redSubnet = "10.0.0.0/24"
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
	defer b.stop()
	begun := time.Now()
	if err := d.speakBGP(ctx, router); err != nil {
		return err
	}
	d.checkWithin("BGP: BIRD outside learns tenant red's prefix from its router", bgpWithin, func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*bgpWithin)
		defer cancel()
		err := netlab.Until(ctx, "the prefix at BIRD", func() (bool, error) {
			return strings.Contains(b.ask(ctx, "show route protocol heddle"), redSubnet), nil
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
	create := func(kind string, fields map[string]any) (id string, err error) {
		var made map[string]struct{ ID string }
		url := admin.ServiceURL(strings.ReplaceAll(kind, "_", "-") + "s")
		if _, err := admin.Post(ctx, url, map[string]any{kind: fields}, &made, nil); err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		id = made[kind].ID
		d.undo.Add(kind, func(ctx context.Context) error {
			_, err := admin.Delete(ctx, url+"/"+id, nil)
			return err
		})
		return id, nil
	}
	peer, err := create("bgp_peer", map[string]any{"name": "outside", "peer_ip": outsideAddress, "remote_as": outsideAS, "auth_type": "md5", "password": "demo"})
	if err != nil {
		return err
	}
	speaker, err := create("bgp_speaker", map[string]any{"name": "red", "local_as": tenantAS, "ip_version": 4, "logical_router": router})
	if err != nil {
		return err
	}
	_, err = admin.Put(ctx, admin.ServiceURL("bgp-speakers", speaker, "add_bgp_peer"), map[string]any{"bgp_peer_id": peer}, nil,
		&gophercloud.RequestOpts{OkCodes: []int{200}})
	return err
}

// bird is a running BIRD on the machine outside, with its routes in the machine's kernel.
type bird struct {
	d       *demo
	cmd     *exec.Cmd
	control string
}

// startBird starts BIRD, which waits for a router at an address.
func (d *demo) startBird(router netip.Addr) (*bird, error) {
	b := &bird{d: d, control: filepath.Join(d.lab.Dir, "bird.ctl")}
	config := filepath.Join(d.lab.Dir, "bird.conf")
	text := fmt.Sprintf(`log stderr all;
router id %[1]s;
protocol device {}
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol bgp heddle {
  local %[1]s as %[3]d; neighbor %[2]s as %[4]d; password "demo";
  connect delay time 1; connect retry time 1; error wait time 1, 2;
  ipv4 { import all; export none; };
}
`, outsideAddress, router, outsideAS, tenantAS)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.lab.Dir, "bird.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b.cmd = exec.Command("bird", "-f", "-c", config, "-s", b.control)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	return b, d.outside.NS.Start(b.cmd)
}

// ask puts a question to BIRD. While it does not listen yet the answer is empty.
func (b *bird) ask(ctx context.Context, question string) string {
	out, err := b.d.outside.NS.Output(ctx, "birdc", append([]string{"-s", b.control}, strings.Fields(question)...)...)
	if err != nil {
		return ""
	}
	return out
}

// stop ends BIRD.
func (b *bird) stop() {
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintf(b.d.out, "cannot end BIRD: %v\n", err)
	}
	_ = b.cmd.Wait() // it was killed
}

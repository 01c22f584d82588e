package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// The world outside is a namespace with a switch, lan, to which every host has an interface,
// uplink. A machine on it has the address of the external subnet's gateway.
const (
	uplink         = "uplink"
	physicalName   = "physnet1"
	outsideAddress = "203.0.113.1"
	outsideSubnet  = "203.0.113.0/24"
	// goneAfter is the time after which a host without a word counts as gone, with that for TCP to
	// try again.
	goneAfter = 60 * time.Second
)

// makeOutside makes the world outside, before there are hosts.
func (d *demo) makeOutside() error {
	ns, err := d.lab.Spaces.Namespace("world")
	if err != nil {
		return err
	}
	d.outside = &workload{&lab.Workload{Name: "outside", NS: ns, Port: &ports.Port{FixedIPs: []ports.IP{{IPAddress: outsideAddress}}}}}
	return ns.IP("link add lan type bridge", "addr add "+outsideAddress+"/24 dev lan", "link set lan up")
}

// startHosts adds hosts that carry the physical network, and starts their agents.
func (d *demo) startHosts(ctx context.Context, n int) error {
	for i := range n {
		h, err := d.lab.AddHost()
		if err == nil {
			err = d.lab.Spaces.Veth(d.outside.NS, fmt.Sprintf("h%d", i+1), h.NS, uplink)
		}
		if err == nil {
			err = d.outside.NS.IP(fmt.Sprintf("link set h%d master lan", i+1))
		}
		if err == nil {
			h.Roles = []string{"--overlay", "--tunnel-ip", h.IP, "--physical", physicalName + "=" + uplink}
			err = d.lab.Join(ctx, h)
		}
		if err != nil {
			return fmt.Errorf("host h%d: %w", i+1, err)
		}
	}
	return nil
}

// wayOut is a tenant's way to the world outside.
type wayOut struct {
	network string // id of the external one
	router  *routers.Router
	public  *workload // a1 at its floating IP
}

// showOutside leads tenant blue out: source NAT, a floating IP, a port forwarding, a firewall, and
// a gateway's host that fails.
func (d *demo) showOutside(ctx context.Context, c *cast) error {
	w := &wayOut{}
	if err := d.leadOut(ctx, c, w); err != nil {
		return err
	}
	stop, err := d.serveCallers(forbiddenPort)
	if err != nil {
		return err
	}
	defer stop.Close()
	gateway := w.router.GatewayInfo.ExternalFixedIPs[0].IPAddress
	seenAs := func(from *workload, address string) {
		d.check(fmt.Sprintf("TCP %s to a machine outside, which sees the address", from.Name), address, func() (string, error) {
			return from.askUntil(ctx, outsideAddress, forbiddenPort, address)
		})
	}
	seenAs(c.a1, gateway)
	seenAs(c.a3, gateway)
	if err := d.giveFloatingIP(ctx, c, w); err != nil {
		return err
	}
	public := w.public.Address(false)
	d.check("TCP from outside to a1 at its floating IP", "a1 answered", func() (string, error) {
		return d.outside.askUntil(ctx, public, allowedPort, "a1 answered")
	})
	seenAs(c.a1, public)
	d.ask(ctx, "TCP %s to %s:%d by the floating IP, from the same network", c.a3, w.public, allowedPort, "a1 answered")
	if err := d.showForwarding(ctx, c, w); err != nil {
		return err
	}
	if err := d.showFirewall(ctx, c, w); err != nil {
		return err
	}
	if err := d.showGatewayLost(ctx, c, w); err != nil {
		return err
	}
	if err := d.showBGP(ctx, c, w); err != nil {
		return fmt.Errorf("BGP: %w", err)
	}
	return nil
}

// externalNetwork is flat on the physical network. The client library has only the list of segments
// for that, which networks do not have yet.
type externalNetwork struct{}

// ToNetworkCreateMap returns the call's body.
func (externalNetwork) ToNetworkCreateMap() (map[string]any, error) {
	return map[string]any{"network": map[string]any{"name": "outside", "router:external": true,
		"provider:network_type": "flat", "provider:physical_network": physicalName}}, nil
}

// leadOut makes an external network on the physical one, and a router to it.
func (d *demo) leadOut(ctx context.Context, c *cast, w *wayOut) error {
	admin, err := d.lab.Admin.Network()
	if err != nil {
		return err
	}
	n, err := networks.Create(ctx, admin, externalNetwork{}).Extract()
	if err != nil {
		return fmt.Errorf("external network: %w", err)
	}
	w.network = n.ID
	d.undo.Add("external network", func(ctx context.Context) error { return networks.Delete(ctx, admin, n.ID).ExtractErr() })
	gateway := outsideAddress
	if _, err := subnets.Create(ctx, admin, subnets.CreateOpts{NetworkID: n.ID, CIDR: outsideSubnet, IPVersion: gophercloud.IPv4, GatewayIP: &gateway,
		EnableDHCP: gophercloud.Disabled}).Extract(); err != nil {
		return fmt.Errorf("external subnet: %w", err)
	}
	if w.router, err = routers.Create(ctx, c.blue.API, routers.CreateOpts{Name: "blue", GatewayInfo: &routers.GatewayInfo{NetworkID: n.ID}}).Extract(); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	id := w.router.ID
	d.undo.Add("router", func(ctx context.Context) error { return routers.Delete(ctx, c.blue.API, id).ExtractErr() })
	inside := c.subnet()
	if _, err := routers.AddInterface(ctx, c.blue.API, id, routers.AddInterfaceOpts{SubnetID: inside}).Extract(); err != nil {
		return fmt.Errorf("router interface: %w", err)
	}
	d.undo.Add("router interface", func(ctx context.Context) error {
		_, err := routers.RemoveInterface(ctx, c.blue.API, id, routers.RemoveInterfaceOpts{SubnetID: inside}).Extract()
		return err
	})
	return nil
}

// serveCallers answers connections to the machine outside with the caller's address.
func (d *demo) serveCallers(port int) (io.Closer, error) {
	return d.outside.answer(port, func(c net.Conn) string { return c.RemoteAddr().(*net.TCPAddr).IP.String() })
}

func (d *demo) giveFloatingIP(ctx context.Context, c *cast, w *wayOut) error {
	f, err := floatingips.Create(ctx, c.blue.API, floatingips.CreateOpts{FloatingNetworkID: w.network, PortID: c.a1.Port.ID}).Extract()
	if err != nil {
		return fmt.Errorf("floating IP: %w", err)
	}
	d.undo.Add("floating IP", func(ctx context.Context) error { return floatingips.Delete(ctx, c.blue.API, f.ID).ExtractErr() })
	w.public = &workload{&lab.Workload{Name: "a1", NS: c.a1.NS, Port: &ports.Port{FixedIPs: []ports.IP{{IPAddress: f.FloatingIP}}}}}
	return nil
}

// showForwarding leads a port of another floating IP to a3.
func (d *demo) showForwarding(ctx context.Context, c *cast, w *wayOut) error {
	const port = 80
	f, err := floatingips.Create(ctx, c.blue.API, floatingips.CreateOpts{FloatingNetworkID: w.network}).Extract()
	if err != nil {
		return fmt.Errorf("floating IP: %w", err)
	}
	d.undo.Add("floating IP", func(ctx context.Context) error { return floatingips.Delete(ctx, c.blue.API, f.ID).ExtractErr() })
	forwarding := map[string]any{"protocol": "tcp", "external_port": port,
		"internal_port_id": c.a3.Port.ID, "internal_ip_address": c.a3.Address(false), "internal_port": allowedPort}
	if _, err := c.post(ctx, d, "port_forwarding", []string{"floatingips", f.ID, "port_forwardings"}, forwarding); err != nil {
		return err
	}
	d.check(fmt.Sprintf("TCP from outside to another floating IP, whose port %d is a3's", port), "a3 answered", func() (string, error) {
		return d.outside.askUntil(ctx, f.FloatingIP, port, "a3 answered")
	})
	return nil
}

// showFirewall changes a rule of the router's firewall while traffic flows.
func (d *demo) showFirewall(ctx context.Context, c *cast, w *wayOut) error {
	const port = allowedPort + 2
	rule, err := c.blue.Allow(ctx, c.web, rules.CreateOpts{Protocol: rules.ProtocolUDP, PortRangeMin: port, PortRangeMax: port})
	if err != nil {
		return err
	}
	defer func() { _ = c.blue.Forbid(context.WithoutCancel(ctx), rule) }() // goes with its group otherwise
	deny, log, err := d.fence(ctx, c, w, port)
	if err != nil {
		return err
	}
	udp, err := lab.StartUDPStream(ctx, d.outside.Workload, w.public.Workload, port)
	if err != nil {
		return err
	}
	defer udp.Close()
	enable := func(on bool) func() error {
		return func() error {
			return c.put(ctx, "firewall_rules", deny, map[string]any{"firewall_rule": map[string]any{"enabled": on}})
		}
	}
	d.checkWithin(fmt.Sprintf("firewall that denies nothing, UDP from outside to a1:%d: it passes", port), inForce, func() (time.Duration, error) {
		return udp.FlowsAfter(ctx, time.Now())
	})
	d.checkChange(ctx, "rule that denies it enabled while it flows: it stops", inForce, enable(true), udp.StopsAfter)
	d.check("TCP from outside to a1 meanwhile", "a1 answered", func() (string, error) { return d.outside.ask(ctx, w.public.Address(false), allowedPort) })
	d.check("firewall log: what is refused is recorded on the host where it comes in", fmt.Sprintf("DROP, to port %d", port), func() (string, error) { return d.recorded(ctx, log) })
	d.checkChange(ctx, "rule disabled again: it flows", inForce, enable(false), udp.FlowsAfter)
	return nil
}

// recorded waits for a record of a firewall's logging resource in a file of a host, and returns
// what the first one says.
func (d *demo) recorded(ctx context.Context, resource string) (says string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = netlab.Until(ctx, "a record", func() (bool, error) {
		files, err := filepath.Glob(filepath.Join(d.lab.Dir, "*", lab.LogDir, "firewall", resource+".log"))
		if err != nil || len(files) == 0 {
			return false, err
		}
		text, err := os.ReadFile(files[0])
		line, _, whole := strings.Cut(string(text), "\n")
		if err != nil || !whole {
			return false, err
		}
		var record struct {
			Event string `json:"event"`
			Port  int    `json:"dport"`
		}
		err = json.Unmarshal([]byte(line), &record)
		says = fmt.Sprintf("%s, to port %d", record.Event, record.Port)
		return true, err
	})
	return says, err
}

// fence gives the router a firewall that allows all, with a rule against a UDP port that is
// disabled, and a logging resource for what it drops.
func (d *demo) fence(ctx context.Context, c *cast, w *wayOut, port int) (deny, log string, err error) {
	if deny, err = c.make(ctx, d, "firewall_rule", map[string]any{"name": "deny", "protocol": "udp", "destination_port": fmt.Sprint(port), "action": "deny", "enabled": false}); err != nil {
		return "", "", err
	}
	allow, err := c.make(ctx, d, "firewall_rule", map[string]any{"name": "allow", "action": "allow"})
	if err != nil {
		return "", "", err
	}
	policy, err := c.make(ctx, d, "firewall_policy", map[string]any{"name": "blue", "firewall_rules": []string{deny, allow}})
	if err != nil {
		return "", "", err
	}
	firewall, err := c.make(ctx, d, "firewall", map[string]any{"name": "blue", "firewall_policy_id": policy, "router_ids": []string{w.router.ID}})
	if err != nil {
		return "", "", err
	}
	resources := []string{"logging", "logging_resources"}
	if log, err = c.post(ctx, d, "logging_resource", resources, map[string]any{"name": "blue", "enabled": true}); err != nil {
		return "", "", err
	}
	_, err = c.post(ctx, d, "firewall_log", append(resources, log, "firewall_logs"), map[string]any{"firewall_id": firewall, "fw_event": "DROP"})
	return deny, log, err
}

// make creates an object of FWaaS as tenant blue, for which the client library has no calls.
func (c *cast) make(ctx context.Context, d *demo, kind string, fields map[string]any) (id string, err error) {
	collection := strings.TrimSuffix(kind, "y") + "s"
	if strings.HasSuffix(kind, "y") {
		collection = strings.TrimSuffix(kind, "y") + "ies"
	}
	return c.post(ctx, d, kind, []string{"fw", collection}, fields)
}

// post creates an object of a collection, which goes with the demo.
func (c *cast) post(ctx context.Context, d *demo, kind string, collection []string, fields map[string]any) (id string, err error) {
	id, remove, err := c.create(ctx, kind, collection, fields)
	if err == nil {
		d.undo.Add(kind, remove)
	}
	return id, err
}

// create creates an object of a collection, and returns its id and what deletes it.
func (c *cast) create(ctx context.Context, kind string, collection []string, fields map[string]any) (id string, remove func(context.Context) error, err error) {
	var made map[string]struct {
		ID string `json:"id"`
	}
	url := c.blue.API.ServiceURL(collection...)
	if _, err := c.blue.API.Post(ctx, url, map[string]any{kind: fields}, &made, nil); err != nil {
		return "", nil, fmt.Errorf("%s: %w", kind, err)
	}
	id = made[kind].ID
	return id, func(ctx context.Context) error {
		_, err := c.blue.API.Delete(ctx, url+"/"+id, nil)
		return err
	}, nil
}

func (c *cast) put(ctx context.Context, collection, id string, body any) error {
	_, err := c.blue.API.Put(ctx, c.blue.API.ServiceURL("fw", collection, id), body, nil, &gophercloud.RequestOpts{OkCodes: []int{200}})
	return err
}

// showGatewayLost takes the host away that stands for the router's gateway outside, while a machine
// on another host sends to the world outside.
func (d *demo) showGatewayLost(ctx context.Context, c *cast, w *wayOut) error {
	home, err := d.homeOf(ctx, w)
	if err != nil {
		return err
	}
	from := c.a1
	if home == c.a1.Host {
		from = c.a3
	}
	s, err := startTCPStream(ctx, from, d.outside, allowedPort)
	if err != nil {
		return fmt.Errorf("stream %s to outside: %w", from.Name, err)
	}
	var lost error
	d.check(fmt.Sprintf("%s, host of the gateway, lost, TCP %s to outside running", home.Name, from.Name), "goes on, every number came", func() (string, error) {
		home.Agent.Kill()
		if lost = home.NS.IP("link set eth0 down", "link set "+uplink+" down"); lost != nil {
			return "", lost
		}
		before := s.received.Load()
		waitCtx, cancel := context.WithTimeout(ctx, goneAfter)
		defer cancel()
		// More than what was on its way when the host was lost, and what the sender's buffer held.
		err := netlab.Until(waitCtx, "the stream to go on", func() (bool, error) {
			now, err := d.homeOf(ctx, w)
			return err == nil && now != home && s.received.Load() > before+2000, nil
		})
		if err := errors.Join(s.close(), err); err != nil {
			return "", err
		}
		return "goes on, every number came", nil
	})
	return errors.Join(lost, home.NS.IP("link set eth0 up", "link set "+uplink+" up"), d.lab.StartAgent(ctx, home))
}

// homeOf returns the host behind whose uplink the switch outside sees the router's gateway.
func (d *demo) homeOf(ctx context.Context, w *wayOut) (*lab.Host, error) {
	admin, err := d.lab.Admin.Network()
	if err != nil {
		return nil, err
	}
	pages, err := ports.List(admin, ports.ListOpts{DeviceID: w.router.ID, DeviceOwner: "network:router_gateway"}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	found, err := ports.ExtractPorts(pages)
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("the router has %d gateway ports: %w", len(found), err)
	}
	seen, err := d.outside.NS.Output(ctx, "bridge", "fdb", "show", "br", "lan")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(seen) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != found[0].MACAddress || fields[1] != "dev" {
			continue
		}
		i := slices.IndexFunc(d.lab.Hosts, func(h *lab.Host) bool { return strings.HasSuffix(h.Name, "-"+fields[2]) })
		if i >= 0 {
			return d.lab.Hosts[i], nil
		}
	}
	return nil, fmt.Errorf("the switch outside has not seen the gateway's address %s", found[0].MACAddress)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// servicesCloud is an edge with a third host, and with all services:
//
//	h1, h2   a member of both balancers each, and an uplink to a machine with BIRD each
//	h3       the client, the tap's monitor, a logged machine, and most of the containers
//	sw0      a hardware VTEP with a machine behind it
type servicesCloud struct {
	*edge
	args      [][]string // of each host's agent
	sw        *netlab.OVSHost
	behind    *netlab.Namespace // the machine behind the switch
	client    *netlab.Namespace
	monitor   *netlab.Namespace
	members   []*memberMachine
	logged    string // address of the machine whose group is logged
	logs      string // directory of h3's logs
	balancers []testBalancer
	owned     []string // paths of the API to delete, so that no service is left
	objects   *replica.Replica
}

// testBalancer is a balancer with a member on each of the first two hosts.
type testBalancer struct {
	id, vip, protocol string
	members           []string // their ids
}

// visited returns the addresses that serve pages.
func (c *servicesCloud) visited() []string {
	all := []string{c.logged}
	for _, b := range c.balancers {
		if b.protocol == "TCP" {
			all = append(all, b.vip)
		}
	}
	return all
}

const (
	memberPort  = 8000
	longPort    = 7000 // of members, for connections past the balancers
	blueCIDR    = "10.0.0.0/24"
	greenMAC    = "02:00:00:00:00:63" // of the port that the switch has to know
	memberFalls = 2                   // checks that fail in a row before a member is down
)

func newServicesCloud(t *testing.T) *servicesCloud {
	t.Helper()
	if err := netlab.FindVTEP(); err != nil {
		t.Skipf("this test emulates a hardware VTEP: %v", err)
	}
	c := &servicesCloud{edge: newEdge(t)}
	h := c.addHost(t, "h3", "192.0.2.13")
	c.hosts = append(c.hosts, h)
	c.logs = t.TempDir()
	c.args = [][]string{c.hosts[0].agent(), c.hosts[1].agent(), h.agent("--container-weight", "8", "--log-dir", c.logs)}
	c.agents = append(c.agents, start(t, h.ns, append(c.args[2], "--join", c.token(t))...))
	c.objects = replica.New(openData(t, c.data), replica.Options{Watch: schema.Root}, schema.All()...)
	c.addSwitch()
	c.addBlue()
	return c
}

// follow has the test's copy of the store follow it, over the ends of servers.
func (c *servicesCloud) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.objects.Run(ctx) })
	c.t.Cleanup(func() { cancel(); running.Wait() })
}

// now returns the newest state of the store that the copy has.
func (c *servicesCloud) now() records.Reader { return records.Over(c.objects.Snapshot()) }

// post creates an object at a path of the API, and returns its id.
func (c *servicesCloud) post(path, kind string, attributes map[string]any) string {
	c.t.Helper()
	var answer map[string]object
	if err := c.api.call(c.t.Context(), http.MethodPost, path, map[string]any{kind: attributes}, &answer); err != nil {
		c.t.Fatal(err)
	}
	return answer[kind].ID
}

// own is post for what the test deletes in the end, in reverse order.
func (c *servicesCloud) own(path, kind string, attributes map[string]any) string {
	c.t.Helper()
	id := c.post(path, kind, attributes)
	c.owned = append(c.owned, path+"/"+id)
	return id
}

func (c *servicesCloud) put(path string, body map[string]any) {
	c.t.Helper()
	if err := c.api.call(c.t.Context(), http.MethodPut, path, body, nil); err != nil {
		c.t.Fatal(err)
	}
}

// addBlue makes the tenant's network with its machines, balancers, tap and router.
func (c *servicesCloud) addBlue() {
	t := c.t
	network := c.api.mustCreate(t, "network", map[string]any{"name": "blue"})
	subnet := c.api.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": blueCIDR})
	machine := func(name string, host, number int) (*netlab.Namespace, string) {
		port, mac := c.api.bindPort(t, network.ID, c.hosts[host], number)
		c.api.allowAll(t, port)
		ns := c.lab.MustNamespace(t, name)
		plug(t, ns, "eth0", mac, c.hosts[host], port)
		ns.MustIP(t, "link set eth0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", number), "route add default via 10.0.0.1")
		return ns, port.ID
	}
	for i := range 2 {
		ns, _ := machine(fmt.Sprint("m", i+1), i, 11+i)
		c.members = append(c.members, newMemberMachine(t, ns))
	}
	var tapped, monitor string
	c.client, tapped = machine("client", 2, 30)
	c.monitor, monitor = machine("monitor", 2, 31)
	service := c.own("/v2.0/taas/tap_services", "tap_service", map[string]any{"name": "monitor", "port_id": monitor})
	c.own("/v2.0/taas/tap_flows", "tap_flow", map[string]any{"name": "client", "tap_service_id": service, "source_port": tapped, "direction": "BOTH"})
	c.addLogged(network, subnet)
	c.addBalancer("TCP", memberPort, "HTTP", subnet.ID)
	c.addBalancer("TCP", memberPort, "PING", subnet.ID)
	c.addBalancer("UDP", longPort, "UDP-CONNECT", subnet.ID)
	router := c.api.mustCreate(t, "router", map[string]any{"name": "edge"}).ID
	c.put("/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": subnet.ID})
	c.addUplinks(router)
	c.addGreen(router)
}

// addLogged makes a machine on the third host, with a group of its own that logs what it decides.
func (c *servicesCloud) addLogged(network, subnet object) {
	c.t.Helper()
	group := c.api.mustCreate(c.t, "security_group", map[string]any{"name": "logged"})
	c.api.mustCreate(c.t, "security_group_rule", map[string]any{"security_group_id": group.ID, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp"})
	c.own("/v2.0/log/logs", "log", map[string]any{"name": "logged", "resource_type": "security_group", "resource_id": group.ID, "event": "ALL"})
	port, mac := c.api.bindPort(c.t, network.ID, c.hosts[2], 32)
	c.put("/v2.0/ports/"+port.ID, map[string]any{"port": map[string]any{"security_groups": []string{group.ID}}})
	ns := c.lab.MustNamespace(c.t, "logged")
	plug(c.t, ns, "eth0", mac, c.hosts[2], port)
	ns.MustIP(c.t, "link set eth0 up", "addr add 10.0.0.32/24 dev eth0")
	newMemberMachine(c.t, ns)
	c.logged = fmt.Sprintf("10.0.0.32:%d", memberPort)
}

// logLine is a line of a group's log, as far as this test looks.
type logLine struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	SrcPort int       `json:"sport"`
}

// logLines reads the log of the group. Each line has to be whole.
func (c *servicesCloud) logLines() (lines []logLine, err error) {
	names, err := filepath.Glob(filepath.Join(c.logs, "security_group", "*.log"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for text := range strings.Lines(string(raw)) {
			var l logLine
			if err := json.Unmarshal([]byte(text), &l); err != nil || !strings.HasSuffix(text, "\n") || l.Time.IsZero() || l.Event != "ACCEPT" && l.Event != "DROP" {
				return nil, fmt.Errorf("line %q of the group's log: %v", text, err)
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// addBalancer makes a balancer of a protocol for a port of both members, with checks of a kind as
// often as Octavia allows.
func (c *servicesCloud) addBalancer(protocol string, port int, check, subnet string) {
	c.t.Helper()
	members := make([]map[string]any, len(c.members))
	for i := range members {
		members[i] = map[string]any{"address": fmt.Sprintf("10.0.0.%d", 11+i), "protocol_port": port}
	}
	delay := 1
	if check == "UDP-CONNECT" {
		delay = 4 // more than the timeout
	}
	body := map[string]any{"loadbalancer": map[string]any{"name": strings.ToLower(check), "vip_subnet_id": subnet,
		"listeners": []map[string]any{{"protocol": protocol, "protocol_port": 80, "default_pool": map[string]any{
			"protocol": protocol, "lb_algorithm": "ROUND_ROBIN", "members": members,
			"healthmonitor": map[string]any{"type": check, "delay": delay, "timeout": 3, "max_retries": 1, "max_retries_down": memberFalls},
		}}}}}
	var answer struct {
		LoadBalancer struct {
			ID    string
			VIP   string `json:"vip_address"`
			Pools []object
		} `json:"loadbalancer"`
	}
	octavia := c.octavia()
	if err := octavia.call(c.t.Context(), http.MethodPost, "/v2.0/lbaas/loadbalancers", body, &answer); err != nil {
		c.t.Fatal(err)
	}
	b := testBalancer{id: answer.LoadBalancer.ID, vip: answer.LoadBalancer.VIP, protocol: protocol}
	var made struct {
		Members []struct {
			ID, Address string
		}
	}
	if err := octavia.call(c.t.Context(), http.MethodGet, "/v2.0/lbaas/pools/"+answer.LoadBalancer.Pools[0].ID+"/members", nil, &made); err != nil {
		c.t.Fatal(err)
	}
	for i := range c.members {
		for _, m := range made.Members {
			if m.Address == fmt.Sprintf("10.0.0.%d", 11+i) {
				b.members = append(b.members, m.ID)
			}
		}
	}
	c.balancers = append(c.balancers, b)
}

// octavia is a client of the load balancer API.
func (c *servicesCloud) octavia() *client {
	return &client{http: c.api.http, token: c.api.token, base: strings.TrimSuffix(c.api.base, "9696") + loadBalancerPort}
}

// addUplinks gives the router an uplink to each machine with BIRD, and has it speak BGP with them.
func (c *servicesCloud) addUplinks(router string) {
	t := c.t
	speaker := ""
	for i, b := range c.birds {
		up := c.api.mustCreate(t, "network", map[string]any{"name": fmt.Sprint("up", i+1), "provider:network_type": "uplink"})
		c.api.mustCreate(t, "subnet", map[string]any{"network_id": up.ID, "ip_version": 4, "cidr": fmt.Sprintf("203.0.113.%d/30", 4*i),
			"gateway_ip": nil, "enable_dhcp": false})
		port := c.api.mustCreate(t, "port", map[string]any{"network_id": up.ID, "binding:host_id": c.hosts[i].name,
			"binding:profile": map[string]any{"interface_name": "uplink1"}, "fixed_ips": []map[string]any{{"ip_address": b.router}}})
		c.put("/v2.0/routers/"+router+"/add_router_interface", map[string]any{"port_id": port.ID})
		peer := c.own("/v2.0/bgp-peers", "bgp_peer", map[string]any{"name": b.address, "peer_ip": b.address, "remote_as": 65001 + i,
			"auth_type": "md5", "password": "s3cret"})
		if speaker == "" {
			speaker = c.own("/v2.0/bgp-speakers", "bgp_speaker", map[string]any{"name": "edge", "local_as": 64512, "ip_version": 4, "logical_router": router})
		}
		c.put("/v2.0/bgp-speakers/"+speaker+"/add_bgp_peer", map[string]any{"bgp_peer_id": peer})
	}
}

// addSwitch makes the hardware VTEP, whose database the server reaches.
func (c *servicesCloud) addSwitch() {
	t := c.t
	dir, err := os.MkdirTemp("", "ovs") // sockets' paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fabric, err := netlab.NewOVSLab(c.lab, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(fabric.Logs())
		}
		if err := fabric.StopHosts(); err != nil {
			t.Error(err)
		}
	})
	c.lab.MustVeth(t, c.ctl, "fabric", fabric.Fabric, "ctl")
	fabric.Fabric.MustIP(t, "link set ctl master br0")
	c.ctl.MustIP(t, "addr add 198.18.0.253/24 dev fabric")
	// A switch in user space drops frames whose checksums are left to the interface.
	if _, err := c.ctl.Output(t.Context(), "ethtool", "-K", "fabric", "tx", "off", "tso", "off", "gso", "off"); err != nil {
		t.Fatal(err)
	}
	if c.sw, err = fabric.Host("sw"); err == nil {
		err = c.sw.BecomeVTEP()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.sw.KillEmulator(); err != nil {
			t.Error(err)
		}
	})
}

// addGreen connects a network to the switch, and there to the port of a machine.
func (c *servicesCloud) addGreen(router string) {
	t := c.t
	green := c.api.mustCreate(t, "network", map[string]any{"name": "green"})
	c.api.mustCreate(t, "subnet", map[string]any{"network_id": green.ID, "ip_version": 4, "cidr": "10.77.0.0/24"})
	c.api.mustCreate(t, "port", map[string]any{"network_id": green.ID, "mac_address": greenMAC, "fixed_ips": []map[string]any{{"ip_address": "10.77.0.99"}}})
	machine, port, err := c.sw.VTEPPort("behind", "10.77.0.1/24")
	if err != nil {
		t.Fatal(err)
	}
	c.behind = machine
	device := c.own("/v2.0/gw/gateway_devices", "gateway_device", map[string]any{"name": "sw0", "type": "router_vtep", "resource_id": router,
		"tunnel_ips": []string{"198.18.0.254"}, "management_ip": c.sw.Address.String(), "management_port": netlab.OVSDBPort})
	gateway := c.own("/v2.0/l2-gateways", "l2_gateway", map[string]any{"name": "green", "devices": []map[string]any{{"device_id": device}}})
	c.own("/v2.0/l2-gateway-connections", "l2_gateway_connection", map[string]any{"l2_gateway_id": gateway, "network_id": green.ID, "segmentation_id": 77})
	within(t, "the network at the switch", func() bool {
		_, err := c.sw.VTEPctl("bind-ls", netlab.VTEPSwitch, port, "0", "heddle-"+green.ID)
		return err == nil
	})
}

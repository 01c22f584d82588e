package bench

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"heddle/internal/netlab"
	"heddle/internal/offline"
)

// crowding is the size of the network that a first packet to a VIP is simulated in.
type crowding struct{ vips, members int }

// The sizes that are compared, by their place in simulations' results.
const (
	small = iota
	manyVIPs
	manyMembers
)

// simulations measures the simulation of a client's first packet to a VIP (services §14, row 5), in
// networks of three sizes in turn.
func (b *bench) simulations(ctx context.Context) error {
	many := b.pick(1000, 50)
	for _, v := range []struct {
		name     string
		scenario func(crowding) string
		most     float64 // µs
	}{
		{"v1", routerScenario, 4},
		{"v2", vipScenario, 6},
	} {
		var frames []*offline.FirstFrame
		for _, c := range []crowding{small: {1, 2}, manyVIPs: {many, 2}, manyMembers: {1, many}} {
			b.logf("simulation, %s: %d VIPs, %d members", v.name, c.vips, c.members)
			f, err := offline.OpenFirstFrame(ctx, strings.NewReader(v.scenario(c)))
			if err != nil {
				return fmt.Errorf("scenario of %s: %w", v.name, err)
			}
			frames = append(frames, f)
		}
		took := b.simulated(frames)
		b.add(measure{Name: "VIP, " + v.name + ": simulation of a first packet", Got: netlab.Median(took[small]), Unit: "µs", Goal: atMost(v.most)})
		for _, c := range []struct {
			size int
			than string
		}{{manyVIPs, fmt.Sprintf("%d VIPs / 1", many)}, {manyMembers, fmt.Sprintf("%d members / 2", many)}} {
			b.add(ratio("VIP, "+v.name+": simulation of a first packet, "+c.than, took[c.size], took[small], atMost(1.2),
				fmt.Sprintf("%.1f / %.1f µs", netlab.Median(took[c.size]), netlab.Median(took[small]))))
		}
	}
	return nil
}

// simulated simulates the frames in turn, and returns the microseconds of processor time that each
// slice took for one simulation, by frame.
func (b *bench) simulated(frames []*offline.FirstFrame) [][]float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := b.pick(2000, 100)
	took := make([][]float64, len(frames))
	for range b.slices {
		for i, f := range frames {
			begun := threadTime()
			for range n {
				f.Simulate()
			}
			took[i] = append(took[i], micros(threadTime()-begun)/float64(n))
		}
	}
	return took
}

// clients is a network with a client, c, and one with a server, m, on both sides of a router.
const clients = `topology:
  networks: [{name: clients}, {name: servers}, {name: vips}]
  subnets:
  - {name: sc, network: clients, cidr: 10.0.1.0/24, gateway_ip: 10.0.1.1}
  - {name: ss, network: servers, cidr: 10.0.2.0/24, gateway_ip: 10.0.2.1}
  - {name: sv, network: vips, cidr: 10.1.0.0/16}
  ports:
  - {name: c, network: clients, fixed_ips: [{ip: 10.0.1.10, subnet: sc}], port_security: false}
  - {name: m, network: servers, fixed_ips: [{ip: 10.0.2.10, subnet: ss}], port_security: false}
  routers: [{name: r}]
  interfaces: [{router: r, subnet: sc}, {router: r, subnet: ss}]
`

// sent is the step in which c sends to the first VIP.
const sent = `steps:
- send: {port: c, frame: {type: ipv4, eth_dst: "@r/sc", ip_src: 10.0.1.10, ip_dst: %s, proto: tcp, sport: 4000, dport: 80}}
`

// routerScenario has load balancers of LBaaS v1, at the router.
func routerScenario(c crowding) string {
	var s strings.Builder
	s.WriteString(clients + "  lbaas_v1:\n")
	for i := range c.vips {
		fmt.Fprintf(&s, "  - {name: lb%d, pool: {router: r, subnet: ss, members: [%s]}, vip: {subnet: sv, address: %s, protocol_port: 80}}\n",
			i, c.membersOf(i), vipAddress(i))
	}
	fmt.Fprintf(&s, sent, vipAddress(0))
	return s.String()
}

// vipScenario has load balancers of LBaaS v2, on a network behind the router.
func vipScenario(c crowding) string {
	var s strings.Builder
	s.WriteString(strings.Replace(clients, "{router: r, subnet: ss}", "{router: r, subnet: ss}, {router: r, subnet: sv}", 1) + "  lbaas_v2:\n")
	for i := range c.vips {
		fmt.Fprintf(&s, "  - {name: lb%d, subnet: sv, vip_address: %s, listeners: [{name: l, protocol_port: 80, pool: p}], pools: [{name: p, members: [%s]}]}\n",
			i, vipAddress(i), c.membersOf(i))
	}
	fmt.Fprintf(&s, sent, vipAddress(0))
	return s.String()
}

// membersOf returns the members of a balancer: the first has all, each other one.
func (c crowding) membersOf(balancer int) string {
	n := 1
	if balancer == 0 {
		n = c.members
	}
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("{address: 10.0.2.10, protocol_port: %d}", 8000+i)
	}
	return strings.Join(all, ", ")
}

// vipAddress returns the address of a balancer's VIP.
func vipAddress(balancer int) string {
	return fmt.Sprintf("10.1.%d.%d", 1+balancer/250, 1+balancer%250)
}

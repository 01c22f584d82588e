package explain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// TestReachIsWhy holds sets of services to single questions: in random clouds, at the bounds of each
// range, around them and at random, a service is in the set if and only if its packets, simulated
// one by one, arrive.
func TestReachIsWhy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, ids := randomCloud(t, seed)
			r := rand.New(rand.NewPCG(seed, 1))
			snap := c.view()
			c.world.apply(snap)
			asker := reach.NewAsker(c.world.world, func(id string) *reach.End { return endOf(snap, id) })
			counts := map[outcomes]int{}
			for range 150 {
				from, to := endOf(snap, ids[r.IntN(len(ids))]), endOf(snap, ids[r.IntN(len(ids))])
				if from.PortID == to.PortID {
					continue
				}
				for _, target := range to.Addresses {
					source := from.Addresses[slices.IndexFunc(from.Addresses, func(a netip.Addr) bool { return a.Is4() == target.Is4() })]
					a := asker.Ask(&reach.Question{From: from, Source: source, Target: target, To: to})
					for _, s := range samples(&a, r) {
						want := c.one(snap, from, to, source, target, s)
						got := answered(&a, s)
						if !want.agrees(got) {
							t.Fatalf("%v:\n%s → %s\nports %s → %s", s, source, target, from.PortID, to.PortID)
						}
						counts[got]++
					}
				}
			}
			t.Log(counts)
		})
	}
}

// sample is one service, by one client's port.
type sample struct {
	proto   uint8
	port    uint16 // of ICMP type<<8 | code
	srcPort uint16
}

// outcomes is a bit for each of what may become of a connection: lost, answered in vain, complete.
type outcomes uint8

const (
	isLost outcomes = 1 << iota
	isHalfway
	isComplete
)

// agrees reports whether what became of one connection is among what may become of it.
func (o outcomes) agrees(all outcomes) bool { return all&o != 0 }

// answered returns what an answer says of a service.
func answered(a *reach.Answer, s sample) outcomes {
	switch {
	case a.Always.Has(s.proto, s.port):
		return isComplete
	case a.May.Has(s.proto, s.port):
		return isLost | isHalfway | isComplete
	case a.OneWay.Has(s.proto, s.port):
		return isLost | isHalfway
	}
	return isLost
}

// samples returns services at the bounds of an answer's ranges, beside them, and at random.
func samples(a *reach.Answer, r *rand.Rand) (all []sample) {
	add := func(proto uint8, port int) {
		if icmp := proto == packet.ProtoICMPv6 && (port>>8 >= 130 && port>>8 <= 137 || port>>8 == 143); port < 0 || port > 0xffff || icmp {
			return
		}
		all = append(all, sample{proto, uint16(port), uint16(1024 + r.IntN(0xffff-1024))})
	}
	for _, s := range []*reach.Services{&a.Always, &a.May, &a.OneWay} {
		for _, x := range s.Parts() {
			for _, port := range []int{int(x.Low), int(x.High), int(x.Low) - 1, int(x.High) + 1, int(x.Low) + r.IntN(int(x.High-x.Low)+1)} {
				add(x.Proto, port)
			}
		}
	}
	for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP, packet.ProtoICMP, packet.ProtoICMPv6, 47, 112, uint8(61 + r.IntN(60))} {
		for _, port := range []int{r.IntN(1 << 16), 22, 443, 8 << 8, 128 << 8, 3<<8 | 1} {
			add(proto, port)
		}
	}
	return all
}

// one sends one packet, and the answer to it.
func (c *cloud) one(snap *records.Snap, from, to *reach.End, source, target netip.Addr, s sample) outcomes {
	c.t.Helper()
	state := simulate.NewMemory()
	send := func(from, to *reach.End, h connHeaders) (arrived connHeaders, ok bool) {
		p, _ := schema.Ports.Peek(snap, from.PortID)
		hop, why := nextHop(snap, p, h.src, h.dst)
		mac, _, known := c.world.world.Neighbour(from.NetworkID, hop)
		if why != "" || !known {
			return h, false
		}
		in := simulate.Input{PortID: from.PortID, HostID: from.HostID, Frame: h.frame(from.MAC, mac), State: state}
		d := simulate.NewSimulator(c.world.world).Run(in)
		if !slices.ContainsFunc(d.Outputs, func(o flow.Output) bool { return o.PortID == to.PortID }) {
			return h, false
		}
		state.Commit(d)
		if d.Rewrite != nil {
			h.src, h.dst = d.Rewrite.Src, d.Rewrite.Dst
			if packet.HasPorts(h.proto) {
				h.srcPort, h.dstPort = d.Rewrite.SrcPort, d.Rewrite.DstPort
			}
		}
		return h, true
	}
	h := connHeaders{src: source, dst: target, proto: s.proto, srcPort: s.srcPort, dstPort: s.port}
	arrived, ok := send(from, to, h)
	if !ok {
		return isLost
	}
	back, expected := arrived.reply()
	if !expected {
		return isComplete
	}
	if _, ok := send(to, from, back); !ok {
		return isHalfway
	}
	return isComplete
}

// connHeaders are the headers of a packet of a connection.
type connHeaders struct {
	src, dst         netip.Addr
	proto            uint8
	srcPort, dstPort uint16 // dstPort of ICMP: type<<8 | code
}

func (h connHeaders) reply() (connHeaders, bool) {
	r := connHeaders{src: h.dst, dst: h.src, proto: h.proto, srcPort: h.dstPort, dstPort: h.srcPort}
	switch {
	case h.proto == packet.ProtoICMP && h.src.Is4():
		r.dstPort = 0
		return r, h.dstPort>>8 == 8
	case h.proto == packet.ProtoICMPv6 && h.src.Is6():
		r.dstPort = 129 << 8
		return r, h.dstPort>>8 == 128
	}
	return r, true
}

func (h connHeaders) frame(src, dst packet.MAC) []byte {
	var t []byte
	switch h.proto {
	case packet.ProtoICMP:
		t = packet.ICMP{Type: uint8(h.dstPort >> 8), Code: uint8(h.dstPort), Rest: packet.EchoRest(7, 1)}.Append(nil, nil)
	case packet.ProtoICMPv6:
		t = packet.ICMP{Type: uint8(h.dstPort >> 8), Code: uint8(h.dstPort), Rest: packet.EchoRest(7, 1)}.AppendV6(nil, h.src, h.dst, nil)
	case packet.ProtoTCP:
		t = packet.TCP{SrcPort: h.srcPort, DstPort: h.dstPort, Flags: packet.TCPSyn}.Append(nil, h.src, h.dst, nil)
	default:
		t = packet.UDP{SrcPort: h.srcPort, DstPort: h.dstPort}.Append(nil, h.src, h.dst, make([]byte, 8))
	}
	if h.src.Is4() {
		b := packet.Ethernet{Src: src, Dst: dst, Type: packet.TypeIPv4}.Append(nil)
		return append(packet.IPv4{TTL: 64, Proto: h.proto, Src: h.src, Dst: h.dst}.Append(b, len(t)), t...)
	}
	b := packet.Ethernet{Src: src, Dst: dst, Type: packet.TypeIPv6}.Append(nil)
	return append(packet.IPv6{HopLimit: 64, Next: h.proto, Src: h.src, Dst: h.dst}.Append(b, len(t)), t...)
}

func (c *cloud) view() *records.Snap {
	c.t.Helper()
	snap, err := c.db.View(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return snap
}

// randomCloud makes three networks, two of them behind a router with a firewall and one with the
// addresses of another, groups with rules of all kinds, and ports in all states. It returns the ids
// of the ports.
func randomCloud(t *testing.T, seed uint64) (c *cloud, ids []string) {
	t.Helper()
	c = newCloud(t)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var groups []string
	for i := range 5 {
		groups = append(groups, create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"g%d","stateful":%t}`, i, i > 0).ID)
	}
	for _, g := range groups {
		for range 1 + r.IntN(6) {
			c.randomRule(r, g, groups)
		}
	}
	var networks []string
	router := create(c, c.Routers().Operations, neutron.Routers, `{"name":"r"}`).ID
	var interfaces []string
	for i, third := range []int{1, 2, 1} {
		n := create(c, c.Networks(), neutron.Networks, `{"name":"n%d"}`, i).ID
		networks = append(networks, n)
		for _, s := range []*neutron.SubnetView{
			create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.0.%d.0/24"}`, n, third),
			create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":6,"cidr":"fd00:%d::/64"}`, n, third),
		} {
			if i == 2 {
				continue
			}
			at, err := c.Routers().AddInterface(context.Background(), admin, router, neutron.InterfaceRequest{SubnetID: s.ID})
			if err != nil {
				t.Fatal(err)
			}
			interfaces = append(interfaces, at.PortID)
		}
	}
	for i := range 14 {
		state := fmt.Sprintf(`,"admin_state_up":%t`, r.IntN(8) > 0)
		var in []string
		for _, g := range groups[1:] {
			if r.IntN(3) == 0 {
				in = append(in, fmt.Sprintf("%q", g))
			}
		}
		switch r.IntN(8) {
		case 0:
			state += `,"port_security_enabled":false,"security_groups":[]`
		case 1:
			state += fmt.Sprintf(`,"security_groups":[%q]`, groups[0]) // without memory of connections
		case 2:
			state += `,"allowed_address_pairs":[{"ip_address":"10.0.1.200/29"}]`
			fallthrough
		default:
			state += `,"security_groups":[` + strings.Join(in, ",") + `]`
		}
		ids = append(ids, c.port(networks[i%3], fmt.Sprintf("p%d", i), pick("h1", "h2"), state).ID)
	}
	c.randomFirewall(r, interfaces)
	return c, ids
}

// randomRule adds a rule to a group.
func (c *cloud) randomRule(r *rand.Rand, group string, groups []string) {
	v6 := r.IntN(3) == 0
	rule := fmt.Sprintf(`"security_group_id":%q,"direction":%q,"ethertype":%q`, group, []string{"ingress", "egress"}[r.IntN(2)], map[bool]string{true: "IPv6", false: "IPv4"}[v6])
	low := 1 + r.IntN(100)
	if r.IntN(3) == 0 {
		low = 1 + r.IntN(60000)
	}
	ports := fmt.Sprintf(`,"port_range_min":%d,"port_range_max":%d`, low, low+r.IntN(2)*r.IntN(5000))
	icmp := map[bool]string{true: "ipv6-icmp", false: "icmp"}[v6]
	switch r.IntN(8) {
	case 0, 1:
		rule += `,"protocol":"tcp"` + ports
	case 2:
		rule += `,"protocol":"udp"` + ports
	case 3:
		rule += fmt.Sprintf(`,"protocol":%q,"port_range_min":%d`, icmp, []int{0, 3, 8, 128, 129}[r.IntN(5)])
		if r.IntN(2) == 0 {
			rule += fmt.Sprintf(`,"port_range_max":%d`, r.IntN(3))
		}
	case 4:
		rule += fmt.Sprintf(`,"protocol":%q`, icmp)
	case 5:
		rule += `,"protocol":"47"`
	case 6:
		rule += `,"protocol":"sctp"` + ports
	}
	switch r.IntN(4) {
	case 0:
		rule += fmt.Sprintf(`,"remote_group_id":%q`, groups[r.IntN(len(groups))])
	case 1:
		prefix := fmt.Sprintf("10.0.%d.%d/%d", 1+r.IntN(2), r.IntN(256), 24+r.IntN(9))
		if v6 {
			prefix = fmt.Sprintf("fd00:%d::/%d", 1+r.IntN(2), 16+r.IntN(112))
		}
		rule += fmt.Sprintf(`,"remote_ip_prefix":%q`, netip.MustParsePrefix(prefix).Masked())
	}
	op := neutron.SecurityGroupRules
	_, err := c.SecurityGroupRules().Create(context.Background(), admin, []neutron.Values{parse(c.t, op, neutron.Create, "{"+rule+"}")})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		c.t.Fatalf("%s: %v", rule, err)
	}
}

// randomFirewall puts a firewall at interfaces of a router.
func (c *cloud) randomFirewall(r *rand.Rand, interfaces []string) {
	var rules []string
	for range 1 + r.IntN(5) {
		low := 1 + r.IntN(2000)
		text := fmt.Sprintf(`"action":%q`, []string{"allow", "deny", "reject"}[r.IntN(3)])
		switch r.IntN(3) {
		case 0:
			text += fmt.Sprintf(`,"protocol":"tcp","destination_port":"%d:%d"`, low, low+r.IntN(3000))
		case 1:
			text += fmt.Sprintf(`,"protocol":"udp","source_port":"%d:%d"`, 1024+low, 1024+low+r.IntN(30000))
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf(`,"source_ip_address":"10.0.%d.0/%d"`, 1+r.IntN(2), 24+r.IntN(5))
		}
		rules = append(rules, fmt.Sprintf("%q", create(c, c.FirewallGroupRules(), neutron.FirewallGroupRules, "{%s}", text).ID))
	}
	rules = append(rules, fmt.Sprintf("%q", create(c, c.FirewallGroupRules(), neutron.FirewallGroupRules, `{"action":"allow"}`).ID))
	policy := create(c, c.FirewallGroupPolicies(), neutron.FirewallGroupPolicies, `{"firewall_rules":[%s]}`, strings.Join(rules, ",")).ID
	var ports []string
	for _, p := range interfaces {
		ports = append(ports, fmt.Sprintf("%q", p))
	}
	create(c, c.FirewallGroups(), neutron.FirewallGroups, `{"ports":[%s],"ingress_firewall_policy_id":%q}`, strings.Join(ports, ","), policy)
}

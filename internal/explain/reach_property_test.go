package explain

import (
	"cmp"
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

// TestReachIsSimulated holds sets of services to single packets: in random clouds, at the bounds of
// each range, beside them and at random, a service is in the set if and only if its packets arrive.
func TestReachIsSimulated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, ids := randomCloud(t, seed)
			p := c.newProbe()
			r := rand.New(rand.NewPCG(seed, 1))
			reached, depends := 0, 0
			for range 60 {
				from, to := p.end(ids[r.IntN(len(ids))]), p.end(ids[r.IntN(len(ids))])
				if from.PortID == to.PortID {
					continue
				}
				for _, target := range to.Addresses {
					sources := slices.DeleteFunc(slices.Clone(from.Addresses), func(a netip.Addr) bool { return a.Is4() != target.Is4() })
					if len(sources) == 0 {
						continue
					}
					w := way{from: from, to: to, source: sources[r.IntN(len(sources))], target: target}
					a := p.asker.Ask(&reach.Question{From: from, Source: w.source, Target: target, To: to})
					all := p.check(w, &a, r)
					if reached++; all == isLost {
						reached--
					}
					if parts := a.May.Parts(); len(parts) > 0 && depends < 2 {
						depends++
						p.checkDepends(w, sample{proto: parts[0].Proto, port: parts[0].High})
					}
				}
			}
			if reached == 0 {
				t.Error("nothing was reached: this cloud proves little")
			}
		})
	}
}

// TestReachOutsideIsSimulated is the same for machines outside, at the bounds of each range of
// addresses too.
func TestReachOutsideIsSimulated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, ids := randomCloud(t, seed)
			p := c.newProbe()
			r := rand.New(rand.NewPCG(seed, 2))
			reached := 0
			for _, id := range ids {
				e := p.end(id)
				for _, target := range e.Addresses {
					for _, door := range c.world.world.Doors() {
						all := p.asker.FromOutside(reach.Question{Door: door, Target: target, To: e})
						reached += len(all)
						p.checkRanges(all, r, target.Is4(), func(a netip.Addr) way { return way{door: door, source: a, target: target, to: e} })
					}
					all := p.asker.ToOutside(reach.Question{From: e, Source: target})
					reached += len(all)
					p.checkRanges(all, r, target.Is4(), func(a netip.Addr) way { return way{from: e, source: target, target: a} })
				}
			}
			for f := range schema.FloatingIPs.All(p.snap) {
				door := c.world.world.Doors()[0]
				to := p.end(cmp.Or(f.PortID, ids[12]))
				all := p.asker.FromOutside(reach.Question{Door: door, Target: f.FloatingIPAddress, To: to})
				reached += len(all)
				p.checkRanges(all, r, true, func(a netip.Addr) way { return way{door: door, source: a, target: f.FloatingIPAddress, to: to} })
			}
			if reached == 0 {
				t.Error("nothing was reached: this cloud proves little")
			}
		})
	}
}

// TestOnePortMoreIsNoticed: the comparison with single packets tells a range from one with a port
// more or less.
func TestOnePortMoreIsNoticed(t *testing.T) {
	t.Parallel()
	for _, other := range []string{`"port_range_min":100,"port_range_max":201`, `"port_range_min":101,"port_range_max":200`, `"port_range_min":99,"port_range_max":200`} {
		c := newCloud(t)
		web, db := c.twoTiers()
		g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"one"}`).ID
		update(c, c.Ports(), neutron.Ports, db.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g))
		ruled := func(ports string) string {
			return create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","protocol":"tcp",%s}`, g, ports).ID
		}
		rule := ruled(`"port_range_min":100,"port_range_max":200`)
		p := c.newProbe()
		w := way{from: p.end(web.ID), to: p.end(db.ID)}
		w.source, w.target = w.from.Addresses[0], w.to.Addresses[0]
		a := p.asker.Ask(&reach.Question{From: w.from, Source: w.source, Target: w.target, To: w.to})
		r := rand.New(rand.NewPCG(1, 1))
		if wrong := p.wrong(w, &a, r); wrong != nil {
			t.Fatalf("%+v", wrong)
		}
		if err := c.SecurityGroupRules().Delete(context.Background(), admin, rule, nil); err != nil {
			t.Fatal(err)
		}
		ruled(other)
		p = c.newProbe()
		if p.wrong(w, &a, r) == nil {
			t.Errorf("the answer for other ports passes for %s", other)
		}
	}
}

// probe is a cloud at a moment.
type probe struct {
	*cloud
	snap  *records.Snap
	ends  map[string]*reach.End
	asker *reach.Asker
}

func (c *cloud) newProbe() *probe {
	p := &probe{cloud: c, snap: c.view(), ends: map[string]*reach.End{}}
	c.world.apply(p.snap)
	p.asker = reach.NewAsker(c.t.Context(), c.world.world, p.end)
	return p
}

func (p *probe) end(id string) *reach.End {
	if p.ends[id] == nil {
		p.ends[id] = endOf(p.snap, id)
	}
	return p.ends[id]
}

// way is from whom to whom connections go: nil is outside.
type way struct {
	from, to       *reach.End
	door           simulate.Door
	source, target netip.Addr
}

// wrong returns a service of which the answer is not true, nil for none.
func (p *probe) wrong(w way, a *reach.Answer, r *rand.Rand) *sample {
	for _, s := range samples(a, r) {
		if !p.one(w, s).agrees(answered(a, s)) {
			return &s
		}
	}
	return nil
}

// check checks an answer, and returns all that it says of services.
func (p *probe) check(w way, a *reach.Answer, r *rand.Rand) (all outcomes) {
	p.t.Helper()
	if s := p.wrong(w, a, r); s != nil {
		p.t.Fatalf("%+v: %d, not %d\n%+v", *s, p.one(w, *s), answered(a, *s), w)
	}
	if !a.IsEmpty() {
		return isComplete
	}
	return isLost
}

// checkDepends checks that what becomes of a service depends on the source port.
func (p *probe) checkDepends(w way, s sample) {
	p.t.Helper()
	var all outcomes
	for port := 1024; port <= 0xffff; port++ {
		s.srcPort = uint16(port)
		all |= p.one(w, s)
	}
	if all&isComplete == 0 || all == isComplete {
		p.t.Errorf("%+v: said to depend on the source port; with all of them %d", s, all)
	}
}

// checkRanges checks answers at the bounds of ranges of addresses, beside them and at random.
func (p *probe) checkRanges(all []reach.OutsideAnswer, r *rand.Rand, is4 bool, to func(netip.Addr) way) {
	p.t.Helper()
	texts := []string{"198.51.100.7", "10.0.1.9", "10.0.2.250", "9.9.9.9", "203.0.113.77"}
	if !is4 {
		texts = []string{"2001:db8::7", "fd00:1::9", "2600::1"}
	}
	var at []netip.Addr
	for _, text := range texts {
		at = append(at, netip.MustParseAddr(text))
	}
	for _, a := range all {
		at = append(at, a.First, a.Last, a.First.Prev(), a.Last.Next())
	}
	for _, address := range at {
		if !isOutside(address) {
			continue
		}
		if _, _, known := p.world.world.Neighbour(p.network("public"), address); known {
			continue
		}
		answer := reach.Answer{}
		if i := slices.IndexFunc(all, func(a reach.OutsideAnswer) bool { return a.First.Compare(address) <= 0 && address.Compare(a.Last) <= 0 }); i >= 0 {
			answer = all[i].Answer
		}
		p.check(to(address), &answer, r)
	}
}

// isOutside reports whether routers forward packets for an address.
func isOutside(a netip.Addr) bool {
	return a.IsValid() && a.IsGlobalUnicast() && (a.Is6() && a.As16()[1] > 0 || a.Is4() && a.As4()[0] > 0 && a.As4()[0] < 224)
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
func (p *probe) one(w way, s sample) outcomes {
	p.t.Helper()
	state := simulate.NewMemory()
	arrived, out := p.send(state, w.from, w.to, w.door, connHeaders{src: w.source, dst: w.target, proto: s.proto, srcPort: s.srcPort, dstPort: s.port})
	if out == nil {
		return isLost
	}
	back, expected := arrived.reply()
	if !expected {
		return isComplete
	}
	door := simulate.Door{PortID: out.PortID, HostID: out.HostID, MAC: arrived.srcMAC}
	if _, out := p.send(state, w.to, w.from, door, back); out == nil {
		return isHalfway
	}
	return isComplete
}

// send sends a packet from a port, or by a door, to a port or out.
func (p *probe) send(state *simulate.Memory, from, to *reach.End, door simulate.Door, h connHeaders) (connHeaders, *flow.Output) {
	lanMAC := packet.MAC{2, 0, 0, 0, 0, 9}
	in := simulate.Input{PortID: door.PortID, HostID: door.HostID, State: state, LANMAC: lanMAC}
	h.srcMAC, h.dstMAC = lanMAC, door.MAC
	if from != nil {
		port, _ := schema.Ports.Peek(p.snap, from.PortID)
		mac, _, known := p.world.world.Neighbour(from.NetworkID, p.hop(port, h.src, h.dst))
		if !known {
			return h, nil
		}
		in.PortID, in.HostID, h.srcMAC, h.dstMAC = from.PortID, from.HostID, from.MAC, mac
	}
	in.Frame = h.frame(h.srcMAC, h.dstMAC)
	d := simulate.NewSimulator(p.world.world).Run(in)
	i := slices.IndexFunc(d.Outputs, func(o flow.Output) bool {
		return to != nil && o.PortID == to.PortID || to == nil && p.world.world.LeadsOutside(o.PortID)
	})
	if i < 0 {
		return h, nil
	}
	state.Commit(d)
	if d.Rewrite != nil {
		h.srcMAC, h.src, h.dst = d.Rewrite.SrcMAC, d.Rewrite.Src, d.Rewrite.Dst
		if packet.HasPorts(h.proto) {
			h.srcPort, h.dstPort = d.Rewrite.SrcPort, d.Rewrite.DstPort
		} else {
			h.echo = d.Rewrite.DstPort
		}
	}
	return h, &d.Outputs[i]
}

// hop returns the neighbour to which a port's machine sends a packet, invalid for none, worked out
// from the subnets alone: by the most specific of their routes, of several by that of the source's
// subnet.
func (p *probe) hop(port *neutron.Port, src, dst netip.Addr) (hop netip.Addr) {
	bits := -1
	for _, own := range []bool{true, false} {
		for _, f := range port.FixedIPs {
			s, ok := schema.Subnets.Peek(p.snap, f.SubnetID)
			if !ok || (f.IPAddress == src) != own {
				continue
			}
			take := func(to netip.Prefix, by netip.Addr) {
				if to.Contains(dst) && to.Bits() > bits {
					hop, bits = by, to.Bits()
				}
			}
			take(s.CIDR, dst)
			for _, r := range s.HostRoutes {
				take(r.Destination, r.Nexthop)
			}
			if s.GatewayIP != nil && s.GatewayIP.Is4() == dst.Is4() {
				take(netip.PrefixFrom(*s.GatewayIP, 0).Masked(), *s.GatewayIP)
			}
		}
	}
	return hop
}

// connHeaders are the headers of a packet of a connection.
type connHeaders struct {
	srcMAC, dstMAC   packet.MAC
	src, dst         netip.Addr
	echo             uint16 // id
	proto            uint8
	srcPort, dstPort uint16 // dstPort of ICMP: type<<8 | code
}

func (h connHeaders) reply() (connHeaders, bool) {
	r := connHeaders{echo: h.echo, src: h.dst, dst: h.src, proto: h.proto, srcPort: h.dstPort, dstPort: h.srcPort}
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
		t = packet.ICMP{Type: uint8(h.dstPort >> 8), Code: uint8(h.dstPort), Rest: packet.EchoRest(h.echo, 1)}.Append(nil, nil)
	case packet.ProtoICMPv6:
		t = packet.ICMP{Type: uint8(h.dstPort >> 8), Code: uint8(h.dstPort), Rest: packet.EchoRest(h.echo, 1)}.AppendV6(nil, h.src, h.dst, nil)
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

// randomCloud makes three networks, two of them behind a router with a firewall, of which one has
// two IPv4 subnets, and one with the addresses of another, groups with rules of all kinds, and
// ports in all states. It returns the ids of the ports.
func randomCloud(t *testing.T, seed uint64) (c *cloud, ids []string) {
	t.Helper()
	c = newCloud(t)
	r := rand.New(rand.NewPCG(seed, 0))
	several := rand.New(rand.NewPCG(seed, 9)) // of the second subnet
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
	var first, second string // subnets of the first network
	for i, third := range []int{1, 2, 1} {
		n := create(c, c.Networks(), neutron.Networks, `{"name":"n%d"}`, i).ID
		networks = append(networks, n)
		subnets := []*neutron.SubnetView{
			create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.0.%d.0/24"}`, n, third),
			create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":6,"cidr":"fd00:%d::/64"}`, n, third),
		}
		if i == 0 {
			subnets = append(subnets, create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.0.3.0/24"%s}`, n,
				[]string{"", `,"host_routes":[{"destination":"10.0.2.0/25","nexthop":"10.0.3.1"},{"destination":"10.0.1.0/24","nexthop":"0.0.0.0"}]`}[several.IntN(2)]))
			first, second = subnets[0].ID, subnets[2].ID
		}
		for _, s := range subnets {
			if i == 2 {
				continue
			}
			at, err := c.Routers().AddInterface(context.Background(), admin, router, neutron.InterfaceRequest{SubnetID: s.ID})
			if err != nil {
				t.Fatal(err)
			}
			if s.ID != second { // which has no firewall, so that it matters by which gateway machines send
				interfaces = append(interfaces, at.PortID)
			}
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
		switch { // of the first network: in the first subnet, the second one, or in both
		case i%3 == 0 && several.IntN(3) == 0:
			state += fmt.Sprintf(`,"fixed_ips":[{"subnet_id":%q}]`, second)
		case i%3 == 0 && several.IntN(2) == 0:
			state += fmt.Sprintf(`,"fixed_ips":[{"subnet_id":%q},{"subnet_id":%q}]`, first, second)
		}
		ids = append(ids, c.port(networks[i%3], fmt.Sprintf("p%d", i), pick("h1", "h2"), state).ID)
	}
	if r.IntN(2) == 0 {
		c.randomFirewall(r, interfaces)
	}
	c.toOutside(r, router, ids)
	return c, ids
}

// toOutside gives the router a gateway, and some ports floating addresses or forwarded ports.
func (c *cloud) toOutside(r *rand.Rand, router string, ids []string) {
	out := create(c, c.Networks(), neutron.Networks, `{"name":"public","router:external":true,"provider:network_type":"flat","provider:physical_network":"public"}`).ID
	create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"203.0.113.0/24"}`, out)
	create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":6,"cidr":"2001:db8:1::/64"}`, out)
	update(c, c.Routers().Operations, neutron.Routers, router, fmt.Sprintf(`{"external_gateway_info":{"network_id":%q,"enable_snat":%t}}`, out, r.IntN(3) > 0))
	for i := range 3 {
		id := ids[3*i+r.IntN(2)]
		fixed := endOf(c.view(), id).Addresses
		fixed = slices.DeleteFunc(fixed, netip.Addr.Is6)
		create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q,"fixed_ip_address":%q}`, out, id, fixed[len(fixed)-1])
	}
	f := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q}`, out)
	port, _ := schema.Ports.Peek(c.view(), ids[12])
	create(c, c.PortForwardings(f.ID), neutron.PortForwardings, `{"protocol":"tcp","external_port_range":"1000:1010","internal_port_range":"%d:%d","internal_port_id":%q,"internal_ip_address":%q}`,
		95, 105, ids[12], endOf(c.view(), port.ID).Address(true))
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
	create(c, c.FirewallGroups(), neutron.FirewallGroups, `{"ports":[%s],"ingress_firewall_policy_id":%[2]q,"egress_firewall_policy_id":%[2]q}`, strings.Join(ports, ","), policy)
}

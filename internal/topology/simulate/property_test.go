package simulate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

// Small pools of ids and addresses, so that references meet, miss and collide.
var (
	someIDs     = []string{"a", "b", "c", ""}
	someAddrs   = []string{"10.0.0.1", "10.0.0.2", "10.0.0.0/24", "2001:db8::1", "2001:db8::/64", "bad", ""}
	somePolicy  = []string{topology.FragAny, topology.FragHeader, topology.FragNonHeader, topology.FragUnfragmented, ""}
	someTypes   = []uint16{0, packet.TypeIPv4, packet.TypeARP, packet.TypeIPv6}
	someActions = []string{topology.Accept, topology.Drop, topology.Return, topology.Continue, topology.Reject, "?"}
	someOwners  = []topology.Owner{{Kind: "base", ID: "0"}, {Kind: "network", ID: "1"}, {Kind: "port", ID: "1"}, {Kind: "port", ID: "2"}, {Kind: "port", ID: "3"}, {Kind: "security-group", ID: "1"}, {Kind: "subnet", ID: "1"}}
)

func genMAC() *rapid.Generator[packet.MAC] {
	return rapid.Custom(func(t *rapid.T) packet.MAC { return mac(rapid.IntRange(1, 3).Draw(t, "mac")) })
}

func genPrefix() *rapid.Generator[*netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) *netip.Prefix {
		p, err := netip.ParsePrefix(rapid.SampledFrom([]string{"10.0.0.1/32", "10.0.0.0/24", "::/0", "2001:db8::1/128", ""}).Draw(t, "prefix"))
		if err != nil {
			return nil
		}
		return &p
	})
}

func genRange() *rapid.Generator[*topology.Range] {
	end := rapid.Ptr(rapid.Uint16Range(0, 90), true)
	return rapid.Custom(func(t *rapid.T) *topology.Range {
		if rapid.IntRange(0, 3).Draw(t, "range") > 0 {
			return nil
		}
		return &topology.Range{Low: end.Draw(t, "low"), High: end.Draw(t, "high")}
	})
}

func genCondition() *rapid.Generator[*topology.Condition] {
	return rapid.Custom(func(t *rapid.T) *topology.Condition {
		rarely := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
		id := func(name string) string {
			if !rarely(name + "?") {
				return ""
			}
			return rapid.SampledFrom(someIDs).Draw(t, name)
		}
		c := &topology.Condition{
			ConjunctionInv: rarely("inv"), MatchForwardFlow: rarely("fwd"), MatchReturnFlow: rarely("ret"),
			IPAddrGroupIDSrc: id("gsrc"), InvIPAddrGroupSrc: rarely("gsrcinv"), IPAddrGroupIDDst: id("gdst"), InvIPAddrGroupDst: rarely("gdstinv"),
			DlType: rapid.SampledFrom(someTypes).Draw(t, "type"), InvDlType: rarely("typeinv"),
			NwSrcIP: genPrefix().Draw(t, "src"), NwSrcInv: rarely("srcinv"), TpDst: genRange().Draw(t, "tpdst"), TpDstInv: rarely("tpdstinv"),
			TpSrc: genRange().Draw(t, "tpsrc"), FragmentPolicy: rapid.SampledFrom(somePolicy).Draw(t, "frag"), NoVlan: rarely("novlan"),
		}
		if rarely("dlsrc") {
			c.DlSrc, c.InvDlSrc = ptr(genMAC().Draw(t, "mac")), rarely("dlsrcinv")
		}
		if rarely("proto") {
			c.NwProto = ptr(rapid.SampledFrom([]uint8{1, 2, 6, 17, 58}).Draw(t, "nwproto"))
		}
		if rarely("tos") {
			c.NwTos = ptr(uint8(0))
		}
		if p := id("in"); p != "" {
			c.InPortIDs, c.InPortInv = []string{p}, rarely("ininv")
		}
		if p := id("out"); p != "" {
			c.OutPortIDs, c.OutPortInv = []string{p, "b"}, rarely("outinv")
		}
		return c
	})
}

func genRule() *rapid.Generator[topology.Rule] {
	return rapid.Custom(func(t *rapid.T) topology.Rule {
		r := topology.Rule{ID: fmt.Sprint("r", rapid.IntRange(0, 99).Draw(t, "rule")), Type: topology.Literal}
		r.Action = rapid.SampledFrom(someActions).Draw(t, "action")
		if rapid.Bool().Draw(t, "jumps") {
			r.Type, r.Action, r.JumpChainID = topology.Jump, topology.Jump, rapid.SampledFrom(someIDs).Draw(t, "target")
		}
		if rapid.IntRange(0, 5).Draw(t, "bare") > 0 {
			r.Condition = genCondition().Draw(t, "condition")
		}
		return r
	})
}

// genBundle makes any bundle over the pools, consistent or not.
func genBundle() *rapid.Generator[*topology.Bundle] {
	return rapid.Custom(func(t *rapid.T) *topology.Bundle {
		id := rapid.SampledFrom(someIDs)
		net := rapid.SampledFrom([]string{"a", "a", "a", "b", ""})
		seldom := func(name string) bool { return rapid.IntRange(0, 7).Draw(t, name) == 0 }
		few := func(n int, make func(int)) {
			for i := range rapid.IntRange(0, n).Draw(t, "n") {
				make(i)
			}
		}
		filter := func(name string) string {
			if seldom(name + "?") {
				return rapid.SampledFrom(someIDs).Draw(t, name)
			}
			return ""
		}
		b := &topology.Bundle{}
		few(2, func(int) {
			b.Networks = append(b.Networks, topology.Network{ID: net.Draw(t, "net"), AdminStateUp: !seldom("netdown"),
				InboundFilterID: filter("nin"), OutboundFilterID: filter("nout")})
		})
		few(2, func(int) {
			p := topology.Port{ID: id.Draw(t, "port"), NetworkID: net.Draw(t, "pnet"), AdminStateUp: !seldom("pdown"),
				InboundFilterID: filter("pin"), OutboundFilterID: filter("pout")}
			if !seldom("unbound") {
				p.HostID, p.InterfaceName = rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host"), "tap"
			}
			b.Ports = append(b.Ports, p)
		})
		few(2, func(int) {
			b.Chains = append(b.Chains, topology.Chain{ID: id.Draw(t, "chain"), Rules: rapid.SliceOfN(genRule(), 0, 4).Draw(t, "rules")})
		})
		few(1, func(int) { b.IPAddrGroups = append(b.IPAddrGroups, topology.IPAddrGroup{ID: id.Draw(t, "group")}) })
		few(2, func(int) {
			b.Memberships = append(b.Memberships, topology.Membership{GroupID: id.Draw(t, "mgroup"), PortID: id.Draw(t, "mport"),
				IPAddress: rapid.SampledFrom(someAddrs).Draw(t, "member")})
		})
		few(1, func(int) {
			prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
				a := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")})
				return netip.PrefixFrom(a, rapid.IntRange(0, 32).Draw(t, "bits"))
			})
			b.MemberSets = append(b.MemberSets, topology.MemberSet{GroupID: id.Draw(t, "set"), Prefixes: rapid.SliceOfN(prefix, 0, 4).Draw(t, "prefixes")})
		})
		few(3, func(int) {
			b.MACs = append(b.MACs, topology.MACEntry{NetworkID: net.Draw(t, "macnet"), MAC: genMAC().Draw(t, "seed"), PortID: id.Draw(t, "macport")})
		})
		few(2, func(int) {
			a, _ := netip.ParseAddr(rapid.SampledFrom(someAddrs).Draw(t, "neighbour"))
			b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: net.Draw(t, "nnet"), IP: a, MAC: genMAC().Draw(t, "nmac")})
		})
		few(1, func(int) {
			b.Dhcps = append(b.Dhcps, topology.Dhcp{ID: id.Draw(t, "dhcp"), NetworkID: net.Draw(t, "dnet"), Enabled: !seldom("disabled"),
				SubnetAddress: netip.MustParsePrefix("10.0.0.0/24")})
		})
		few(1, func(int) {
			b.DhcpHosts = append(b.DhcpHosts, topology.DhcpHost{SubnetID: id.Draw(t, "hnet"), PortID: id.Draw(t, "hport"),
				DhcpHostEntry: topology.DhcpHostEntry{MAC: genMAC().Draw(t, "hmac"), IPAddress: addr(1)}})
		})
		return b
	})
}

// anyWorld begins empty, or with ports that can talk.
func anyWorld(t *rapid.T) *World {
	if rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
		return NewWorld(Options{})
	}
	l := newLab()
	b := &topology.Bundle{Networks: []topology.Network{{ID: "a", AdminStateUp: true}}}
	for i, id := range []string{"a", "b", "c"} {
		p := topology.Port{ID: id, NetworkID: "a", AdminStateUp: true, HostID: []string{"h1", "h2", "h1"}[i], InterfaceName: "tap"}
		if rapid.Bool().Draw(t, "in") {
			p.InboundFilterID = "b"
		}
		if rapid.Bool().Draw(t, "out") {
			p.OutboundFilterID = "c"
		}
		b.Ports = append(b.Ports, p)
		b.MACs = append(b.MACs, topology.MACEntry{NetworkID: "a", MAC: mac(i + 1), PortID: id})
		b.Neighbours = append(b.Neighbours, topology.NeighbourEntry{NetworkID: "a", IP: addr(i + 1), MAC: mac(i + 1)})
	}
	for _, id := range []string{"b", "c"} {
		b.Chains = append(b.Chains, topology.Chain{ID: id, Rules: rapid.SliceOfN(genRule(), 0, 4).Draw(t, "rules")})
	}
	l.Apply(owner("base", "0"), b) // before all others: its definitions count until it goes
	return l.World
}

// A change is one call that changes the world.
type change struct {
	name  string
	apply func(*World) []string
}

func genChange() *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		net, m := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lnet"), genMAC().Draw(t, "lmac")
		learned := topology.LearnedMAC{HostID: rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "lhost"), NetworkID: net, MAC: m,
			PortID: rapid.SampledFrom(someIDs).Draw(t, "lport")}
		version := rapid.Uint64Range(1, 5).Draw(t, "version")
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return change{fmt.Sprintf("learn %+v", learned), func(w *World) []string { return w.LearnMAC(learned, version) }}
		case 1:
			return change{fmt.Sprintf("forget %+v", learned), func(w *World) []string { return w.ForgetMAC(learned) }}
		case 2:
			var h *topology.Host
			if rapid.Bool().Draw(t, "known") {
				h = &topology.Host{ID: learned.HostID, Tunnels: []topology.HostTunnel{{ZoneID: rapid.SampledFrom([]string{"z1", "z2"}).Draw(t, "zone"), IP: addr(9)}}}
			}
			return change{fmt.Sprintf("host %s %+v", learned.HostID, h), func(w *World) []string { return w.ApplyHost(learned.HostID, h) }}
		case 3:
			o := rapid.SampledFrom(someOwners).Draw(t, "owner")
			return change{fmt.Sprintf("%v gone", o), func(w *World) []string { return w.Apply(o, nil) }}
		}
		o := rapid.SampledFrom(someOwners).Draw(t, "owner")
		b := genBundle().Draw(t, "bundle")
		return change{fmt.Sprintf("%v %+v", o, *b), func(w *World) []string { return w.Apply(o, b) }}
	})
}

// probes are packets that ask all kinds of questions.
func probes() map[string][]byte {
	tcp80 := tcp(1, 2, 4000, 80)
	return map[string][]byte{
		"tcp":       tcp80,
		"back":      tcp(2, 1, 80, 4000),
		"v6":        tcp6(1, 2, 4000, 80),
		"ping":      ping(1, 2, 8, 7),
		"unknown":   toMAC(tcp(1, 2, 4000, 80), mac(9)),
		"broadcast": toMAC(tcp(1, 2, 4000, 80), packet.Broadcast),
		"later":     ipv4(1, 2, packet.IPv4{Proto: 17, ID: 5, Offset: 2}, make([]byte, 16)),
		"first":     ipv4(1, 2, packet.IPv4{Proto: 6, ID: 5, MoreFragments: true}, tcp80[34:]),
		"gre":       ipv4(1, 2, packet.IPv4{Proto: 47}, make([]byte, 4)),
		"arp":       request(1, addr(2)),
		"ns":        packet.NeighborSolicit(mac(9), mac(1), addr6(1), addr6(2), addr6(2)),
		"dhcp":      dhcpFrame(1, packet.DHCPDiscover, nil),
	}
}

// fingerprint describes the effects of a decision.
func fingerprint(d *flow.Decision) string {
	text := fmt.Sprintf("%v %s %q out %v conns %v cacheable %v", d.Verdict, d.Device, d.Reason, d.Outputs, d.NewConns, d.Cacheable)
	text += fmt.Sprintf(" nats %v %v wait %v", d.NATs, d.NewNATs, d.Wait)
	if d.Rewrite != nil {
		text += fmt.Sprintf(" rewrite %+v", *d.Rewrite)
	}
	text += copyText(d)
	if d.Cacheable {
		return text // without answers to a dropped packet, which no later one gets
	}
	for _, e := range d.Emit {
		text += fmt.Sprintf(" %s:%x", e.PortID, e.Frame)
	}
	return text
}

// playground is a kind of world in which properties are tried.
type playground struct {
	world  func(*rapid.T) *World // to begin with
	change *rapid.Generator[change]
	bundle *rapid.Generator[*topology.Bundle]
	owners []topology.Owner
	probes map[string][]byte
	ports  []string     // some with the host: PORT@HOST
	hosts  func(*World) // enters those that the world has while its order is tried
	// settled: the outcomes are those of later packets of the same connections.
	settled bool
}

func playgrounds() map[string]playground {
	all := map[string]playground{
		"bridged":  {anyWorld, genChange(), genBundle(), someOwners, probes(), someIDs, nil, false},
		"routed":   {routedWorld, genRoutedChange(), genRoutedBundle(), routedOwners, routedProbes(), []string{"p1", "p2", "q4"}, nil, false},
		"LAN":      {lanWorld, genLANChange(), genLANBundle(), lanOwners, lanProbes(), []string{"p1", "p2", "p3", "p4", "l@h1", "l@h2", "l@h3"}, begin, false},
		"balanced": {balancedWorld, genBalancedChange(), genBalancedBundle(), balancedOwners, balancedProbes(), []string{"p1", "p2", "p3"}, nil, true},
	}
	all["mirrored"] = mirrored(all["bridged"], someIDs)
	all["mirrored and routed"] = mirrored(all["routed"], routedPorts)
	return all
}

// outcome is the result of a probe at a port.
type outcome struct {
	text    string
	kept    bool
	learns  bool
	touched []string
}

// outcomes probes a world; nothing is remembered before.
func (p *playground) outcomes(w *World) map[string]outcome { return p.outcomesWith(w, p.memory(w)) }

// memory returns what packets know that come after those of the probes; nil if that is nothing.
func (p *playground) memory(w *World) *Memory {
	if !p.settled {
		return nil
	}
	s, m := NewSimulator(w), NewMemory()
	for _, name := range slices.Sorted(maps.Keys(p.probes)) {
		for _, port := range p.ports {
			m.Commit(s.Run(Input{PortID: port, Frame: p.probes[name], State: m}))
		}
	}
	return m
}

func (p *playground) outcomesWith(w *World, m *Memory) map[string]outcome {
	s := NewSimulator(w)
	var state State
	if m != nil {
		state = m
	}
	all := map[string]outcome{}
	for name, frame := range p.probes {
		for _, port := range p.ports {
			id, host, onLAN := strings.Cut(port, "@")
			if !onLAN && strings.Contains(name, fmt.Sprint(" ", forged, " ")) {
				continue
			}
			d := s.Run(Input{PortID: id, HostID: host, Frame: frame, State: state})
			all[name+" at "+port] = outcome{fingerprint(d), d.Cacheable, d.Learn != nil, slices.Clone(d.Touched)}
		}
	}
	return all
}

// Whatever changes, every decision that may be kept and is different afterwards touched an affected
// port or router.
func TestAffectedCoversEveryChange(t *testing.T) {
	t.Parallel()
	for name, p := range playgrounds() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, p.affectedCoversEveryChange) })
	}
}

func (p *playground) affectedCoversEveryChange(t *rapid.T) {
	w := p.world(t)
	for range rapid.IntRange(1, 8).Draw(t, "changes") {
		m := p.memory(w)
		before := p.outcomesWith(w, m)
		c := p.change.Draw(t, "change")
		affected := c.apply(w)
		after := p.outcomesWith(w, m)
		for name, was := range before {
			is := after[name]
			if !was.kept || is.text == was.text && (was.learns || !is.learns) {
				continue // a reference that is taken in vain does no harm
			}
			if !slices.ContainsFunc(was.touched, func(p string) bool { return slices.Contains(affected, p) }) {
				t.Fatalf("%s changes %s\nfrom %s\nto   %s\nwhich touched %v; affected %v", c.name, name, was.text, is.text, was.touched, affected)
			}
		}
	}
}

// dump is everything that a world holds, in text.
func dump(w *World) string {
	var b strings.Builder
	sorted := func(seq map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(seq)) {
			fmt.Fprintf(&b, "%s %s\n", k, seq[k])
		}
	}
	all := map[string]string{}
	for id, n := range w.networks {
		text := fmt.Sprintf("refs %d def %v ports", n.refs, n.def)
		for _, p := range n.ports {
			text += " " + p.id
		}
		for _, k := range slices.Sorted(maps.Keys(n.macs)) {
			text += fmt.Sprintf(" %x@%s", uint64(k), n.macs[k].top.id)
		}
		for _, s := range n.subnets {
			text += " subnet " + s.id
		}
		for _, q := range n.routers.all {
			text += " router's " + q.id
		}
		var neighbours []string
		for a, e := range n.neighbours {
			neighbours = append(neighbours, fmt.Sprint(a, *e.top))
		}
		slices.Sort(neighbours)
		if n.lan != nil {
			text += fmt.Sprintf(" LAN by %s at %v, addresses %v", n.lan.port.id, idOf(n.lan.home), n.lan.addresses())
		}
		all["network "+id] = text + fmt.Sprint(neighbours)
	}
	for id, p := range w.ports {
		text := fmt.Sprintf("refs %d def %v home %s groups %d routes %d named by", p.refs, p.def, idOf(p.home), len(p.groups), len(p.routes))
		for _, q := range p.namedBy {
			text += " " + q.id
		}
		all["port "+id] = text
	}
	for id, c := range w.chains {
		text := fmt.Sprintf("refs %d ports %d networks %d routers %d jumpers %d rules", c.refs, len(c.ports), len(c.networks), len(c.routers), len(c.jumpers))
		for _, r := range c.rules {
			text += fmt.Sprintf(" %s@%d/%v", r.id, r.order.place, r.verb)
		}
		all["chain "+id] = text + fmt.Sprint(" keyed ", c.index.keyed, c.index.built)
	}
	for id, r := range w.routers {
		text := fmt.Sprintf("refs %d def %v ports", r.refs, r.def)
		for _, p := range r.ports {
			text += " " + p.id
		}
		for _, l := range r.routes.lengths {
			text += fmt.Sprint(" ", l)
		}
		var routes []string
		for dst, same := range r.routes.byDst {
			for i, x := range same {
				routes = append(routes, fmt.Sprint(dst, i, x.id))
			}
		}
		slices.Sort(routes)
		all["router "+id] = text + fmt.Sprint(routes)
	}
	for id, r := range w.routes {
		all["route "+id] = fmt.Sprintf("refs %d def %v", r.refs, r.def)
	}
	for id, g := range w.portGroups {
		all["port group "+id] = fmt.Sprintf("refs %d def %v ports %d", g.refs, g.def, len(g.ports))
	}
	for id, g := range w.groups {
		lengths := slices.Clone(g.lengths)
		slices.SortFunc(lengths, func(x, y prefixLength) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		all["group "+id] = fmt.Sprintf("refs %d def %v addrs %v prefixes %v lengths %v users %d", g.refs, g.def != nil, g.addrs, g.prefixes, lengths, len(g.users))
	}
	for id, s := range w.subnets {
		all["subnet "+id] = fmt.Sprintf("refs %d def %v hosts %d", s.refs, s.def != nil, len(s.hosts))
	}
	for id, h := range w.hosts {
		all["host "+id] = fmt.Sprintf("refs %d def %v ports %d carries %d", h.refs, h.def != nil, len(h.ports), len(h.carried))
	}
	for id, m := range w.mirrors {
		all["mirror "+id] = fmt.Sprintf("refs %d def %v conditions %d ports %d", m.refs, m.def, len(m.match.rules), len(m.match.ports))
	}
	for id, x := range w.physicals {
		all["physical network "+id] = fmt.Sprintf("refs %d hosts %d LANs %d", x.refs, len(x.hosts), len(x.lans))
	}
	dumpBalancers(w, all)
	sorted(all)
	return b.String()
}

func idOf(h *host) string {
	if h == nil {
		return "none"
	}
	return h.id
}

// addresses are those of the LAN's table in text.
func (l *lan) addresses() (all []string) {
	for p, keys := range l.macs {
		for key := range keys {
			all = append(all, fmt.Sprint(p.id, key.mac()))
		}
	}
	slices.Sort(all)
	return all
}

// The same bundles make the same world in any order, and whatever was there in between.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, p := range playgrounds() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, p.orderDoesNotMatter) })
	}
}

func (p *playground) orderDoesNotMatter(t *rapid.T) {
	bundles := map[topology.Owner]*topology.Bundle{}
	for _, o := range p.owners {
		bundles[o] = p.bundle.Draw(t, o.Kind+o.ID)
	}
	one, two := NewWorld(Options{}), NewWorld(Options{})
	if p.hosts != nil {
		p.hosts(one)
	}
	for _, o := range p.owners {
		one.Apply(o, bundles[o])
	}
	for _, o := range rapid.Permutation(p.owners).Draw(t, "first time") {
		two.Apply(o, p.bundle.Draw(t, "in between"))
	}
	for _, o := range rapid.Permutation(p.owners).Draw(t, "second time") {
		two.Apply(o, bundles[o])
	}
	if p.hosts != nil {
		p.hosts(two)
	}
	if a, b := dump(one), dump(two); a != b {
		t.Fatalf("in order:\n%s\nshuffled:\n%s", a, b)
	}
	got := p.outcomes(two)
	for name, want := range p.outcomes(one) {
		if got[name].text != want.text {
			t.Fatalf("%s\nin order: %s\nshuffled: %s", name, want.text, got[name].text)
		}
	}
}

// What is taken away leaves nothing.
func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, p := range playgrounds() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, p.deleteLeavesNothing) })
	}
}

func (p *playground) deleteLeavesNothing(t *rapid.T) {
	w := NewWorld(Options{})
	for range rapid.IntRange(1, 8).Draw(t, "changes") {
		p.change.Draw(t, "change").apply(w)
	}
	for _, o := range rapid.Permutation(p.owners).Draw(t, "order") {
		w.Apply(o, nil)
	}
	for _, h := range lanHosts {
		w.ApplyHost(h, nil)
		w.ApplyHostState(h, nil)
		for _, m := range lanMACs {
			w.ForgetMAC(topology.LearnedMAC{HostID: h, NetworkID: "a", MAC: m})
		}
		for _, n := range append([]string{"r", "s"}, someIDs...) {
			for i := 1; i <= 3; i++ {
				w.ForgetMAC(topology.LearnedMAC{HostID: h, NetworkID: n, MAC: mac(i)})
				w.ForgetNeighbour(topology.LearnedNeighbour{HostID: h, NetworkID: n, IP: routedAddrs[i]})
			}
		}
	}
	for _, id := range balancedIDs {
		w.ApplyMemberHealth("h1", id, nil)
		w.ApplyMemberHealth("h2", id, nil)
	}
	if !w.Empty() {
		t.Fatalf("left:\n%s", dump(w))
	}
}

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// The places of the tests: workloads a and b, host endpoints eth0 and eth1.
var (
	aKey = calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "a", Endpoint: "a"}
	bKey = calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "b", Endpoint: "b"}
	eth0 = calico.HostEndpointKey{Host: "h", Endpoint: "eth0"}
	eth1 = calico.HostEndpointKey{Host: "h", Endpoint: "eth1"}
)

var (
	addrA   = netip.MustParseAddr("10.0.0.1")
	addrB   = netip.MustParseAddr("10.0.0.2")
	hostIP  = netip.MustParseAddr("198.51.100.1")
	peer    = netip.MustParseAddr("192.0.2.9")
	floatB  = netip.MustParseAddr("203.0.113.2")
	macOfA  = calico.MAC{2, 0, 0, 0, 0, 1}
	foreign = calico.MAC{2, 0, 0, 0, 0, 9}
)

// rules returns possible rules: a may send to the set "s:b" by policy, b accepts TCP 80 by profile,
// and eth0 has one of each.
func rules() *Rules {
	tcp80 := calc.Rule{Action: calico.Allow, Index: 1, IPv4: true, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}}}
	udp := calc.Rule{Action: calico.Allow, Index: 2, IPv4: true, Protocol: calico.ProtocolUDP}
	toB := calc.Rule{Action: calico.Allow, Index: 3, IPv4: true, DstSets: []calc.SetID{"s:b"}}
	logs := calc.Rule{Action: calico.Log, Index: 1, IPv4: true}
	denyUDP := calc.Rule{Action: calico.Deny, Index: 1, IPv4: true, Protocol: calico.ProtocolUDP}
	out := func(name string) calc.ListID {
		return calc.ListID{Tier: "default", Name: name, Direction: calc.Outbound}
	}
	in := func(name string) calc.ListID { return calc.ListID{Tier: "default", Name: name} }
	r := &Rules{}
	r.Apply(&calc.Changes{
		Sets: map[calc.SetID]*calc.SetChange{"s:b": {New: true, Added: []netip.Addr{addrB}}},
		Lists: map[calc.ListID]*calc.List{
			out("p"): {Rules: []calc.Rule{logs, toB}}, in("p"): {},
			in("raw"): {Rules: []calc.Rule{denyUDP}}, out("raw"): {},
			in("wire"):                               {Rules: []calc.Rule{tcp80}},
			in("host"):                               {Rules: []calc.Rule{udp}},
			out("host"):                              {Rules: []calc.Rule{udp}},
			{Name: "web"}:                            {Rules: []calc.Rule{tcp80}},
			{Name: "web", Direction: calc.Outbound}:  {},
			{Name: "gone"}:                           {Missing: "has no rules"},
			{Name: "gone", Direction: calc.Outbound}: {Missing: "has no rules"},
		},
		Workloads: map[calico.WorkloadEndpointKey]*calc.Workload{
			aKey: {Key: aKey, Tiers: []calc.Tier{{Name: "default", Inbound: []calc.ListID{in("p")}, Outbound: []calc.ListID{out("p")}}},
				Endpoint: &calico.WorkloadEndpoint{State: calico.Active, MAC: &macOfA, IPv4Nets: []netip.Prefix{netip.PrefixFrom(addrA, 32)}}},
			bKey: {Key: bKey, Profiles: []string{"web", "gone"},
				Endpoint: &calico.WorkloadEndpoint{State: calico.Active, IPv4Nets: []netip.Prefix{netip.PrefixFrom(addrB, 32)},
					IPv4NAT: []calico.NAT{{IntIP: addrB, ExtIP: floatB}}}},
		},
		Hosts: map[calico.HostEndpointKey]*calc.Host{
			eth0: {Key: eth0, Endpoint: &calico.HostEndpoint{Name: "eth0", ExpectedIPv4Addrs: []netip.Addr{hostIP}},
				Tiers:     []calc.Tier{{Name: "default", Inbound: []calc.ListID{in("host")}, Outbound: []calc.ListID{out("host")}}},
				Untracked: []calc.Tier{{Name: "default", Inbound: []calc.ListID{in("raw")}, Outbound: []calc.ListID{out("raw")}}},
				PreDNAT:   []calc.Tier{{Name: "default", Inbound: []calc.ListID{in("wire")}}}},
			eth1: {Key: eth1, Endpoint: &calico.HostEndpoint{Name: "eth1"}},
		},
	})
	return r
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tcp := Packet{Protocol: calico.ProtocolTCP, SrcPort: 40000, DstPort: 80}
	udp := Packet{Protocol: calico.ProtocolUDP, SrcPort: 40000, DstPort: 9}
	tests := []struct {
		name     string
		p        Packet
		from, to Place
		src, dst netip.Addr
		change   func(*Packet)
		config   Config
		allowed  bool
		by       string
	}{
		{"by a profile", tcp, Place{}, AtWorkload(bKey), peer, addrB, nil, Config{}, true, "profile web inbound rule 1"},
		{"by the end of the profiles", udp, Place{}, AtWorkload(bKey), peer, addrB, nil, Config{}, false, "profile gone inbound: has no rules"},
		{"past both", tcp, AtWorkload(aKey), AtWorkload(bKey), addrA, addrB, nil, Config{}, true, "profile web inbound rule 1"},
		{"by the source's policy", tcp, AtWorkload(aKey), Place{}, addrA, peer, nil, Config{}, false, "default deny of tier default"},
		{"by the set of a policy", udp, AtWorkload(aKey), AtWorkload(bKey), addrA, addrB, nil, Config{}, false, "profile gone inbound: has no rules"},
		{"to a floating address", tcp, AtWorkload(aKey), AtWorkload(bKey), addrA, floatB, nil, Config{}, true, "profile web inbound rule 1"},
		{"another MAC", tcp, AtWorkload(aKey), AtWorkload(bKey), addrA, addrB, func(p *Packet) { p.SrcMAC = &foreign }, Config{}, false, "source MAC is not the endpoint's"},
		{"another address", tcp, AtWorkload(aKey), AtWorkload(bKey), peer, addrB, nil, Config{}, false, "source address is not the endpoint's"},
		{"nobody's interface", tcp, AtWorkload(calico.WorkloadEndpointKey{Endpoint: "x"}), Place{}, addrA, peer, nil, Config{}, false, "no valid endpoint x"},
		{"established", udp, Place{}, AtWorkload(bKey), peer, addrB, func(p *Packet) { p.State = Established }, Config{}, true, "established"},
		{"invalid", tcp, Place{}, AtWorkload(bKey), peer, addrB, func(p *Packet) { p.State = Invalid }, Config{}, false, "invalid: fits no connection"},
		{"invalid accepted", tcp, Place{}, AtWorkload(bKey), peer, addrB, func(p *Packet) { p.State = Invalid }, Config{AcceptInvalid: true}, true, "profile web inbound rule 1"},
		{"to the host", tcp, AtWorkload(aKey), LocalHost(), addrA, hostIP, nil, Config{}, false, "DefaultEndpointToHostAction DROP"},
		{"to the host, judged", tcp, AtWorkload(aKey), LocalHost(), addrA, hostIP, nil, Config{ToHost: ToHostAccept}, false, "default deny of tier default"},
		{"to the host's loopback", tcp, AtWorkload(bKey), LocalHost(), addrB, netip.MustParseAddr("127.0.0.1"), nil, Config{ToHost: ToHostAccept}, false, "destination is the host's loopback"},
		{"to the overlay's port", udp, AtWorkload(bKey), Place{}, addrB, peer, func(p *Packet) { p.DstPort = 6677 }, Config{}, false, "udp port 6677 is for hosts among themselves"},
		{"to the overlay's port of the host", udp, AtWorkload(aKey), LocalHost(), addrA, hostIP, func(p *Packet) { p.DstPort, p.State = 6677, Established }, Config{ToHost: ToHostAccept, DropsAccepted: true}, false, "udp port 6677 is for hosts among themselves"},
		{"IPIP of a workload", udp, AtWorkload(bKey), Place{}, addrB, peer, func(p *Packet) { p.Protocol = 4 }, Config{IPIP: true}, false, "IPIP is for hosts among themselves"},
		{"to the host's address", tcp, AtWorkload(aKey), AtHost(eth0), addrA, hostIP, nil, Config{}, false, "DefaultEndpointToHostAction DROP"},
		{"from the host", udp, LocalHost(), AtWorkload(bKey), hostIP, addrB, nil, Config{}, true, hostItself},
		{"overridden", udp, Place{}, AtWorkload(bKey), peer, addrB, nil, Config{DropsAccepted: true}, true, "profile gone inbound: has no rules, overridden by DropActionOverride"},
		{"untracked", udp, Place{}, AtHost(eth0), peer, hostIP, nil, Config{}, false, "policy default/raw inbound rule 1"},
		{"untracked, whatever the state", udp, Place{}, AtHost(eth0), peer, hostIP, func(p *Packet) { p.State = Established }, Config{}, false, "policy default/raw inbound rule 1"},
		{"untracked, but fail-safe", udp, Place{}, AtHost(eth0), peer, hostIP, nil, Config{FailsafeInbound: []Failsafe{{Protocol: calico.ProtocolUDP, Port: 9}}}, true, "fail-safe port udp 9"},
		{"untracked, reply of a fail-safe port", udp, Place{}, AtHost(eth0), peer, hostIP, nil,
			Config{FailsafeOutbound: []Failsafe{{Protocol: calico.ProtocolUDP, Port: 40000, Net: netip.PrefixFrom(peer, 32)}}}, true, "policy default/host inbound rule 2"},
		{"before DNAT", tcp, Place{}, AtHost(eth0), peer, hostIP, nil, Config{}, true, "policy default/wire inbound rule 1"},
		{"before DNAT, but invalid", tcp, Place{}, AtHost(eth0), peer, hostIP, func(p *Packet) { p.State = Invalid }, Config{}, false, "invalid: fits no connection"},
		{"IPIP of nobody", Packet{Protocol: ipInIP}, Place{}, LocalHost(), peer, hostIP, nil, Config{IPIP: true}, false, "IPIP from an address that is no host's"},
		{"out of the host", udp, AtHost(eth0), Place{}, hostIP, peer, nil, Config{}, true, "policy default/host outbound rule 2"},
		{"out of the host, fail-safe", tcp, AtHost(eth1), Place{}, hostIP, peer, nil, Config{FailsafeOutbound: []Failsafe{{Protocol: calico.ProtocolTCP, Port: 80}}}, true, "fail-safe port tcp 80"},
		{"forwarded is not the host's", tcp, AtHost(eth1), AtHost(eth0), peer, peer, nil, Config{FailsafeInbound: []Failsafe{{Protocol: calico.ProtocolTCP, Port: 80}}}, false,
			"default deny: host endpoint eth1 has no profile"},
		{"to a workload past a host endpoint", tcp, AtHost(eth1), AtWorkload(bKey), peer, addrB, nil, Config{}, true, "profile web inbound rule 1"},
		{"by no endpoint", tcp, Place{}, LocalHost(), peer, hostIP, nil, Config{}, true, noEndpoint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.p
			p.From, p.To, p.Src, p.Dst = tt.from, tt.to, tt.src, tt.dst
			if tt.change != nil {
				tt.change(&p)
			}
			v := Judge(rules(), tt.config, p)
			if v.Allowed != tt.allowed || v.By != tt.by {
				t.Errorf("allowed %v by %q, want %v by %q; walk %v", v.Allowed, v.By, tt.allowed, tt.by, v.Walk)
			}
		})
	}
}

// After a change only the changed rules count: nothing of before is left.
func TestApplyChanges(t *testing.T) {
	t.Parallel()
	r := rules()
	p := Packet{From: AtWorkload(aKey), To: AtWorkload(bKey), Src: addrA, Dst: addrB, Protocol: calico.ProtocolTCP, DstPort: 80}
	r.Apply(&calc.Changes{Sets: map[calc.SetID]*calc.SetChange{"s:b": {Removed: []netip.Addr{addrB}}}})
	if v := Judge(r, Config{}, p); v.Allowed || v.By != "default deny of tier default" {
		t.Errorf("the set is empty, and it is decided: %+v", v)
	}
	r.Apply(&calc.Changes{Workloads: map[calico.WorkloadEndpointKey]*calc.Workload{aKey: nil}, Sets: map[calc.SetID]*calc.SetChange{"s:b": {Gone: true}}})
	if v := Judge(r, Config{}, p); v.Allowed || v.By != "no valid endpoint a" {
		t.Errorf("the workload is gone, and it is decided: %+v", v)
	}
}

// A rule matches exactly the packets that a plain reading of its criteria says, one by one.
func TestMatchesEachCriterion(t *testing.T) {
	t.Parallel()
	j := judgement{rules: rules()}
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/31"), netip.MustParsePrefix("192.0.2.0/24")}
	ports := []calico.Ports{{Low: 80, High: 80}, {Low: 1000, High: 2000}}
	types := []uint8{0, 8, 13}
	rapid.Check(t, func(t *rapid.T) {
		maybeNets := rapid.SliceOfN(rapid.SampledFrom(nets), 0, 2)
		maybePorts := rapid.SliceOfN(rapid.SampledFrom(ports), 0, 2)
		maybeSets := rapid.SliceOfN(rapid.SampledFrom([]calc.SetID{"s:b", "s:none"}), 0, 1)
		maybeType := rapid.Ptr(rapid.SampledFrom(types), true)
		protocol := rapid.SampledFrom([]calico.Protocol{0, calico.ProtocolTCP, calico.ProtocolICMP})
		r := calc.Rule{IPv4: rapid.Bool().Draw(t, "v4"), Protocol: protocol.Draw(t, "protocol"), NotProtocol: protocol.Draw(t, "not protocol"),
			SrcNets: maybeNets.Draw(t, "src"), NotDstNets: maybeNets.Draw(t, "not dst"), DstPorts: maybePorts.Draw(t, "ports"), NotSrcPorts: maybePorts.Draw(t, "not ports"),
			SrcSets: maybeSets.Draw(t, "sets"), NotDstSets: maybeSets.Draw(t, "not sets"), ICMPType: maybeType.Draw(t, "type"), NotICMPType: maybeType.Draw(t, "not type")}
		if r.NotICMPType != nil {
			r.NotICMPCode = maybeType.Draw(t, "not code")
		}
		j.p = Packet{Src: rapid.SampledFrom([]netip.Addr{addrA, addrB, peer}).Draw(t, "a"), Dst: rapid.SampledFrom([]netip.Addr{addrA, addrB, peer}).Draw(t, "b"),
			Protocol: protocol.Draw(t, "p"), SrcPort: rapid.SampledFrom([]uint16{79, 80, 1500}).Draw(t, "sport"), DstPort: rapid.SampledFrom([]uint16{80, 81, 2000}).Draw(t, "dport"),
			ICMPType: rapid.SampledFrom(types).Draw(t, "t"), ICMPCode: rapid.SampledFrom(types).Draw(t, "c")}
		var unmet []string
		want := func(name string, holds bool) {
			if !holds {
				unmet = append(unmet, name)
			}
		}
		want("family", r.IPv4)
		want("protocol", r.Protocol == 0 || r.Protocol == j.p.Protocol)
		want("not protocol", r.NotProtocol == 0 || r.NotProtocol != j.p.Protocol)
		anyNet := func(a netip.Addr, list []netip.Prefix) (found bool) {
			for _, n := range list {
				found = found || n.Contains(a)
			}
			return found
		}
		anyPort := func(p uint16, list []calico.Ports) (found bool) {
			for _, r := range list {
				found = found || p >= r.Low && p <= r.High
			}
			return found
		}
		want("src", len(r.SrcNets) == 0 || anyNet(j.p.Src, r.SrcNets))
		want("not dst", !anyNet(j.p.Dst, r.NotDstNets))
		want("ports", len(r.DstPorts) == 0 || anyPort(j.p.DstPort, r.DstPorts))
		want("not ports", !anyPort(j.p.SrcPort, r.NotSrcPorts))
		want("set", !slices.Contains(r.SrcSets, "s:none") && (len(r.SrcSets) == 0 || j.p.Src == addrB))
		want("not set", !(slices.Contains(r.NotDstSets, "s:b") && j.p.Dst == addrB))
		want("type", r.ICMPType == nil || *r.ICMPType == j.p.ICMPType)
		if r.NotICMPType != nil {
			want("not type and code", *r.NotICMPType != j.p.ICMPType || r.NotICMPCode != nil && *r.NotICMPCode != j.p.ICMPCode)
		}
		if got := j.matches(&r); got != (len(unmet) == 0) {
			t.Fatalf("%+v and %+v: matches %v, but unmet is %s", r, j.p, got, strings.Join(unmet, ", "))
		}
	})
}

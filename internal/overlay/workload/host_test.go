package workload

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// lab is a host whose workloads are joined by a bridge of the kernel.
type lab struct {
	ns   *netlab.Namespace
	host *Host
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{ns: netlab.ForTest(t).MustNamespace(t, "host")}
	l.ns.MustIP(t, "link add joined type bridge", "link set joined up")
	ns, err := hostnet.OpenNamespace(l.ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		t.Fatal(err)
	}
	l.host = NewHost(net, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.host.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		err := <-done
		if links, _ := l.ns.Output(context.Background(), "ip", "-o", "link"); err != nil || strings.Contains(links, ": tap") {
			t.Errorf("after the end: %v; interfaces\n%s", err, links)
		}
		if err := errors.Join(net.Close(), ns.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// request is of a workload with the addresses 198.18.0.NUMBER and 2001:2::NUMBER.
func request(number byte, probes ...topology.Probe) *topology.WorkloadRequest {
	digit := string('0' + rune(number))
	return &topology.WorkloadRequest{PortID: "port-" + digit, Interface: "tap0000000000" + digit, MAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, number},
		Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, number}), 24), Address6: netip.MustParsePrefix("2001:2::" + digit + "/64"), MTU: 1450, Probes: probes}
}

// probe is of another workload.
func probe(kind topology.ProbeKind, of *topology.WorkloadRequest) topology.Probe {
	return topology.Probe{Kind: kind, Target: of.Address.Addr(), MAC: of.MAC}
}

// probe6 is of another workload by IPv6.
func probe6(kind topology.ProbeKind, of *topology.WorkloadRequest) topology.Probe {
	return topology.Probe{Kind: kind, Target: of.Address6.Addr(), MAC: of.MAC}
}

// ask submits a request and waits for the answer.
func (l *lab) ask(t *testing.T, r *topology.WorkloadRequest) *flow.WorkloadAnswer {
	t.Helper()
	answers := make(chan *flow.WorkloadAnswer, 1)
	l.host.Submit(r, func(a *flow.WorkloadAnswer) { answers <- a })
	select {
	case a := <-answers:
		return a
	case <-t.Context().Done():
		t.Fatal("no answer")
	}
	return nil
}

// join makes a workload, and puts its interface into the bridge.
func (l *lab) join(t *testing.T, r *topology.WorkloadRequest) {
	t.Helper()
	if a := l.ask(t, r); a.Error != "" {
		t.Fatal(a.Error)
	}
	l.ns.MustIP(t, "link set "+r.Interface+" master joined")
}

// TestProbes: on a bridge without anything else, workloads reach each other, nothing is blocked,
// and there is neither DHCP nor metadata.
func TestProbes(t *testing.T) {
	t.Parallel()
	l, one, two := newLab(t), request(1), request(2)
	l.join(t, one)
	l.join(t, two)
	foreign := probe(topology.ProbeARP, two)
	foreign.MAC[5]++
	foreign6 := probe6(topology.ProbeNDP, two)
	foreign6.MAC[5]++
	cases := []struct {
		probe  topology.Probe
		passed bool
		found  string
	}{
		{probe(topology.ProbeARP, two), true, "fa:16:3e:00:00:02"},
		{probe(topology.ProbeICMP, two), true, "answered"},
		{probe(topology.ProbeMTU, two), true, "1450 bytes pass, 1451 are refused"},
		{probe(topology.ProbeTCP, two), true, "connected"},
		{probe(topology.ProbeUDP, two), true, "answered"},
		{foreign, false, "fa:16:3e:00:00:02 answers, which is not the port's address fa:16:3e:00:00:03"},
		{probe6(topology.ProbeNDP, two), true, "fa:16:3e:00:00:02"},
		{probe6(topology.ProbeICMP, two), true, "answered"},
		{probe6(topology.ProbeMTU, two), true, "1450 bytes pass, 1451 are refused"},
		{probe6(topology.ProbeTCP, two), true, "connected"},
		{probe6(topology.ProbeUDP, two), true, "answered"},
		{foreign6, false, "fa:16:3e:00:00:02 answers, which is not the port's address fa:16:3e:00:00:03"},
		{probe6(topology.ProbeBlocked, two), false, "a connection to TCP port 7682 is possible, which no rule of the security group allows"},
		{probe(topology.ProbeBlocked, two), false, "a connection to TCP port 7682 is possible, which no rule of the security group allows"},
		{topology.Probe{Kind: topology.ProbeDHCP}, false, "no answer"},
		{topology.Probe{Kind: topology.ProbeMetadata}, false, "no route to host"},
		{topology.Probe{Kind: "telepathy"}, false, `this host's agent knows no probe "telepathy": upgrade it`},
	}
	var probes []topology.Probe
	for _, c := range cases {
		probes = append(probes, c.probe)
	}
	answer := l.ask(t, request(1, probes...))
	if answer.Error != "" || len(answer.Results) != len(cases) {
		t.Fatalf("got %+v", answer)
	}
	for i, c := range cases {
		got := answer.Results[i]
		if metadata := c.probe.Kind == topology.ProbeMetadata; got.Passed != c.passed || got.Detail != c.found && !metadata || got.Took <= 0 {
			t.Errorf("%s: got %+v, want %t, %q", c.probe.Kind, got, c.passed, c.found)
		}
	}
	if received := l.ask(t, two).Received; received["198.18.0.1"] < 1 || received["2001:2::1"] < 1 || len(received) != 2 {
		t.Errorf("the target received %v, want datagrams of the addresses of %s alone", received, one.PortID)
	}
	if !answer.IPv6 {
		t.Error("the answer does not say that the workload has its IPv6 address")
	}

	l.ns.MustIP(t, "link set "+two.Interface+" nomaster")
	lost := l.ask(t, request(1, probe(topology.ProbeICMP, two), probe(topology.ProbeTCP, two), probe(topology.ProbeUDP, two), probe(topology.ProbeMTU, two), probe(topology.ProbeBlocked, two)))
	for i, want := range []string{"no answer", "no answer", "no answer", "1450 bytes: no answer", "TCP port 7682 is closed"} {
		if got := lost.Results[i]; got.Detail != want {
			t.Errorf("without a way: got %+v, want %q", got, want)
		}
	}
}

// TestWithoutIPv6: a workload of a port without an IPv6 address says so, and tries nothing by IPv6.
func TestWithoutIPv6(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := request(1, probe6(topology.ProbeTCP, request(2)))
	r.Address6 = netip.Prefix{}
	if a := l.ask(t, r); a.Error != "" || a.IPv6 || a.Results[0].Passed || a.Results[0].Detail != "this workload has no IPv6 address" {
		t.Errorf("got %+v", a)
	}
}

// TestWorkloadsEnd: workloads go on request and when they are idle, not while they are in use.
func TestWorkloadsEnd(t *testing.T) {
	t.Parallel()
	l, one, two := newLab(t), request(1), request(2)
	l.join(t, one)
	l.join(t, two)
	busy, err := l.host.use(two)
	if err != nil {
		t.Fatal(err)
	}
	exists := func(r *topology.WorkloadRequest, want bool) {
		t.Helper()
		if _, err := l.host.net.Link(r.Interface); errors.Is(err, hostnet.ErrNotFound) == want {
			t.Errorf("interface %s: %v, want it there: %t", r.Interface, err, want)
		}
	}
	l.host.removeIdle(idleTime)
	exists(one, true)
	l.host.removeIdle(0)
	exists(one, false)
	exists(two, true)
	remove := request(2)
	remove.Remove = true
	l.ask(t, remove)
	exists(two, true)
	l.host.release(busy)
	exists(two, false)
	if a := l.ask(t, remove); a.Error != "" {
		t.Errorf("remove what is gone: %s", a.Error)
	}
}

// TestRefusals: what no server asks for is refused, and what is there is left alone.
func TestRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ns.MustIP(t, "link add tap00000000009 type bridge")
	for want, change := range map[string]func(*topology.WorkloadRequest){
		`interface "eth0": want an id, and tap with 11 characters`: func(r *topology.WorkloadRequest) { r.Interface = "eth0" },
		`the port "" and interface`:                                func(r *topology.WorkloadRequest) { r.PortID = "" },
		"the addresses 2001:db8::1/64 and":                         func(r *topology.WorkloadRequest) { r.Address = netip.MustParsePrefix("2001:db8::1/64") },
		"the address 192.0.2.1/24: want one of IPv6":               func(r *topology.WorkloadRequest) { r.Address6 = netip.MustParsePrefix("192.0.2.1/24") },
		"and ff:ff:ff:ff:ff:ff: want one of IPv4":                  func(r *topology.WorkloadRequest) { r.MAC = packet.Broadcast },
		"with MTU 100: want 576 to 65535":                          func(r *topology.WorkloadRequest) { r.MTU = 100 },
		"33 probes at once, at most 32":                            func(r *topology.WorkloadRequest) { r.Probes = make([]topology.Probe, mostProbes+1) },
		"interface tap00000000009 exists already":                  func(r *topology.WorkloadRequest) { r.Interface = "tap00000000009" },
	} {
		r := request(1)
		change(r)
		if a := l.ask(t, r); !strings.Contains(a.Error, want) {
			t.Errorf("got %q, want %q", a.Error, want)
		}
	}
	l.ns.MustIP(t, "link delete tap00000000009")
	for n := range byte(mostWorkloads) {
		l.join(t, request(n+1))
	}
	if a := l.ask(t, request(9)); !strings.Contains(a.Error, "has 8 temporary workloads already") {
		t.Errorf("got %q", a.Error)
	}
}

// TestFullQueue: requests that nobody works on are refused at once when there are too many.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	h := NewHost(nil, slog.New(slog.DiscardHandler))
	var refused *flow.WorkloadAnswer
	for range mostWaiting + 1 {
		h.Submit(request(1), func(a *flow.WorkloadAnswer) { refused = a })
	}
	if refused == nil || !strings.Contains(refused.Error, "32 requests wait already") {
		t.Errorf("got %+v", refused)
	}
}

// TestLeasedMTU: an MTU that differs from the network's is an error, with both in decimal.
func TestLeasedMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options []packet.DHCPOption
		want    string
	}{
		{nil, ""},
		{[]packet.DHCPOption{{Code: packet.OptInterfaceMTU, Value: []byte{0x05, 0xaa}}}, ""},
		{[]packet.DHCPOption{{Code: packet.OptInterfaceMTU, Value: []byte{0x05, 0x6e}}}, "leases with MTU 1390, and the network has 1450"},
		{[]packet.DHCPOption{{Code: packet.OptInterfaceMTU, Value: []byte{5}}}, "leases with an MTU of 1 bytes, want 2 (RFC 2132 §5.1)"},
	} {
		got := ""
		if err := checkMTU(&packet.DHCP{Options: c.options}, 1450); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("options %v: got %q, want %q", c.options, got, c.want)
		}
	}
}

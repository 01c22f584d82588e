package overlay

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// limitsOf returns the limits of a host's datapath that belong to an id, by direction.
func limitsOf(h *testHost, id string) map[string]datapath.LimitState {
	all := map[string]datapath.LimitState{}
	for _, l := range h.agent.dp.Limits() {
		for _, direction := range []string{"egress", "ingress"} {
			if strings.HasSuffix(l.Name, direction+"-"+id) {
				all[direction] = l
			}
		}
	}
	return all
}

// TestLimits: ports and floating IPs get the limits of their policy, whichever is stored first; a
// changed policy changes them; without it they are gone, and over a restart they stay.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	r := l.routed()
	l.start()
	h := l.hosts[0]
	web, outside := r.machine(h), r.external.machine(h)
	limits := func(rate uint64) *topology.Bundle {
		limit := topology.Limit{Rate: rate}
		return &topology.Bundle{Limits: []topology.Limits{{ID: "policy", Egress: limit, Ingress: limit}}}
	}
	policy := topology.Owner{Kind: "qos-policy", ID: "policy"}
	port := translate.Port(&web.port, &web.net.net, nil)
	port.Ports[0].LimitsID = "policy"
	l.put(web.owner(), &port)
	f := &neutron.FloatingIP{Standard: neutron.Standard{ID: uuid.NewString()}, FloatingNetworkID: r.external.net.ID, FloatingIPAddress: netip.MustParseAddr("192.0.2.20"),
		PortID: web.port.ID, FixedIPAddress: web.v4, RouterID: r.router.ID, ServedBy: r.gateway.Port.ID}
	float := translate.FloatingIP(f, &r.router, r.gateway)
	for i := range float.Rules {
		if rule := &float.Rules[i].Rule; rule.Type == topology.NAT {
			rule.Limits = &topology.RuleLimits{LimitsID: "policy", LimitedID: f.ID}
		}
	}
	l.put(topology.Owner{Kind: "floating-ip", ID: f.ID}, &float)
	outside.connect(f.FloatingIPAddress, web.serve(80), outside.v4)
	expect := func(when string, rate uint64, ids ...string) {
		t.Helper()
		for _, id := range ids {
			l.wait("limits of "+id+" "+when, func() bool {
				all := limitsOf(h, id)
				return all["egress"].Rate == rate && all["ingress"].Rate == rate
			})
		}
	}
	l.put(policy, limits(50e6))
	expect("of a policy that comes later", 50e6, web.port.ID, f.ID)
	l.put(policy, limits(70e6))
	expect("of a changed policy", 70e6, web.port.ID, f.ID)
	h.stop()
	h.start()
	expect("after a restart", 70e6, web.port.ID, f.ID)
	if n := h.agent.engine.count.unadopted.Load(); n > 0 {
		t.Errorf("%d flows with limits were not adopted", n)
	}

	// The bucket of the floating IP stops what comes, also what the agent sends itself.
	l.put(policy, &topology.Bundle{Limits: []topology.Limits{{ID: "policy", Ingress: topology.Limit{Packets: 1, PacketBurst: 1}}}})
	l.wait("a packet to be dropped by the limit", func() bool {
		_ = outside.pingFor(f.FloatingIPAddress, 20, short) // most are dropped
		return limitsOf(h, f.ID)["ingress"].Dropped > 0
	})
	l.put(policy, nil)
	l.wait("the port's limits to go", func() bool { return len(limitsOf(h, web.port.ID)) == 0 })
	if err := outside.ping(f.FloatingIPAddress, 20); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

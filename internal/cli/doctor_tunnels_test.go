package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/admin"
	"heddle/internal/netlab"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// agentWith serves the socket of an agent with these tunnels: their names, by the states of the
// directions from there and to there. It waits for some things.
func agentWith(t *testing.T, tunnels map[string][2]flow.TunnelState, waiting ...string) *sockets {
	t.Helper()
	m := telemetry.NewMetrics("v1")
	m.Register(func() (all []telemetry.Value) {
		for name, states := range tunnels {
			host, address, _ := strings.Cut(name, " ")
			add := func(series string, on bool) {
				all = append(all, telemetry.Flag("heddle_overlay_tunnel_"+series, "Help.", on).With("host", host).With("address", address))
			}
			add("up", true)
			for i, series := range []string{"in_alive", "out_alive"} {
				if states[i] != flow.TunnelUnknown {
					add(series, states[i] == flow.TunnelAlive)
				}
			}
		}
		return all
	})
	s := &sockets{dir: t.TempDir()}
	server := admin.NewServer(admin.Options{Dir: s.dir, Role: "agent", Metrics: m,
		Waiting: func() []string { return waiting }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-server.Ready()
	return s
}

// TestTunnelChecks: dead directions of tunnels are found in what a running agent knows; without
// one, nothing is.
func TestTunnelChecks(t *testing.T) {
	t.Parallel()
	const alive, dead, unknown = flow.TunnelAlive, flow.TunnelDead, flow.TunnelUnknown
	well := agentWith(t, map[string][2]flow.TunnelState{`h"2 192.0.2.12`: {alive, alive}, "h3 192.0.2.13": {unknown, unknown}})
	ill := agentWith(t, map[string][2]flow.TunnelState{`h"2 192.0.2.12`: {alive, dead}, "h3 192.0.2.13": {dead, unknown}, "others ": {dead, alive}})
	none := &sockets{dir: t.TempDir()}
	wantFinding(t, tunnelsCheck(none), "")
	wantFinding(t, tunnelsCheck(well), "")
	wantFinding(t, tunnelsCheck(ill), `nothing arrives at h"2 (192.0.2.12), nothing arrives from h3 (192.0.2.13), nothing arrives from others, though their agents are alive`)

	many := make([]flow.TunnelReport, mostDeadNamed+2)
	for i := range many {
		many[i] = flow.TunnelReport{Name: fmt.Sprint("h", i), In: flow.TunnelDirection{State: dead}}
	}
	if err := refuseDead(many); err == nil || !strings.HasSuffix(err.Error(), "nothing arrives from h9, and 2 more, though their agents are alive") {
		t.Errorf("got %v", err)
	}

	from := func(s *sockets, peer string) Check { return udpChecks(s, netip.MustParseAddr(peer))[1] }
	wantFinding(t, from(well, "192.0.2.12"), "")
	wantFinding(t, from(ill, "192.0.2.12"), "")
	wantFinding(t, from(ill, "192.0.2.13"), "nothing arrives from there by the tunnel, though its agent is alive")
	for s, words := range map[*sockets]string{well: "not known: ", none: "no agent runs here"} {
		wantUndecided(t, from(s, "192.0.2.13"), words)
	}
	wantUndecided(t, from(well, "192.0.2.14"), "this host's agent has no figures of a tunnel to 192.0.2.14")
}

// TestUDPCheck: a host that refuses datagrams is found, and so is a firewall on this one. Where
// they are dropped as by an agent, the agents' own hellos tell.
func TestUDPCheck(t *testing.T) {
	t.Parallel()
	const alive, dead, unknown = flow.TunnelAlive, flow.TunnelDead, flow.TunnelUnknown
	lab := netlab.ForTest(t)
	here, there := lab.MustNamespace(t, "here"), lab.MustNamespace(t, "there")
	lab.MustVeth(t, here, "eth0", there, "eth0")
	here.MustIP(t, "addr add 192.0.2.1/24 dev eth0")
	there.MustIP(t, "addr add 192.0.2.2/24 dev eth0")
	look := func(want func(*testing.T, Check, string), state flow.TunnelState, words string) {
		t.Helper()
		s := agentWith(t, map[string][2]flow.TunnelState{"there 192.0.2.2": {unknown, state}})
		_ = here.Do(func() error {
			want(t, udpChecks(s, netip.MustParseAddr("192.0.2.2"))[0], words)
			return nil
		})
	}
	look(wantFinding, alive, "refused: no agent runs there")
	rules := func(ns *netlab.Namespace, text string) {
		t.Helper()
		if out, err := ns.Output(t.Context(), "nft", text); err != nil {
			t.Fatal(err, out)
		}
	}
	rules(there, "add table inet f; add chain inet f in { type filter hook input priority 0; }; add rule inet f in udp dport 6677 drop")
	look(wantFinding, alive, "")
	look(wantFinding, dead, "nothing arrives there by the tunnel, as its agent says")
	look(wantUndecided, unknown, "not known: ")
	rules(here, "add table inet f; add chain inet f out { type filter hook output priority 0; }; add rule inet f out udp dport 6677 drop")
	look(wantFinding, alive, "a firewall on this host or on the way rejects it")
}

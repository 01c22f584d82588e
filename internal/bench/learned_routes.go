package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	bgpPeerAS, bgpRouterAS = 65001, 64512
	bgpPassword            = "bench"
	// Destinations that the peer announces are /32 in one prefix. That which it withdraws is the
	// last one.
	firstAnnounced, announcedPrefix = "198.18.0.0", "198.18.0.0/15"
	// A datagram goes to some of them, evenly spread, until one has arrived at each.
	probed     = 100
	probePause = 5 * time.Millisecond
)

// learnedRoutes measures how soon destinations that BIRD announces are reached by a workload behind
// a router that speaks BGP, and how soon one that it withdraws no more (services §14, row 10).
func (b *bench) learnedRoutes(ctx context.Context, x *balancing) error {
	n := b.pick(10_000, 500)
	rows := []measure{
		{Name: fmt.Sprintf("%d destinations announced by BIRD: all are reached", n), Unit: "ms", Goal: atMost(1000)},
		{Name: "one of them withdrawn: last packet to it", Unit: "ms", Goal: atMost(100)},
	}
	return b.withProgram("bird", "bird2", rows, func() error {
		r, err := x.routedByBGP(ctx, n)
		if err != nil {
			return err
		}
		defer r.bird.Stop()
		var learned, withdrawn []float64
		for round := range b.rounds {
			b.logf("round %d: routes of BIRD", round+1)
			l, w, err := r.round(ctx)
			if err != nil {
				return err
			}
			learned, withdrawn = append(learned, millis(l)), append(withdrawn, millis(w))
		}
		rows[0].Got, rows[0].Beside = netlab.Median(learned), fmt.Sprintf("by the session that is up; %d of them probed", probed)
		rows[1].Got = netlab.Median(withdrawn)
		b.add(rows[0])
		b.add(rows[1])
		return nil
	})
}

// bgpRouting is a router that speaks BGP with BIRD on a machine outside.
type bgpRouting struct {
	*balancing
	bird         *lab.Bird
	client, peer *lab.Workload
	destinations []netip.Addr
}

// routedByBGP starts BIRD with n destinations that it does not announce yet, and waits for the
// session.
func (x *balancing) routedByBGP(ctx context.Context, n int) (*bgpRouting, error) {
	r := &bgpRouting{balancing: x, destinations: make([]netip.Addr, n)}
	a := netip.MustParseAddr(firstAnnounced)
	for i := range r.destinations {
		r.destinations[i], a = a, a.Next()
	}
	var err error
	if r.client, err = x.workload(ctx, "routed", x.h1, x.group); err != nil {
		return nil, err
	}
	if r.peer, err = x.outsider(ctx, "bird", x.external.ID, "192.0.2.102", x.group); err != nil {
		return nil, err
	}
	if err := errors.Join(r.client.NS.IP("route add default via 10.0.0.1"), r.peer.NS.IP("link set lo up", "route add local "+announcedPrefix+" dev lo")); err != nil {
		return nil, err
	}
	if r.bird, err = lab.StartBird(r.peer.NS, x.Dir, r.config()); err != nil {
		return nil, err
	}
	if err := r.await(ctx); err != nil {
		r.bird.Stop()
		return nil, err
	}
	return r, nil
}

// await has the router speak BGP, and waits until the session is up.
func (r *bgpRouting) await(ctx context.Context) error {
	session := lab.BGPSession{AS: bgpRouterAS, Peer: r.peer.Address(false), PeerAS: bgpPeerAS, Password: bgpPassword}
	if err := r.operator().SpeakBGP(ctx, r.router, session); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	return netlab.Until(ctx, "the BGP session", func() (bool, error) {
		state, err := r.bird.Do(ctx, "show protocols heddle")
		return err == nil && strings.Contains(state, "Established"), nil // it may not listen yet
	})
}

// config is BIRD's configuration: protocols many and one announce the destinations when they are
// enabled.
func (r *bgpRouting) config() string {
	var s strings.Builder
	fmt.Fprintf(&s, `log stderr all;
router id %[1]s;
protocol device {}
protocol bgp heddle {
  local %[1]s as %[2]d; neighbor %[3]s as %[4]d; password "%[5]s";
  connect delay time 1; connect retry time 1; error wait time 1, 2;
  ipv4 { import none; export where source = RTS_STATIC; };
}
`, r.peer.Address(false), bgpPeerAS, r.gateway, bgpRouterAS, bgpPassword)
	last := len(r.destinations) - 1
	for name, destinations := range map[string][]netip.Addr{"many": r.destinations[:last], "one": r.destinations[last:]} {
		fmt.Fprintf(&s, "protocol static %s { disabled; ipv4;\n", name)
		for _, a := range destinations {
			fmt.Fprintf(&s, "  route %s/32 blackhole;\n", a)
		}
		s.WriteString("}\n")
	}
	return s.String()
}

// round has BIRD announce all destinations, withdraw the last one, and then all. It returns how
// long after the first command all were reached, and how long after the second the last still was.
func (r *bgpRouting) round(ctx context.Context) (learned, withdrawn time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*lab.StartTimeout)
	defer cancel()
	if _, err := r.bird.Do(ctx, "enable one"); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if _, err := r.bird.Do(ctx, "enable many"); err != nil {
		return 0, 0, err
	}
	reached, err := r.reachAll(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := r.learned(ctx, len(r.destinations)); err != nil {
		return 0, 0, err
	}
	if withdrawn, err = r.withdraw(ctx); err != nil {
		return 0, 0, err
	}
	if _, err := r.bird.Do(ctx, "disable many"); err != nil {
		return 0, 0, err
	}
	return reached.Sub(begun), withdrawn, r.learned(ctx, 0)
}

// learned waits until the router uses n destinations.
func (r *bgpRouting) learned(ctx context.Context, n int) error {
	return netlab.Until(ctx, fmt.Sprintf("%d destinations learned", n), func() (bool, error) {
		for _, h := range r.Hosts {
			// The speaker is on one of the hosts.
			if got, err := metric(ctx, h.NS, "heddle_router_bgp_routes_learned", ""); err == nil && got == float64(n) {
				return true, nil
			}
		}
		return false, nil
	})
}

// withdraw has BIRD withdraw the last destination while datagrams flow there, and returns how long
// they still came.
func (r *bgpRouting) withdraw(ctx context.Context) (time.Duration, error) {
	last := r.destinations[len(r.destinations)-1].String()
	there := &lab.Workload{NS: r.peer.NS, Port: &ports.Port{FixedIPs: []ports.IP{{IPAddress: last}}}}
	udp, err := lab.StartUDPStream(ctx, r.client, there, streamPort)
	if err != nil {
		return 0, err
	}
	defer udp.Close()
	if _, err := udp.FlowsAfter(ctx, time.Now()); err != nil {
		return 0, fmt.Errorf("datagrams to %s: %w", last, err)
	}
	begun := time.Now()
	if _, err := r.bird.Do(ctx, "disable one"); err != nil {
		return 0, err
	}
	return udp.StopsAfter(ctx, begun)
}

// reachAll sends datagrams to destinations until one has arrived at each that is probed, and
// returns when the last of these did.
func (r *bgpRouting) reachAll(ctx context.Context) (time.Time, error) {
	in, err := listen(r.peer.NS, fmt.Sprintf(":%d", streamPort))
	if err != nil {
		return time.Time{}, err
	}
	defer in.Close()
	out, err := listen(r.client.NS, ":0")
	if err != nil {
		return time.Time{}, err
	}
	defer out.Close()
	var a arrivals
	go a.receive(in)
	for {
		missing := 0
		for i := range probed {
			if a.has(i) {
				continue
			}
			missing++
			to := r.destinations[i*(len(r.destinations)-1)/(probed-1)]
			// A refusal is as good as silence.
			_, _ = out.WriteTo(binary.BigEndian.AppendUint32(nil, uint32(i)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, streamPort)))
		}
		if missing == 0 {
			return a.latest(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d destinations are not reached", missing, probed)
		case <-time.After(probePause):
		}
	}
}

// listen opens a UDP socket in a namespace.
func listen(ns *netlab.Namespace, at string) (c net.PacketConn, err error) {
	return c, ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", at)
		return err
	})
}

// arrivals holds which probes have arrived.
type arrivals struct {
	mu   sync.Mutex
	seen [probed]bool
	last time.Time // that one arrived for the first time
}

// receive notes probes until the socket is closed.
func (a *arrivals) receive(in net.PacketConn) {
	buf := make([]byte, 64)
	for {
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			return
		}
		if i := binary.BigEndian.Uint32(buf); n == 4 && i < probed {
			a.note(int(i))
		}
	}
}

func (a *arrivals) note(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.seen[i] {
		a.seen[i], a.last = true, time.Now()
	}
}

func (a *arrivals) has(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[i]
}

func (a *arrivals) latest() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

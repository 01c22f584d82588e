package overlay

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// tally counts what flows in the kernel have carried, for each tunnel or network. Flows are read in
// rounds: what a flow has carried after the last round before it goes is not counted.
type tally[K comparable] struct {
	mu    sync.Mutex
	count map[K]flow.Usage
}

// add counts what a flow has carried since it was read last. The zero key stands for none.
func (c *tally[K]) add(key K, more traffic) {
	var none K
	if key == none || more == (traffic{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[K]flow.Usage{}
	}
	u := c.count[key]
	c.count[key] = flow.Usage{Packets: u.Packets + more.packets, Bytes: u.Bytes + more.bytes}
}

func (c *tally[K]) of(key K) flow.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[key]
}

func (c *tally[K]) all() map[K]flow.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

// keep forgets all but the keys of a set.
func (c *tally[K]) keep(keys map[K]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.count, func(key K, _ flow.Usage) bool { return !keys[key] })
}

// tunnelState is the way to another host as it is now.
type tunnelState struct {
	remote netip.Addr
	number datapath.Tunnel // 0: there never was a way
	up     bool            // there is a route, and its neighbour answers
}

// states returns the state of the ways to all other hosts, in the order of their addresses.
func (u *underlay) states() []tunnelState {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]tunnelState, 0, len(u.wanted))
	for remote := range u.wanted {
		w, found := u.tunnels[remote]
		p := u.problem[remote]
		all = append(all, tunnelState{remote, w.number, found && (p == nil || time.Since(p.since) <= noWayAfter)})
	}
	slices.SortFunc(all, func(a, b tunnelState) int { return a.remote.Compare(b.remote) })
	return all
}

// tunnelReport is a tunnel with its way.
type tunnelReport struct {
	up bool // see tunnelState
	flow.TunnelReport
}

// tunnelReports returns the state of the tunnels to all other hosts, in the order of their
// addresses.
func (a *Agent) tunnelReports() []tunnelReport {
	r, now := records.Over(a.replica.Snapshot()), time.Now()
	var all []tunnelReport
	for _, t := range a.underlay.states() {
		id, _ := a.engine.net.hostAt(t.remote)
		h, err := schema.Hosts.Get(r, id)
		if err != nil {
			continue // it is being removed
		}
		report := tunnelReport{t.up, flow.TunnelReport{Host: id, Name: h.Name, Address: t.remote}}
		report.In, report.Out = a.engine.hellos.directions(id, now)
		report.Out.Usage = a.engine.sent.of(t.number)
		all = append(all, report)
	}
	return all
}

// deadReported bounds the dead tunnels in a report on a host.
const deadReported = 10

// deadTunnels returns the first of the tunnels that are dead in a direction.
func deadTunnels(all []tunnelReport) (dead []flow.TunnelReport) {
	for _, t := range all {
		if (t.In.State == flow.TunnelDead || t.Out.State == flow.TunnelDead) && len(dead) < deadReported {
			dead = append(dead, t.TunnelReport)
		}
	}
	return dead
}

// networksReported bounds the networks in a report on a host.
const networksReported = 1000

// trafficReport returns all tunnels, and the networks whose ports here have sent most.
func (a *Agent) trafficReport(tunnels []tunnelReport) *flow.TrafficReport {
	t := &flow.TrafficReport{Tunnels: []flow.TunnelReport{}, Networks: []flow.NetworkReport{}, Ports: a.engine.busyPorts()}
	for i := range tunnels {
		t.Tunnels = append(t.Tunnels, tunnels[i].TunnelReport)
	}
	for id, usage := range a.engine.carried.all() {
		t.Networks = append(t.Networks, flow.NetworkReport{ID: id, Usage: usage})
	}
	slices.SortFunc(t.Networks, func(a, b flow.NetworkReport) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.ID, b.ID))
	})
	t.Networks = t.Networks[:min(len(t.Networks), networksReported)]
	return t
}

// foldTunnels replaces the tunnels beyond those that have series of their own by one, named others:
// it has what they carry in all, and is up and alive if each of them is.
func foldTunnels(all []tunnelReport) []tunnelReport {
	if len(all) <= telemetry.MaxSeries {
		return all
	}
	rest := all[telemetry.MaxSeries-1:]
	sum := rest[0]
	sum.TunnelReport.Name, sum.Address = "others", netip.Addr{}
	for _, t := range rest[1:] {
		sum.up = sum.up && t.up
		sum.In, sum.Out = together(sum.In, t.In), together(sum.Out, t.Out)
	}
	return append(slices.Clone(all[:telemetry.MaxSeries-1]), sum)
}

// together returns what two tunnels carry in a direction; dead if one is, with the greater loss.
func together(a, b flow.TunnelDirection) flow.TunnelDirection {
	worse := func(s flow.TunnelState) int {
		return slices.Index([]flow.TunnelState{flow.TunnelUnknown, flow.TunnelAlive, flow.TunnelDead}, s)
	}
	if worse(b.State) > worse(a.State) {
		a.State = b.State
	}
	a.Lost = max(a.Lost, b.Lost)
	a.Packets += b.Packets
	a.Bytes += b.Bytes
	return a
}

// tunnelFigures returns the metrics of the tunnels to other hosts, by the names of these.
func tunnelFigures(all []tunnelReport) (f []telemetry.Value) {
	for _, t := range foldTunnels(all) {
		name, address := t.Name, ""
		if t.Address.IsValid() {
			address = t.Address.String()
		}
		f = append(f,
			telemetry.Flag("heddle_overlay_tunnel_up", "1 while there is a way to a tunnel address of another host: a route, whose next hop answers.", t.up).
				With("host", name).With("address", address),
			telemetry.Counter.Of("heddle_overlay_tunnel_out_bytes_total", "Bytes of frames that flows in the kernel have sent to another host, read every ten seconds.", int(t.Out.Bytes)).
				With("host", name).With("address", address),
			telemetry.Counter.Of("heddle_overlay_tunnel_out_packets_total", "Frames that flows in the kernel have sent to another host, before segmentation.", int(t.Out.Packets)).
				With("host", name).With("address", address),
			telemetry.Counter.Of("heddle_overlay_tunnel_in_bytes_total", "Bytes of frames that flows of another host have sent here, as it counts them.", int(t.In.Bytes)).
				With("host", name).With("address", address),
			telemetry.Counter.Of("heddle_overlay_tunnel_in_packets_total", "Frames that flows of another host have sent here, as it counts them.", int(t.In.Packets)).
				With("host", name).With("address", address))
		if t.In.State != flow.TunnelUnknown {
			f = append(f,
				telemetry.Flag("heddle_overlay_tunnel_in_alive", "1 while frames arrive from another host, 0 if none do though its agent is alive; without a value while that is not known.", t.In.State == flow.TunnelAlive).
					With("host", name).With("address", address),
				telemetry.Gauge.Of("heddle_overlay_tunnel_in_lost", "Hellos, of the last 32 that another host has sent, that did not arrive.", t.In.Lost).
					With("host", name).With("address", address))
		}
		if t.Out.State != flow.TunnelUnknown {
			f = append(f, telemetry.Flag("heddle_overlay_tunnel_out_alive", "1 while frames arrive at another host, as its agent says, else 0; without a value while that is not known.", t.Out.State == flow.TunnelAlive).
				With("host", name).With("address", address))
		}
	}
	return f
}

package overlay

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/telemetry"
)

// tunnelBytes counts the bytes of the frames that flows in the kernel have sent by each tunnel.
// They are read with all flows, in rounds: what a flow has sent after the last round before it
// goes is not counted.
type tunnelBytes struct {
	mu   sync.Mutex
	sent map[datapath.Tunnel]uint64
}

// add counts bytes that a flow has sent since it was read last. Tunnel 0 is none.
func (b *tunnelBytes) add(t datapath.Tunnel, bytes uint64) {
	if t == 0 || bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == nil {
		b.sent = map[datapath.Tunnel]uint64{}
	}
	b.sent[t] += bytes
}

func (b *tunnelBytes) of(t datapath.Tunnel) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[t]
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

// tunnelFigures returns the metrics of the tunnels to other hosts, by the names of these.
func (a *Agent) tunnelFigures() (f []telemetry.Value) {
	r := records.Over(a.replica.Snapshot())
	for _, t := range a.underlay.states() {
		id, _ := a.engine.net.hostAt(t.remote)
		h, err := schema.Hosts.Get(r, id)
		if err != nil {
			continue // it is being removed
		}
		name, address := h.Name, t.remote.String()
		f = append(f,
			telemetry.Flag("heddle_overlay_tunnel_up", "1 while there is a way to a tunnel address of another host: a route, whose next hop answers.", t.up).
				With("host", name).With("address", address),
			telemetry.Counter.Of("heddle_overlay_tunnel_out_bytes_total", "Bytes of frames that flows in the kernel have sent to another host, read every ten seconds.", int(a.engine.sent.of(t.number))).
				With("host", name).With("address", address))
	}
	return f
}

package overlay

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"heddle/internal/overlay/datapath"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// metering counts what metering labels ask for, and what passes VIPs of load balancers. Packets
// that the agent forwards are counted as they pass; those of cached flows by the flows' own
// counters in the kernel, which are read when a flow is looked at, and when it goes. While nothing
// is counted, that costs nothing.
type metering struct {
	dp     *datapath.Datapath
	active atomic.Bool // there are flows that are counted

	mu     sync.Mutex
	labels map[string]bool // and VIPs, that there are
	totals map[flow.Meter]*traffic
	opened map[flow.Meter]uint64   // connections by VIPs to members
	flows  map[uint64]*meteredFlow // by cookie
}

// ethernetLen is the length of the header before a frame's IP packet, bytes. Tags do not come to
// routers.
const ethernetLen = 14

// traffic is packets and their bytes, without the Ethernet header.
type traffic struct{ packets, bytes uint64 }

// meteredFlow is a flow that is counted.
type meteredFlow struct {
	key     datapath.Key
	meters  []flow.Meter
	counted traffic // frames, as the kernel counts them
}

func newMetering(dp *datapath.Datapath) *metering {
	return &metering{dp: dp, labels: map[string]bool{}, totals: map[flow.Meter]*traffic{}, opened: map[flow.Meter]uint64{}, flows: map[uint64]*meteredFlow{}}
}

func compareMeters(a, b flow.Meter) int {
	direction := func(m flow.Meter) int {
		if m.Reply {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Vip, b.Vip), cmp.Compare(a.Member, b.Member),
		cmp.Compare(direction(a), direction(b)))
}

// setLabels replaces the labels of an owner. The counters of a label end with it.
func (m *metering) setLabels(before, after []topology.Meter) {
	if len(before)+len(after) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range before {
		delete(m.labels, before[i].ID)
	}
	for i := range after {
		m.labels[after[i].ID] = true
	}
	m.forgetTotals()
}

// setVips replaces the VIPs of an owner. Their counters end with them.
func (m *metering) setVips(before, after []topology.Vip) {
	if len(before)+len(after) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range before {
		delete(m.labels, before[i].ID)
	}
	for i := range after {
		m.labels[after[i].ID] = true
	}
	m.forgetTotals()
}

// forgetTotals ends the counters of labels and VIPs that are gone. It needs the lock.
func (m *metering) forgetTotals() {
	maps.DeleteFunc(m.totals, func(k flow.Meter, _ *traffic) bool { return !m.counts(k) })
	maps.DeleteFunc(m.opened, func(k flow.Meter, _ uint64) bool { return !m.counts(k) })
}

// counts reports whether the label or the VIP of a meter is there. It needs the lock.
func (m *metering) counts(k flow.Meter) bool { return m.labels[cmp.Or(k.Label, k.Vip)] }

// open counts connections that a packet has opened by VIPs.
func (m *metering) open(meters []flow.Meter) {
	if len(meters) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range meters {
		if m.counts(k) {
			m.opened[k]++
		}
	}
}

// pass counts a packet that the agent forwards, as long as it came in.
func (m *metering) pass(meters []flow.Meter, length int) {
	if len(meters) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(meters, traffic{1, uint64(length)})
}

// add adds frames to the totals. It needs the lock.
func (m *metering) add(meters []flow.Meter, t traffic) {
	if t.packets == 0 {
		return
	}
	for _, k := range meters {
		if !m.counts(k) {
			continue
		}
		total := m.totals[k]
		if total == nil {
			total = &traffic{}
			m.totals[k] = total
		}
		total.packets += t.packets
		total.bytes += t.bytes - t.packets*ethernetLen
	}
}

// enter begins to count a flow in the kernel, beyond what it has counted already.
func (m *metering) enter(f *installed, counted traffic) {
	if len(f.meters) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flows[f.cookie] = &meteredFlow{f.key, f.meters, counted}
	m.active.Store(true)
}

// read counts what has passed by a flow since it was read last.
func (m *metering) read(cookie uint64, now traffic) {
	if !m.active.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(cookie, now)
}

func (m *metering) settle(cookie uint64, now traffic) {
	f := m.flows[cookie]
	if f == nil || now.packets < f.counted.packets {
		return
	}
	m.add(f.meters, traffic{now.packets - f.counted.packets, now.bytes - f.counted.bytes})
	f.counted = now
}

// gone is read for a flow that is gone.
func (m *metering) gone(cookie, packets, bytes uint64) {
	if !m.active.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(cookie, traffic{packets, bytes})
	m.forget(cookie)
}

func (m *metering) forget(cookie uint64) {
	delete(m.flows, cookie)
	m.active.Store(len(m.flows) > 0)
}

// keep forgets the flows that the kernel does not have any more.
func (m *metering) keep(there map[uint64]struct{}, known func(cookie uint64) bool) {
	if !m.active.Load() {
		return
	}
	m.mu.Lock()
	gone := slices.Collect(maps.Keys(m.flows))
	m.mu.Unlock()
	gone = slices.DeleteFunc(gone, func(cookie uint64) bool { // without the lock, which known may want before its own
		_, found := there[cookie]
		return found || known(cookie)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cookie := range gone {
		m.forget(cookie)
	}
}

// readAll reads all flows that are counted.
func (m *metering) readAll() {
	m.mu.Lock()
	keys := make([]datapath.Key, 0, len(m.flows))
	for _, flow := range m.flows {
		keys = append(keys, flow.key)
	}
	m.mu.Unlock()
	for _, key := range keys {
		if f, found, err := m.dp.Lookup(key); err == nil && found {
			m.read(f.Cookie, traffic{f.Packets, f.Bytes})
		}
	}
}

// vips returns what has passed each VIP, by its id, without the connections that there are now.
func (m *metering) vips() map[string]*topology.VipTraffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*topology.VipTraffic{}
	of := func(id string) *topology.VipTraffic {
		if all[id] == nil {
			all[id] = &topology.VipTraffic{VipID: id}
		}
		return all[id]
	}
	for k, n := range m.opened {
		of(k.Vip).Total += n
	}
	for k, t := range m.totals {
		switch {
		case k.Vip == "":
		case k.Reply:
			of(k.Vip).Out += t.bytes
		default:
			of(k.Vip).In += t.bytes
		}
	}
	return all
}

// figures reads all flows that are counted, and returns the totals.
func (m *metering) figures() (f []telemetry.Value) {
	m.readAll()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(m.totals), compareMeters) {
		total := m.totals[k]
		if k.Vip != "" {
			direction := "in"
			if k.Reply {
				direction = "out"
			}
			f = append(f, telemetry.Counter.Of("heddle_balancer_bytes_total", "Bytes of IP packets from clients to a member of a pool by a VIP (in), and back (out).", int(total.bytes)).
				With("vip", k.Vip).With("member", k.Member).With("direction", direction))
			continue
		}
		f = append(f,
			telemetry.Counter.Of("heddle_metering_bytes_total", "Bytes of IP packets that a metering label counts, of a project's routers.", int(total.bytes)).
				With("label", k.Label).With("project", k.Project),
			telemetry.Counter.Of("heddle_metering_packets_total", "Packets that a metering label counts, of a project's routers.", int(total.packets)).
				With("label", k.Label).With("project", k.Project))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.opened), compareMeters) {
		f = append(f, telemetry.Counter.Of("heddle_balancer_connections_total", "Connections that this host has let in by a VIP, to a member of its pool.", int(m.opened[k])).
			With("vip", k.Vip).With("member", k.Member))
	}
	return f
}

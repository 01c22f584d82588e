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

// metering counts what metering labels ask for. Packets that the agent forwards are counted as they
// pass; those of cached flows by the flows' own counters in the kernel, which are read when a flow
// is looked at, and when it goes. While no label counts anything, that costs nothing.
type metering struct {
	dp     *datapath.Datapath
	active atomic.Bool // there are flows that are counted

	mu     sync.Mutex
	labels map[string]bool // that there are
	totals map[flow.Meter]*traffic
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
	return &metering{dp: dp, labels: map[string]bool{}, totals: map[flow.Meter]*traffic{}, flows: map[uint64]*meteredFlow{}}
}

func compareMeters(a, b flow.Meter) int {
	return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Project, b.Project))
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
	maps.DeleteFunc(m.totals, func(k flow.Meter, _ *traffic) bool { return !m.labels[k.Label] })
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
		if !m.labels[k.Label] {
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

// evicted is read for a flow that is gone.
func (m *metering) evicted(cookie, packets, bytes uint64) {
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

// leave reads flows for the last time, before they are removed or others take their place.
func (m *metering) leave(keys ...datapath.Key) {
	if !m.active.Load() {
		return
	}
	for _, key := range keys {
		if f, found, err := m.dp.Lookup(key); err == nil && found {
			m.evicted(f.Cookie, f.Packets, f.Bytes)
		}
	}
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

// figures reads all flows that are counted, and returns the totals.
func (m *metering) figures() (f []telemetry.Value) {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(m.totals), compareMeters) {
		labels := map[string]string{"label": k.Label, "project": k.Project}
		bytes := telemetry.Counter.Of("heddle_metering_bytes_total", "Bytes of IP packets that a metering label counts, of a project's routers.", int(m.totals[k].bytes))
		packets := telemetry.Counter.Of("heddle_metering_packets_total", "Packets that a metering label counts, of a project's routers.", int(m.totals[k].packets))
		bytes.Labels, packets.Labels = labels, labels
		f = append(f, bytes, packets)
	}
	return f
}

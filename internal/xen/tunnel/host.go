package tunnel

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

const (
	// lostAfter bounds the wait for a host that is not known and in the way of others.
	lostAfter = 5 * time.Second
	// failedFor is the pause between a refusal and the next attempt of a step.
	failedFor = 5 * time.Second
	// maxPorts bounds the ports of one transaction: others' changes of the same host wait for it.
	maxPorts = 200
)

// host is a core's state of a host.
type host struct {
	hostInfo
	uuid string

	followed   bool  // its database is
	connection int64 // on which its switch obeyed last

	checked bool // its switch was reached, or found to be out of reach
	known   bool // as star.Member.Known
	seen    bool
	reason  string
	lostAt  time.Time
	snap    *ovs.Snapshot // that bridges, ends and ports are read from
	bridges map[string]string
	ends    map[string]map[ovsdb.UUID]end // of ours, by network and port
	ports   map[ovsdb.UUID]string         // network, of our ports

	hub     map[string]bool    // networks where the last job gives it more than one leg, until its outcome is known
	failed  map[string]failure // by network
	waiting map[string]bool    // networks to consider again once it is idle
	flush   map[string]bool    // networks whose bridges are to forget learnt addresses
	steps   []star.Step        // to be done next
	job     job                // in progress, while it is busy
	busy    bool
}

// failure is a refusal of a step, with how often in a row, and until when it is not tried again.
type failure struct {
	text  string
	times int
	until time.Time
}

func newHost(uuid string) *host {
	return &host{uuid: uuid, bridges: map[string]string{}, ends: map[string]map[ovsdb.UUID]end{}, ports: map[ovsdb.UUID]string{},
		hub: map[string]bool{}, failed: map[string]failure{}, waiting: map[string]bool{}, flush: map[string]bool{}}
}

// obeys notes that the switch obeys on a connection and follows its database.
func (h *host) obeys(connection int64) {
	h.checked, h.known, h.seen, h.reason, h.connection = true, true, true, "", connection
	if !h.busy {
		clear(h.hub)
	}
}

// take reads what differs in a snapshot, and returns the networks that this concerns and the pairs
// of hosts whose BFD sessions may differ.
func (h *host) take(snap *ovs.Snapshot) (networks map[string]bool, pairs map[star.Pair]bool) {
	networks, pairs = map[string]bool{}, map[star.Pair]bool{}
	before := h.snap
	if before == nil {
		before = &ovs.Snapshot{}
	}
	h.snap = snap
	changed := map[ovsdb.UUID]bool{}
	for _, id := range ovsdb.Changed(before.Ports, snap.Ports) {
		changed[id] = true
	}
	for _, id := range ovsdb.Changed(before.Interfaces, snap.Interfaces) {
		if p := snap.PortOf(id); p != nil {
			changed[p.UUID] = true
		}
	}
	if ids := ovsdb.Changed(before.Bridges, snap.Bridges); len(ids) > 0 {
		h.takeBridges(snap, networks)
		for _, id := range ids { // ports may have moved from one to another
			for _, b := range []*ovs.Bridge{before.Bridges[id], snap.Bridges[id]} {
				for _, port := range portsOf(b) {
					if h.ports[port] != "" {
						changed[port] = true
					}
				}
			}
		}
	}
	for id := range changed {
		h.takePort(snap, id, networks, pairs)
	}
	return networks, pairs
}

// takeBridges reads which bridges there are, and adds the networks whose bridge has changed.
func (h *host) takeBridges(snap *ovs.Snapshot, networks map[string]bool) {
	after := bridgesByNetwork(snap)
	for network, bridge := range after {
		if h.bridges[network] != bridge {
			networks[network] = true
		}
	}
	for network := range h.bridges {
		if after[network] == "" {
			networks[network] = true
		}
	}
	h.bridges = after
}

// portsOf returns a bridge's ports, none of no bridge.
func portsOf(b *ovs.Bridge) []ovsdb.UUID {
	if b == nil {
		return nil
	}
	return b.Ports
}

// takePort reads a port.
func (h *host) takePort(snap *ovs.Snapshot, id ovsdb.UUID, networks map[string]bool, pairs map[star.Pair]bool) {
	before, had := h.ends[h.ports[id]][id]
	if had {
		delete(h.ends[before.network], id)
		if len(h.ends[before.network]) == 0 {
			delete(h.ends, before.network)
		}
		delete(h.ports, id)
	}
	after, has := endOf(snap, snap.Ports[id])
	if has {
		if h.ends[after.network] == nil {
			h.ends[after.network] = map[ovsdb.UUID]end{}
		}
		h.ends[after.network][id] = after
		h.ports[id] = after.network
	}
	for _, e := range []end{before, after} {
		if e.network != "" && before.BFD || after.BFD {
			pairs[star.PairOf(h.uuid, e.Peer)] = true
		}
	}
	if had && before.Found != after.Found {
		networks[before.network] = true
	}
	if has && before.Found != after.Found {
		networks[after.network] = true
	}
}

// legs returns the ends of a network's legs on the host, in the order of their names.
func (h *host) legs(network string) []star.Found {
	var legs []star.Found
	for _, e := range h.ends[network] {
		legs = append(legs, e.Found)
	}
	slices.SortFunc(legs, func(a, b star.Found) int { return cmp.Compare(a.Name, b.Name) })
	return legs
}

// end returns the end of a network's leg to a peer.
func (h *host) end(network, peer string) (end, bool) {
	if h == nil {
		return end{}, false
	}
	for _, e := range h.ends[network] {
		if e.Peer == peer {
			return e, true
		}
	}
	return end{}, false
}

// describe fills in what is known of a network on the host's switch.
func (h *host) describe(m *star.Member, network string, now time.Time) {
	m.Live, m.Enabled, m.OpenVSwitch = h.live, h.enabled, h.openVSwitch
	m.Known, m.Seen, m.Reason, m.Busy, m.Hub = h.known, h.seen, h.reason, h.busy, h.hub[network]
	m.Lost = !h.known && now.Sub(h.lostAt) >= lostAfter
	m.Bridge, m.Legs = h.bridges[network], h.legs(network)
	if f, ok := h.failed[network]; ok {
		m.Refused, m.Unwilling = f.text, f.times > 1
		m.Busy = m.Busy || now.Before(f.until)
	}
}

// relents reports whether the host has refused a step, and a new attempt is due.
func (h *host) relents(network string, now time.Time) bool {
	f, refused := h.failed[network]
	return refused && h.known && !now.Before(f.until)
}

// postpone has the networks of the host's steps considered again once it is idle.
func (h *host) postpone() {
	for _, st := range h.steps {
		h.waiting[st.Network] = true
	}
	h.steps = nil
}

// next returns the job that the host should do now; the other steps wait.
func (h *host) next() job {
	j := job{connection: h.connection}
	ports := 0
	for _, st := range h.steps {
		if ports > 0 && ports+len(st.Put) > maxPorts {
			break
		}
		j.steps = append(j.steps, st)
		ports += len(st.Put)
		if has := h.legs(st.Network); len(has) > 1 || after(has, st) > 1 {
			h.hub[st.Network] = true
		}
	}
	h.postpone()
	for _, network := range slices.Sorted(maps.Keys(h.flush)) {
		if bridge := h.bridges[network]; bridge != "" {
			j.flush = append(j.flush, bridge)
		}
	}
	clear(h.flush)
	return j
}

// after returns how many legs there are after a step.
func after(has []star.Found, st star.Step) int {
	n := len(has) - len(st.Delete)
	for _, l := range st.Put {
		if !slices.ContainsFunc(has, func(f star.Found) bool { return f.Name == l.Name }) {
			n++
		}
	}
	return n
}

package overlay

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// engine decides packets: it holds the virtual network as last heard of, the connections, and what it knows of the flows
// in the kernel.
//
//	missed packet ─▶ simulate, read epochs ─▶ remember, tell other hosts ─▶ install ─▶ send
//	                     (world)                   (state)                    (kernel)
//
// Locks. world is read by everyone who simulates and written by who applies a change; an epoch is read under the same
// read lock as the simulation, and bumped under the write lock, so a flow never carries the epoch of a newer world than
// it was decided in. state guards what is remembered of flows. Either is held for microseconds; world is taken before
// state where both are.
type engine struct {
	host  string // id of this host
	dp    *datapath.Datapath
	under *underlay
	conns *flowstate.Table
	tell  reporter
	keys  *hostKeys

	answers *answers

	log   *slog.Logger
	clock func() time.Duration // machine's monotonic clock

	world    sync.RWMutex
	topology *simulate.World
	ports    map[datapath.Port]*localPort
	portByID map[string]*localPort
	bySlot   map[datapath.Slot][]string // ids in portByID
	hosts    map[netip.Addr]string      // tunnel address → host, of other hosts in a zone of this one
	tunnelIP map[string]netip.Addr      // and back
	revision uint64                     // version of the store's snapshot, as far as applied
	adopting bool                       // the first snapshot is being applied
	heard    time.Duration              // the kernel has told of all packets until then

	state sync.Mutex
	flows *flowIndex
	seen  *sightings

	count counters
}

// reporter tells what this host has seen, and that it has seen it no more.
type reporter interface {
	Seen(*sighting)
	Unseen(*sighting)
}

// localPort is a port of this host whose interface is attached.
type localPort struct {
	id     string
	number datapath.Port
	mtu    int // of its interface, bytes
}

// Times of midonet-simulation §1 as Heddle has them.
const (
	flowIdle  = 60 * time.Second // a flow goes when it has not been used for so long
	errorKept = 5 * time.Second  // a flow of an error goes after so long, used or not
)

// liveState is what the simulator may ask of the past.
type liveState struct{ e *engine }

// Conn judges as of the time until which the kernel has told of packets: a connection whose packets it has yet to tell
// of is not over.
func (s liveState) Conn(key flow.ConnKey) bool { return s.e.conns.Has(key, s.e.heard) }

func (s liveState) Frag(key flow.FragKey) ([2]uint16, bool) { return s.e.conns.Frag(key, s.e.clock()) }

// decider simulates for one goroutine and makes plans of decisions.
type decider struct {
	e    *engine
	sim  *simulate.Simulator
	plan plan
	room []byte
}

// plan is what to do about a packet: the decision, and the flow that would be cached for it.
type plan struct {
	decision *flow.Decision
	outputs  []datapath.Output // one for each of the decision's outputs that can be reached now
	hosts    []string          // other hosts that get the packet
	lost     int               // outputs that cannot be reached now
	cached   bool
	flow     datapath.Flow // its tags were read with the decision
	brief    bool          // cached for errorKept only
}

func (e *engine) newDecider() *decider {
	return &decider{e: e, sim: simulate.NewSimulator(e.topology)}
}

// decide simulates a frame of the port. key is that of the frame if keyed. The result is good until the next call.
func (d *decider) decide(port *localPort, key datapath.Key, keyed bool, in simulate.Input) *plan {
	e, p := d.e, &d.plan
	in.PortID, in.State = port.id, liveState{e}
	*p = plan{outputs: p.outputs[:0], hosts: p.hosts[:0], flow: datapath.Flow{Tags: p.flow.Tags[:0]}}
	e.world.RLock()
	defer e.world.RUnlock()
	p.decision = d.sim.Run(in)
	for i := range p.decision.Outputs {
		o := &p.decision.Outputs[i]
		out, ok := e.reach(o)
		if !ok {
			p.lost++
			continue
		}
		p.outputs = append(p.outputs, out)
		if o.HostID != e.host && !slices.Contains(p.hosts, o.HostID) {
			p.hosts = append(p.hosts, o.HostID)
		}
	}
	p.cached = keyed && p.cacheable()
	if p.cached {
		d.describe(key)
	}
	return p
}

// reach turns an output into where the datapath sends: a port here, or a port behind a tunnel.
func (e *engine) reach(o *flow.Output) (datapath.Output, bool) {
	if o.HostID == e.host {
		if p := e.portByID[o.PortID]; p != nil {
			return datapath.Output{Port: p.number}, true
		}
		return datapath.Output{}, false
	}
	t, ok := e.under.Tunnel(o.RemoteIP)
	return datapath.Output{Tunnel: t, TunnelKey: o.TunnelKey}, ok
}

// cacheable: one flow has one output or drops. What goes to many, and what cannot be reached of several, is done packet
// by packet.
func (p *plan) cacheable() bool {
	d := p.decision
	if !d.Cacheable || len(p.outputs) > 1 || p.lost > 0 && len(p.outputs) > 0 {
		return false
	}
	// Without an output a Forward stands for an interface or a tunnel that is not there: an error for as long.
	p.brief = d.Verdict == flow.ErrorDrop || d.Verdict == flow.Forward && len(p.outputs) == 0
	return true
}

// describe fills in the flow. A flow of an error also carries the tag that every change moves.
func (d *decider) describe(key datapath.Key) {
	p := &d.plan
	p.flow.Key = key
	if len(p.outputs) == 1 {
		p.flow.Out = p.outputs[0]
	}
	var slots [datapath.MaxTags]datapath.Slot
	n := 0
	if p.brief || len(p.decision.Touched) > len(slots) {
		slots[0], n = datapath.SlotAll, 1
	}
	if len(p.decision.Touched) <= len(slots)-n {
		for _, id := range p.decision.Touched {
			slots[n] = datapath.SlotOf(id)
			n++
		}
	}
	p.flow.Tags = d.e.dp.AppendTags(p.flow.Tags, slots[:n]...)
}

// apply changes the topology and stops the flows of the ports that it affects.
func (e *engine) apply(change func(*simulate.World) (affected []string)) {
	e.world.Lock()
	defer e.world.Unlock()
	e.bump(change(e.topology))
}

// bump needs the world's write lock.
func (e *engine) bump(affected []string) {
	if e.adopting {
		return
	}
	for _, id := range affected {
		slot := datapath.SlotOf(id)
		e.dp.Bump(slot)
		// A slot may be another port's too. Flows find out by their next packet; whom the kernel answers must be said again,
		// or they would have to ask an agent that may not be there.
		for _, local := range e.bySlot[slot] {
			e.answers.decideAgain(local)
		}
	}
	if len(affected) > 0 {
		e.dp.Bump(datapath.SlotAll)
		e.count.invalidations.Add(uint64(len(affected)))
	}
}

// attached enters a port whose interface the datapath serves from now on.
func (e *engine) attached(p localPort) {
	e.world.Lock()
	defer e.world.Unlock()
	if old := e.portByID[p.id]; old != nil {
		delete(e.ports, old.number)
	} else {
		slot := datapath.SlotOf(p.id)
		e.bySlot[slot] = append(e.bySlot[slot], p.id)
	}
	e.ports[p.number], e.portByID[p.id] = &p, &p
	e.dp.Bump(datapath.SlotAll)
	e.answers.decideAgain(p.id)
}

// detached takes a port out.
func (e *engine) detached(id string) {
	e.world.Lock()
	if old := e.portByID[id]; old != nil {
		delete(e.ports, old.number)
		delete(e.portByID, id)
		slot := datapath.SlotOf(id)
		e.bySlot[slot] = slices.DeleteFunc(e.bySlot[slot], func(other string) bool { return other == id })
		if len(e.bySlot[slot]) == 0 {
			delete(e.bySlot, slot)
		}
		e.answers.decideAgain(id)
	}
	e.world.Unlock()
	e.state.Lock()
	gone := e.seen.takePort(id)
	e.state.Unlock()
	e.unlearn(gone)
}

func (e *engine) port(n datapath.Port) *localPort {
	e.world.RLock()
	defer e.world.RUnlock()
	return e.ports[n]
}

// setHosts says which host has which tunnel address.
func (e *engine) setHosts(hosts map[netip.Addr]string) {
	e.world.Lock()
	defer e.world.Unlock()
	e.hosts = hosts
	e.tunnelIP = make(map[string]netip.Addr, len(hosts))
	for ip, host := range hosts {
		e.tunnelIP[host] = ip
	}
}

// tunnelTo finds the tunnel to a host.
func (e *engine) tunnelTo(host string) (datapath.Tunnel, bool) {
	e.world.RLock()
	ip, ok := e.tunnelIP[host]
	e.world.RUnlock()
	if !ok {
		return 0, false
	}
	return e.under.Tunnel(ip)
}

// learn enters what was seen here, at once here and by the store elsewhere.
func (e *engine) learn(s *sighting) {
	e.world.Lock()
	version := e.revision + 1
	if s.mac != nil {
		e.bump(e.topology.LearnMAC(*s.mac, version))
	} else {
		e.topology.LearnNeighbour(*s.ip, version)
	}
	e.world.Unlock()
	e.tell.Seen(s)
}

// unlearn takes back what was seen here.
func (e *engine) unlearn(gone []*sighting) {
	for _, s := range gone {
		e.world.Lock()
		if s.mac != nil {
			e.bump(e.topology.ForgetMAC(*s.mac))
		} else {
			e.topology.ForgetNeighbour(*s.ip)
		}
		e.world.Unlock()
		e.tell.Unseen(s)
	}
}

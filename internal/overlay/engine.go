package overlay

import (
	"log/slog"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// engine decides packets and keeps what their flows rest on.
//
//	missed packet ─▶ simulate, read epochs ─▶ remember, send state ─▶ install ─▶ send
//	                  (virtualNetwork)           (memory, conns)      (datapath)
//
// The locks of net and memory are held for microseconds; that of net is taken first.
type engine struct {
	host    string // id of this host
	dp      *datapath.Datapath
	net     *virtualNetwork
	memory  *memory
	conns   *flowstate.Table
	under   *underlay
	keys    *hostKeys
	answers *answers
	reports *reporter
	log     *slog.Logger
	clock   func() time.Duration // machine's monotonic clock
	count   counters
}

func newEngine(dp *datapath.Datapath, conns *flowstate.Table, keys *hostKeys, under *underlay, reports *reporter, log *slog.Logger) *engine {
	e := &engine{host: keys.host, dp: dp, conns: conns, keys: keys, under: under, reports: reports, log: log, clock: monotonic(), answers: newAnswers(dp, log)}
	e.memory = &memory{flows: newFlowIndex(uint64(e.clock())), seen: newSightings(e.host)}
	e.net = &virtualNetwork{dp: dp, answers: e.answers, bumped: &e.count.invalidations, usesRead: e.clock(),
		world: simulate.NewWorld(simulate.Options{NeighbourChanged: e.answers.neighbourChanged}),
		ports: map[datapath.Port]*localPort{}, portByID: map[string]*localPort{}, bySlot: map[datapath.Slot][]string{}}
	e.answers.net = e.net
	return e
}

// Times of midonet-simulation §1 as Heddle has them.
const (
	flowIdle  = 60 * time.Second // a flow goes when it has not been used for so long
	errorKept = 5 * time.Second  // a flow of an error goes after so long, used or not
)

// liveState is the State of simulations by this host.
type liveState struct{ e *engine }

// Conn judges as of the time up to which uses have been read from the kernel: a connection in use
// has not expired because its last uses are not read yet.
func (s liveState) Conn(key flow.ConnKey) bool { return s.e.conns.Has(key, s.e.net.usesRead) }

func (s liveState) Frag(key flow.FragKey) ([2]uint16, bool) { return s.e.conns.Frag(key, s.e.clock()) }

// decider simulates for one goroutine and makes plans of decisions.
type decider struct {
	e    *engine
	sim  *simulate.Simulator
	plan plan
	room []byte
}

// plan is a decision with what follows from it: outputs, and the flow to cache.
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
	return &decider{e: e, sim: simulate.NewSimulator(e.net.world)}
}

// decide simulates a frame of the port with its key, if keyed. The next call overwrites the result.
func (d *decider) decide(port *localPort, key datapath.Key, keyed bool, in simulate.Input) *plan {
	e, p := d.e, &d.plan
	in.PortID, in.State = port.id, liveState{e}
	*p = plan{outputs: p.outputs[:0], hosts: p.hosts[:0], flow: datapath.Flow{Tags: p.flow.Tags[:0]}}
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
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
		if p := e.net.portByID[o.PortID]; p != nil {
			return datapath.Output{Port: p.number}, true
		}
		return datapath.Output{}, false
	}
	t, ok := e.under.Tunnel(o.RemoteIP)
	return datapath.Output{Tunnel: t, TunnelKey: o.TunnelKey}, ok
}

// cacheable reports whether one flow, with one output or none, can stand for the decision. Floods,
// and packets of which some outputs cannot be reached, are decided one by one.
func (p *plan) cacheable() bool {
	d := p.decision
	if !d.Cacheable || len(p.outputs) > 1 || p.lost > 0 && len(p.outputs) > 0 {
		return false
	}
	// A Forward without an output waits for an interface or a tunnel: an error meanwhile.
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
	touched, tags := p.decision.Touched, p.flow.Tags
	if p.brief || len(touched) > datapath.MaxTags {
		tags = d.e.dp.AppendTags(tags, datapath.SlotAll)
	}
	if len(touched) <= datapath.MaxTags-len(tags) {
		for _, id := range touched {
			tags = d.e.dp.AppendTags(tags, datapath.SlotOf(id))
		}
	}
	p.flow.Tags = tags
}

func (e *engine) detached(id string) {
	e.net.detached(id)
	e.unlearn(e.memory.takePort(id))
}

func (e *engine) tunnelTo(host string) (datapath.Tunnel, bool) {
	ip, ok := e.net.addressOf(host)
	if !ok {
		return 0, false
	}
	return e.under.Tunnel(ip)
}

// unlearn removes what was seen here, and its reports.
func (e *engine) unlearn(gone []*sighting) {
	for _, s := range gone {
		e.net.unlearn(s)
		e.reports.unseen(s)
	}
}

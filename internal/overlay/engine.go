package overlay

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/filterlog"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/overlay/natport"
	"heddle/internal/overlay/verdicts"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// engine decides packets and keeps what their flows rest on.
//
//	missed packet ─▶ simulate, read epochs ─▶ remember, send state ─▶ install ─▶ rewrite, send
//	                  (virtualNetwork)         (memory, conns, nats)  (datapath)
//	                      ▲         └─▶ waiting: for a neighbour, or for NAT ports (ports)
//	                      └────────────────┘
//
// The locks of net and memory are held for microseconds; that of net is taken first.
type engine struct {
	host    string // id of this host
	dp      *datapath.Datapath
	net     *virtualNetwork
	memory  *memory
	ports   *natport.Leases
	waiting *waiting
	errors  *portLimit // ICMP errors
	under   *underlay
	keys    *hostKeys
	answers *answers
	rates   *rateLimits
	moves   *handovers
	adverts *advertiser
	reports *reporter
	kept
	observers
	log   *slog.Logger
	clock func() time.Duration // machine's monotonic clock
	seed  uint64               // of the choices of load balancers
	count counters
}

// observers holds what counts, records and copies packets, and watches tunnels; it decides nothing.
type observers struct {
	copied     *portLimit // packets that the agent copies for mirrors
	meters     *metering
	verdicts   *verdicts.Counts
	flowLog    *verdicts.Log
	upcalls    *upcallCounts          // of each port
	sent       tally[datapath.Tunnel] // to other hosts
	carried    tally[string]          // from the ports here of each network, by its id
	hellos     *hellos
	filterLogs *filterlog.Writer // of decisions that logs ask for
	live       *liveFrames
}

// kept holds the state that outlives the agent in tables of the kernel.
type kept struct {
	conns   *flowstate.Table
	nats    *flowstate.Translations
	clients *metadataClients
}

func newEngine(dp *datapath.Datapath, state kept, keys *hostKeys, under *underlay, reports *reporter, log *slog.Logger) *engine {
	e := &engine{host: keys.host, dp: dp, kept: state, keys: keys, under: under, reports: reports, log: log,
		clock: monotonic(), seed: rand.Uint64(), answers: newAnswers(dp, log), waiting: newWaiting(), errors: newPortLimit(errorsAtOnce, errorEvery)}
	e.adverts = newAdvertiser(e)
	e.upcalls = newUpcallCounts(e.clock())
	e.rates = newRateLimits(dp, e.clock, log)
	e.meters, e.copied = newMetering(dp), newPortLimit(copiesAtOnce, copyEvery)
	e.verdicts = verdicts.NewCounts(time.Now(), e.isNetworkPort)
	dp.OnGone(e.gone)
	e.memory = &memory{flows: newFlowIndex(uint64(e.clock())), seen: newSightings(e.host)}
	e.net = &virtualNetwork{dp: dp, answers: e.answers, bumped: &e.count.invalidations, usesRead: e.clock(),
		world: simulate.NewWorld(simulate.Options{NeighbourChanged: e.neighbourChanged, HomeChanged: e.homeChanged,
			AdvertisementChanged: e.adverts.networkChanged}),
		ports: map[datapath.Port]*localPort{}, portByID: map[string]*localPort{}, bySlot: map[datapath.Slot][]string{}}
	e.answers.net = e.net
	keys.senders.mirrors.locate = e.net.world.PortDevice
	e.net.homes = newHomes(e.host, e.net, dp, log)
	e.moves = newHandovers(e)
	return e
}

// homeChanged is called while a change is applied to the world.
func (e *engine) homeChanged(network string, mac packet.MAC) { e.net.homes.homeChanged(network, mac) }

// neighbourChanged is called while a change is applied to the world.
func (e *engine) neighbourChanged(device string, ip netip.Addr) {
	e.answers.neighbourChanged(device, ip)
	e.net.homes.neighbourChanged(device, ip)
	e.waiting.wake(func(w flow.Wait) bool { return w.Device == device && w.Neighbour == ip })
}

// Times of midonet-simulation §1 as Heddle has them.
const (
	flowIdle  = 60 * time.Second // a flow goes when it has not been used for so long
	errorKept = 5 * time.Second  // a flow of an error goes after so long, used or not
)

// liveState is the State of simulations by this host.
type liveState struct {
	e *engine
	// trial: the packet is not sent, so that no NAT port is to be held or leased for it.
	trial bool
}

// Conn judges as of the time up to which uses have been read from the kernel: a connection in use
// has not expired because its last uses are not read yet.
func (s liveState) Conn(key flow.ConnKey) bool { return s.e.conns.Has(key, s.e.net.usesRead) }

func (s liveState) Frag(key flow.FragKey) ([2]uint16, bool) { return s.e.conns.Frag(key, s.e.clock()) }

// decider simulates for one goroutine and makes plans of decisions.
type decider struct {
	e     *engine
	sim   *simulate.Simulator
	trial bool // its packets are not sent
	plan  plan
	// rewrite is that of the plan's flow: the simulator's is good for one decision alone.
	rewrite flow.Rewrite
	room    []byte
}

// plan is a decision with what follows from it: outputs, and the flow to cache.
type plan struct {
	decision   *flow.Decision
	outputs    []datapath.Output // one for each of the decision's outputs that can be reached now
	peers      []peer            // other hosts that have to know of the packet's connection
	lost       int               // outputs that cannot be reached now
	copies     []plannedCopy
	copiesLost int              // copies that cannot be sent now
	limits     []datapath.Limit // of the packet
	cached     bool
	flow       datapath.Flow // its tags were read with the decision
	// entered: the packet was for a VTEP. entry is the flow that unpacks such packets; flow is that
	// of what is inside, if cached.
	entered bool
	entry   datapath.Flow
	brief   bool // cached for errorKept only
	// counts are those of the packets. They are the flow's own.
	counts []verdicts.Key
	logKey verdicts.FlowKey // of the flow in the flow log
}

// peer is a host that state is sent to, by a tunnel or, while that is 0, not yet.
type peer struct {
	host   string
	tunnel datapath.Tunnel
}

func (e *engine) newDecider() *decider {
	return &decider{e: e, sim: simulate.NewSimulator(e.net.world)}
}

// newTrial returns a decider for packets that are not sent.
func (e *engine) newTrial() *decider {
	d := e.newDecider()
	d.trial = true
	return d
}

// decide simulates a frame of the port with its key, if keyed. The next call overwrites the result.
func (d *decider) decide(port *localPort, key datapath.Key, keyed bool, in simulate.Input) *plan {
	e, p := d.e, &d.plan
	in.PortID, in.HostID, in.State = port.id, e.host, liveState{e, d.trial}
	*p = plan{outputs: p.outputs[:0], peers: p.peers[:0], copies: p.copies[:0], limits: p.limits[:0],
		flow: datapath.Flow{Tags: p.flow.Tags[:0], Copies: p.flow.Copies[:0]}, entry: datapath.Flow{Tags: p.entry.Tags[:0]}}
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
		if o.HostID != e.host {
			to := e.peer(o.HostID)
			to.tunnel = cmp.Or(out.Tunnel, to.tunnel)
			p.addPeer(to)
		}
	}
	if len(p.outputs) > 0 && leavesState(p.decision) {
		d.addStateful(port)
	}
	d.addLimits()
	d.addCopies()
	if decap := p.decision.Decap; decap != nil {
		inner := e.inside(decap, in)
		if keyed = keyed && inner.Port != 0; keyed && decap.Cacheable {
			d.describeEntry(key)
		}
		if keyed {
			key, keyed = inner.Key()
		}
	}
	p.cached = keyed && p.cacheable()
	if p.cached {
		d.describe(key)
	}
	return p
}

func (p *plan) addPeer(other peer) {
	if !slices.ContainsFunc(p.peers, func(x peer) bool { return x.host == other.host }) {
		p.peers = append(p.peers, other)
	}
}

// addLimits adds the limits of the translations that the packet goes through.
func (d *decider) addLimits() {
	e, p := d.e, &d.plan
	if len(p.outputs) == 0 {
		return
	}
	for _, l := range p.decision.Limits {
		if number, ok := e.rates.use(l, e.net.world.Limits(l.LimitsID)); ok {
			p.limits = append(p.limits, number)
		}
	}
}

// addStateful adds the hosts by which replies may come in too: those of the ports in stateful port
// groups with the port of entry or an exit, and those that become the home of an exit on a LAN.
func (d *decider) addStateful(port *localPort) {
	e, p := d.e, &d.plan
	add := func(id string) {
		for _, host := range e.net.world.StateHosts(id) {
			if host != e.host {
				p.addPeer(e.peer(host))
			}
		}
	}
	add(port.id)
	for i := range p.decision.Outputs {
		o := &p.decision.Outputs[i]
		add(o.PortID)
		if o.StandbyID != "" && o.StandbyID != e.host {
			p.addPeer(e.peer(o.StandbyID))
		}
	}
	for _, key := range p.decision.NATs {
		if host := e.holder(key); host != "" {
			p.addPeer(e.peer(host))
		}
	}
}

// holder returns the other host whose block the port of a translation is from, or "": the
// connection was moved here, and the block's host must know that the port is in use.
func (e *engine) holder(key flow.NATKey) string {
	if key.Kind != flow.ForwardSNAT {
		return ""
	}
	b, ok := e.nats.Get(key, e.net.usesRead)
	if !ok {
		return ""
	}
	return e.ports.Holder(key.Device, b.Addr, b.Port)
}

// peer returns another host, with the tunnel to it if there is one. It needs the network's lock.
func (e *engine) peer(host string) peer {
	t, _ := e.under.Tunnel(e.net.tunnelIP[host])
	return peer{host, t}
}

// leavesState reports whether hosts have to know of the packet's connection.
func leavesState(d *flow.Decision) bool { return len(d.NewConns)+len(d.NewNATs)+len(d.NATs) > 0 }

// hosts returns the ids of the peers.
func (p *plan) hosts() []string {
	if len(p.peers) == 0 {
		return nil
	}
	ids := make([]string, len(p.peers))
	for i := range p.peers {
		ids[i] = p.peers[i].host
	}
	return ids
}

// reach turns an output into where the datapath sends: a port here, or a port behind a tunnel. A
// port that moves is reached where it is attached, if that is here.
func (e *engine) reach(o *flow.Output) (datapath.Output, bool) {
	if p := e.net.portByID[o.PortID]; p != nil && (o.HostID == e.host || p.localnet == "") {
		return datapath.Output{Port: p.number, Framing: framingOf(&o.Framing)}, true
	}
	host, remote := o.HostID, o.RemoteIP
	if host == e.host {
		host, remote = e.net.world.BoundHost(o.PortID), netip.Addr{}
	}
	if host == e.host {
		return datapath.Output{}, false
	}
	if !remote.IsValid() {
		remote = e.net.tunnelIP[host]
	}
	t, ok := e.under.Tunnel(remote)
	return datapath.Output{Tunnel: t, TunnelKey: o.TunnelKey, Framing: framingOf(&o.Framing)}, ok
}

// cacheable reports whether one flow, with one output or none, can stand for the decision. Floods,
// and packets of which some outputs cannot be reached, are decided one by one.
func (p *plan) cacheable() bool {
	d := p.decision
	if !d.Cacheable || len(p.outputs) > 1 || len(p.limits) > datapath.MaxLimits || p.lost > 0 && len(p.outputs) > 0 || !p.copiesCacheable() {
		return false
	}
	// A Forward without an output waits for an interface or a tunnel: an error meanwhile. So that
	// senders get errors about later packets too, drops with one are not kept for long.
	p.brief = d.Verdict == flow.ErrorDrop || d.Verdict == flow.Drop && len(d.Emit) > 0 || d.Verdict == flow.Forward && len(p.outputs) == 0
	return true
}

// describe fills in the flow. A flow of an error, or without a copy that may be sent later, also
// carries the tag that every change moves.
func (d *decider) describe(key datapath.Key) {
	p := &d.plan
	p.flow.Key = key
	room := datapath.MaxTags
	if len(p.outputs) == 1 {
		p.flow.Out = p.outputs[0]
		p.flow.Limits = p.limits
		p.flow.NotesEnd = key.Proto == packet.ProtoTCP && len(p.decision.NATs)+len(p.decision.NewNATs) > 0
		p.flow.Shared = p.flow.NotesEnd && len(p.peers) > 0
	}
	if w := p.headers(); w != nil {
		d.rewrite = *w
		p.flow.Rewrite = &d.rewrite
	}
	p.describeCopies()
	if p.flow.Out.Framing != (datapath.Framing{}) {
		room -= 2
	} else if len(p.flow.Limits)+len(p.flow.Copies) > 0 {
		room--
	}
	touched := p.decision.Touched
	if decap := p.decision.Decap; decap != nil {
		touched = decap.InnerTouched
	}
	if p.brief || p.copiesLost > 0 {
		room = -1 // it rests on more than was touched
	}
	p.flow.Tags = d.e.tagsOf(p.flow.Tags, touched, room)
}

func (e *engine) detached(id string) {
	e.net.detached(id)
	if err := e.clients.release(id); err != nil {
		e.log.Error("cannot give back addresses of the metadata service", "port", id, "err", err)
	}
	e.errors.forget(id)
	e.copied.forget(id)
	e.unlearn(e.memory.takePort(id))
}

// reachNow is reach for callers without the network's lock.
func (e *engine) reachNow(o *flow.Output) (datapath.Output, bool) {
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	return e.reach(o)
}

// networkMTU returns the MTU that the machines of a network are given, in bytes; 0 if it has no
// subnet.
func (e *engine) networkMTU(id string) int {
	e.net.mu.RLock()
	defer e.net.mu.RUnlock()
	return e.net.world.InterfaceMTU(id)
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

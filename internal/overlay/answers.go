package overlay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

const (
	// answersBatch is how many addresses of a network are entered under one lock.
	answersBatch = 256
	// extraAskers bounds the addresses of one port, other than its own, whose questions the kernel answers; those of more
	// go up. A port with a prefix of allowed addresses, or without port security, may ask from any number.
	extraAskers = 64
	// missedMax bounds the addresses noted because the kernel did not have them.
	missedMax = 1024
)

// answers keeps what the kernel answers ARP requests and neighbour solicitations from: the addresses of the networks that
// ports of this host are in, and who behind these ports may ask. Both say what the simulator would. A changed address is
// written before the change has been applied, so that nothing stale is answered; what takes longer, a network's first
// port, deciding again who may ask, is Run's work, and meanwhile questions go up.
type answers struct {
	e   *engine
	dp  *datapath.Datapath
	log *slog.Logger

	work task.Notice // there is something for Run

	// Guarded by the engine's world lock.
	bound  map[string]int  // ports of this host, by network
	filled map[string]bool // networks of which the kernel may have addresses

	mu       sync.Mutex                         // taken after the world's lock
	networks map[string]bool                    // to be filled or cleared
	ports    map[string]bool                    // whose askers are to be decided again
	askers   map[string]*portAskers             // by port id
	missing  map[string]map[netip.Addr]struct{} // addresses that the kernel should have had, by network
	warned   time.Time
}

// asker is the source of a question.
type asker struct {
	mac packet.MAC
	ip  netip.Addr
}

// portAskers are who may be answered behind a port: its own addresses, and others seen asking.
type portAskers struct {
	own    []asker
	extra  []asker
	number datapath.Port // where they are entered
	inside map[asker]bool
}

func newAnswers(dp *datapath.Datapath, log *slog.Logger) *answers {
	return &answers{dp: dp, log: log, work: task.NewNotice(), bound: map[string]int{}, filled: map[string]bool{},
		networks: map[string]bool{}, ports: map[string]bool{}, askers: map[string]*portAskers{}, missing: map[string]map[netip.Addr]struct{}{}}
}

// rebind enters which ports a bundle binds to this host, instead of those that it bound before. It needs the world's write
// lock.
func (a *answers) rebind(before, after *topology.Bundle, isBound func(*topology.Port) bool) {
	for i := range after.Ports {
		p := &after.Ports[i]
		if !isBound(p) {
			continue
		}
		if a.bound[p.NetworkID]++; a.bound[p.NetworkID] == 1 {
			a.mark(func() { a.networks[p.NetworkID] = true })
		}
		own := sourcesOf(p, after)
		a.mark(func() {
			a.port(p.ID).own = own
			a.ports[p.ID] = true
		})
	}
	for i := range before.Ports {
		p := &before.Ports[i]
		if !isBound(p) {
			continue
		}
		if a.bound[p.NetworkID]--; a.bound[p.NetworkID] == 0 {
			delete(a.bound, p.NetworkID)
			a.mark(func() { a.networks[p.NetworkID] = true })
		}
		if !slices.ContainsFunc(after.Ports, func(q topology.Port) bool { return q.ID == p.ID && isBound(&q) }) {
			a.mark(func() {
				a.port(p.ID).own = nil
				a.ports[p.ID] = true
			})
		}
	}
}

// sourcesOf are the addresses that the machine behind a port has by its bundle, from which it will ask, and the link-local
// ones, from which hosts check their neighbours. Which of them may ask is the simulator's to say.
func sourcesOf(p *topology.Port, b *topology.Bundle) (own []asker) {
	for i := range b.MACs {
		m := &b.MACs[i]
		if m.PortID != p.ID {
			continue
		}
		for j := range b.Neighbours {
			if n := &b.Neighbours[j]; n.MAC == m.MAC {
				own = append(own, asker{m.MAC, n.IP})
			}
		}
		own = append(own, asker{m.MAC, packet.LinkLocal(m.MAC)})
	}
	return own
}

// port needs the lock.
func (a *answers) port(id string) *portAskers {
	p := a.askers[id]
	if p == nil {
		p = &portAskers{inside: map[asker]bool{}}
		a.askers[id] = p
	}
	return p
}

// mark notes something for Run.
func (a *answers) mark(note func()) {
	a.mu.Lock()
	note()
	a.mu.Unlock()
	a.work.Give()
}

// decideAgain has it decided again who may ask behind a port.
func (a *answers) decideAgain(port string) { a.mark(func() { a.ports[port] = true }) }

// neighbourChanged is called while a change is applied to the world.
func (a *answers) neighbourChanged(network string, ip netip.Addr) {
	if !a.filled[network] || a.e.adopting {
		return
	}
	n := datapath.NetworkOf(network)
	mac, ok := a.e.topology.Neighbour(network, ip)
	if ok && a.bound[network] > 0 {
		err := a.dp.SetNeighbours(n, datapath.Neighbour{IP: ip, MAC: mac})
		if err == nil {
			return
		}
		a.failed(err)
	}
	if err := a.dp.DeleteNeighbours(n, ip); err != nil {
		a.log.Error("cannot remove an address from the kernel's answers", "network", network, "address", ip, "err", err)
	}
}

// failed logs that an address or asker could not be entered: its questions go up to the agent, as before there were answers
// in the kernel.
func (a *answers) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.warned) >= warnEvery {
		a.warned = now
		a.log.Warn("the kernel does not answer for all neighbours; the agent answers for the others", "err", err)
	}
}

// missed notes a question that went up though the kernel could have answered it. A machine that asks from ever new
// addresses makes no work beyond its share: see extraAskers.
func (a *answers) missed(port string, q *flow.Asker) {
	who := asker{q.MAC, q.IP}
	a.mu.Lock()
	p := a.port(port)
	isInside := p.inside[who]
	isNew := !isInside && !slices.Contains(p.own, who) && !slices.Contains(p.extra, who) && len(p.extra) < extraAskers
	a.mu.Unlock()
	switch {
	case isNew:
		a.mark(func() {
			p := a.port(port)
			p.extra = append(p.extra, who)
			a.ports[port] = true
		})
	case isInside: // then it is the target that the kernel does not have
		a.mark(func() {
			ips := a.missing[q.NetworkID]
			if ips == nil {
				ips = map[netip.Addr]struct{}{}
				a.missing[q.NetworkID] = ips
			}
			if len(ips) < missedMax {
				ips[q.Target] = struct{}{}
			}
		})
	}
}

// Run adopts the askers that an earlier agent left and calls done when the kernel can answer; then it follows changes until
// ctx ends. It is called when the interfaces that are there are attached.
func (a *answers) Run(ctx context.Context, done func()) error {
	sim := simulate.NewSimulator(a.e.topology)
	a.adoptAskers()
	a.follow(ctx, sim)
	done()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.work:
			a.follow(ctx, sim)
		}
	}
}

// adoptNeighbours takes the addresses away that an earlier agent left and that are not right any more. It is called when the
// topology is known, before anything else: a wrong answer is worse than none. From then on changes are written through.
func (a *answers) adoptNeighbours() {
	a.e.world.Lock()
	present := map[datapath.Network]string{}
	for network := range a.bound {
		present[datapath.NetworkOf(network)] = network
		a.filled[network] = true
	}
	a.e.world.Unlock()
	err := a.dp.EachNeighbours(func(networks []datapath.Network, ns []datapath.Neighbour) {
		a.e.world.RLock()
		defer a.e.world.RUnlock()
		for i := range ns {
			if mac, ok := a.e.topology.Neighbour(present[networks[i]], ns[i].IP); ok && mac == ns[i].MAC {
				continue
			}
			if err := a.dp.DeleteNeighbours(networks[i], ns[i].IP); err != nil {
				a.log.Error("cannot remove an address from the kernel's answers", "address", ns[i].IP, "err", err)
			}
		}
	})
	if err != nil {
		a.log.Error("cannot read the addresses that the kernel answers for; entering them again", "err", err)
	}
	a.mark(func() {
		for _, network := range present {
			a.networks[network] = true
		}
	})
}

// adoptAskers has it decided again who may ask of those whom an earlier agent let ask. It is called when ports are attached:
// their numbers are known.
func (a *answers) adoptAskers() {
	askers, err := a.dp.Askers()
	if err != nil {
		a.log.Error("cannot read whom the kernel answers; entering them again", "err", err)
	}
	for _, x := range askers {
		port := a.e.port(x.Port)
		if port == nil {
			if err := a.dp.DeleteAsker(x); err != nil {
				a.log.Error("cannot remove an asker from the kernel", "err", err)
			}
			continue
		}
		a.mark(func() {
			p, who := a.port(port.id), asker{x.MAC, x.IP}
			p.number, p.inside[who] = x.Port, true
			if !slices.Contains(p.own, who) && !slices.Contains(p.extra, who) && len(p.extra) < extraAskers {
				p.extra = append(p.extra, who)
			}
			a.ports[port.id] = true
		})
	}
}

// follow does what is marked.
func (a *answers) follow(ctx context.Context, sim *simulate.Simulator) {
	a.mu.Lock()
	networks, ports, missing := a.networks, a.ports, a.missing
	a.networks, a.ports, a.missing = map[string]bool{}, map[string]bool{}, map[string]map[netip.Addr]struct{}{}
	a.mu.Unlock()
	for network := range networks {
		a.fill(ctx, network)
	}
	for network, ips := range missing {
		a.enter(network, slices.Collect(maps.Keys(ips)))
	}
	for port := range ports {
		if ctx.Err() != nil {
			return
		}
		a.decide(sim, port)
	}
}

// fill enters the addresses of a network, or takes them out when this host has no port in it any more.
func (a *answers) fill(ctx context.Context, network string) {
	a.e.world.Lock()
	if a.bound[network] > 0 {
		a.filled[network] = true // from now on changes are written through
	}
	filled, ips := a.filled[network], a.e.topology.NeighbourAddrs(network)
	a.e.world.Unlock()
	if !filled {
		return
	}
	for part := range slices.Chunk(ips, answersBatch) {
		if ctx.Err() != nil {
			return
		}
		a.enter(network, part)
	}
	a.e.world.Lock()
	defer a.e.world.Unlock()
	if a.bound[network] == 0 {
		delete(a.filled, network)
	}
}

// enter brings addresses of a network in the kernel to what they are now.
func (a *answers) enter(network string, ips []netip.Addr) {
	a.e.world.RLock()
	defer a.e.world.RUnlock()
	if !a.filled[network] {
		return
	}
	n := datapath.NetworkOf(network)
	var set []datapath.Neighbour
	var gone []netip.Addr
	for _, ip := range ips {
		if mac, ok := a.e.topology.Neighbour(network, ip); ok && a.bound[network] > 0 {
			set = append(set, datapath.Neighbour{IP: ip, MAC: mac})
		} else {
			gone = append(gone, ip)
		}
	}
	if err := a.dp.SetNeighbours(n, set...); err != nil {
		a.failed(err)
	}
	if err := a.dp.DeleteNeighbours(n, gone...); err != nil {
		a.log.Error("cannot remove addresses from the kernel's answers", "network", network, "err", err)
	}
}

// decide enters who behind a port is answered, and takes out who is not.
func (a *answers) decide(sim *simulate.Simulator, id string) {
	a.mu.Lock()
	p := a.askers[id]
	if p == nil {
		a.mu.Unlock()
		return
	}
	candidates := append(slices.Clone(p.own), p.extra...)
	a.mu.Unlock()

	networks := make([]string, len(candidates))
	a.e.world.RLock()
	port := a.e.portByID[id]
	if port != nil {
		for i, who := range candidates {
			networks[i], _ = sim.CanAsk(id, who.mac, who.ip)
		}
	}
	tag := a.dp.Tags(datapath.SlotOf(id))[0]
	a.e.world.RUnlock()

	if err := a.enterAskers(p, port, candidates, networks, tag); err != nil {
		a.failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if port == nil && len(p.own) == 0 {
		delete(a.askers, id)
	}
}

// enterAskers enters those of the candidates that have a network, and takes all others of the port out.
func (a *answers) enterAskers(p *portAskers, port *localPort, candidates []asker, networks []string, tag datapath.Tag) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	var number datapath.Port
	if port != nil {
		number = port.number
	}
	allowed := map[asker]bool{}
	for i, who := range candidates {
		if networks[i] == "" {
			continue
		}
		if err := a.dp.SetAsker(datapath.Asker{Port: number, MAC: who.mac, IP: who.ip}, datapath.NetworkOf(networks[i]), tag); err != nil {
			errs = append(errs, err)
			continue
		}
		allowed[who] = true
	}
	for who := range p.inside {
		if !allowed[who] || p.number != number {
			errs = append(errs, a.dp.DeleteAsker(datapath.Asker{Port: p.number, MAC: who.mac, IP: who.ip}))
		}
	}
	p.number, p.inside = number, allowed
	// Those noted since the candidates were read wait for their own decision.
	p.extra = slices.DeleteFunc(p.extra, func(who asker) bool { return !allowed[who] && slices.Contains(candidates, who) })
	return errors.Join(errs...)
}

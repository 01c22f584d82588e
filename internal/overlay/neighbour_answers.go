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
	// answersBatch is the number of addresses entered under one lock.
	answersBatch = 256
	// extraAskers bounds the addresses of one port, other than its own, that the kernel answers. A
	// port with a prefix of allowed addresses, or without port security, may ask from any number.
	extraAskers = 64
	// missedMax bounds the addresses noted because the kernel did not have them.
	missedMax = 1024
)

// answers keeps the tables from which the kernel answers ARP requests and neighbour solicitations:
// the addresses in the networks of this host's ports, and the askers behind these ports. Both agree
// with the simulator. A changed address is written before its change has been applied, so that no
// stale answer is given. A network's first port, and deciding again who may ask, take longer: Run
// does that, and meanwhile questions go up.
type answers struct {
	net *virtualNetwork
	dp  *datapath.Datapath
	log *slog.Logger

	work task.Notice // there is something for Run

	// Guarded by the lock of net.
	bound  map[string]int  // ports of this host, by network
	filled map[string]bool // networks of which the kernel may have addresses

	mu       sync.Mutex                         // taken after the lock of net
	networks map[string]bool                    // to be filled or cleared
	ports    map[string]bool                    // whose askers are to be decided again
	askers   map[string]*portAskers             // by port id
	missing  map[string]map[netip.Addr]struct{} // by network: the kernel should have had them
	warned   time.Time
}

// asker is the source of a question.
type asker struct {
	mac packet.MAC
	ip  netip.Addr
}

// portAskers holds the askers behind a port: its own addresses, and others seen.
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

// rebind replaces the ports of one owner bound to this host, under the network's write lock.
func (a *answers) rebind(before, after *topology.Bundle, isBound func(*topology.Port) bool) {
	was, is := portsByID(before.Ports, isBound), portsByID(after.Ports, isBound)
	for id, p := range is {
		if a.bound[p.NetworkID]++; a.bound[p.NetworkID] == 1 {
			a.mark(func() { a.networks[p.NetworkID] = true })
		}
		a.setSources(id, sourcesOf(p, after))
	}
	for id, p := range was {
		if a.bound[p.NetworkID]--; a.bound[p.NetworkID] == 0 {
			delete(a.bound, p.NetworkID)
			a.mark(func() { a.networks[p.NetworkID] = true })
		}
		if is[id] == nil {
			a.setSources(id, nil)
		}
	}
}

func (a *answers) setSources(port string, own []asker) {
	a.mark(func() {
		a.port(port).own = own
		a.ports[port] = true
	})
}

// sourcesOf returns the addresses of the machine behind a port by its bundle, and the link-local
// ones, from which hosts probe their neighbours. The simulator decides which of them may ask.
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

func (a *answers) decideAgain(port string) { a.mark(func() { a.ports[port] = true }) }

// neighbourChanged is called while a change is applied to the world.
func (a *answers) neighbourChanged(network string, ip netip.Addr) {
	if !a.filled[network] || a.net.adopting {
		return
	}
	n := datapath.NetworkOf(network)
	mac, router, ok := a.net.world.Neighbour(network, ip)
	if ok && a.bound[network] > 0 {
		err := a.dp.SetNeighbours(n, datapath.Neighbour{IP: ip, MAC: mac, Router: router})
		if err == nil {
			return
		}
		a.failed(err)
	}
	if err := a.dp.DeleteNeighbours(n, ip); err != nil {
		a.log.Error("cannot remove an address from the kernel's answers", "network", network, "address", ip, "err", err)
	}
}

// failed logs that an address or asker could not be entered: its questions go up to the agent.
func (a *answers) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.warned) >= warnEvery {
		a.warned = now
		a.log.Warn("the kernel does not answer for all neighbours; the agent answers for the others", "err", err)
	}
}

// missed notes a question that went up though the kernel could have answered it. A machine that
// asks from ever new addresses makes no more work than extraAskers.
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

// Run adopts the askers that an earlier agent left, calls done, and follows changes until ctx ends.
// The interfaces present must be attached.
func (a *answers) Run(ctx context.Context, done func()) error {
	sim := simulate.NewSimulator(a.net.world)
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

// adoptNeighbours removes the addresses of an earlier agent that are wrong now. It is called first,
// when the topology is loaded, since a wrong answer is worse than none. From then on changes are
// written through.
func (a *answers) adoptNeighbours() {
	a.net.mu.Lock()
	present := map[datapath.Network]string{}
	for network := range a.bound {
		present[datapath.NetworkOf(network)] = network
		a.filled[network] = true
	}
	a.net.mu.Unlock()
	err := a.dp.EachNeighbours(func(networks []datapath.Network, ns []datapath.Neighbour) {
		a.net.mu.RLock()
		defer a.net.mu.RUnlock()
		for i := range ns {
			if mac, router, ok := a.net.world.Neighbour(present[networks[i]], ns[i].IP); ok && mac == ns[i].MAC && router == ns[i].Router {
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

// adoptAskers decides again about the askers that an earlier agent left. Ports must be attached,
// since it needs their numbers.
func (a *answers) adoptAskers() {
	askers, err := a.dp.Askers()
	if err != nil {
		a.log.Error("cannot read the askers in the kernel; entering them again", "err", err)
	}
	for _, x := range askers {
		port := a.net.port(x.Port)
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

// fill enters the addresses of a network, or removes them if this host has no port in it.
func (a *answers) fill(ctx context.Context, network string) {
	a.net.mu.Lock()
	if a.bound[network] > 0 {
		a.filled[network] = true // from now on changes are written through
	}
	filled, ips := a.filled[network], a.net.world.NeighbourAddrs(network)
	a.net.mu.Unlock()
	if !filled {
		return
	}
	for part := range slices.Chunk(ips, answersBatch) {
		if ctx.Err() != nil {
			return
		}
		a.enter(network, part)
	}
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	if a.bound[network] == 0 {
		delete(a.filled, network)
	}
}

// enter brings addresses of a network in the kernel to what they are now.
func (a *answers) enter(network string, ips []netip.Addr) {
	a.net.mu.RLock()
	defer a.net.mu.RUnlock()
	if !a.filled[network] {
		return
	}
	n := datapath.NetworkOf(network)
	var set []datapath.Neighbour
	var gone []netip.Addr
	for _, ip := range ips {
		if mac, router, ok := a.net.world.Neighbour(network, ip); ok && a.bound[network] > 0 {
			set = append(set, datapath.Neighbour{IP: ip, MAC: mac, Router: router})
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
	a.net.mu.RLock()
	port := a.net.portByID[id]
	if port != nil {
		for i, who := range candidates {
			networks[i], _ = sim.CanAsk(id, who.mac, who.ip)
		}
	}
	tag := a.dp.Tags(datapath.SlotOf(id))[0]
	a.net.mu.RUnlock()

	if err := a.enterAskers(p, port, candidates, networks, tag); err != nil {
		a.failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if port == nil && len(p.own) == 0 {
		delete(a.askers, id)
	}
}

// enterAskers enters those of the candidates that have a network, and removes the port's others.
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

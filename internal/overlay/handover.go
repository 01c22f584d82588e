package overlay

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// handoverEvery is the interval of handing over a port's state in the first handoverTries
	// attempts: messages may be lost. Later only connections that are not in use are left, which
	// other hosts forget after flowstate.ImportedTTL.
	handoverEvery = time.Second
	handoverTries = 3
	handoverAgain = flowstate.ResendAfter
	// handoverMost bounds the time for which a port's host waits for the state of its connections.
	// Packets of the port decided before would find none, and open others.
	handoverMost = 2 * time.Second
	// handoverEarly bounds the ports whose state has come from a host before their binding: that
	// host may have read it first. Of more, state is awaited once more.
	handoverEarly = 4096
)

// handovers are the moves of ports between this host and others (decision 0017). The host that a
// port moves from sends the other one the state of the port's connections, and says when that was
// all; the other one attaches the port no earlier, or after handoverMost. What connects later is
// sent to both hosts with each packet that opens it.
type handovers struct {
	e     *engine
	kick  func(port string) // has the port's attachment looked at again
	begun task.Notice       // ports move from here that did not

	mu       sync.Mutex
	leaving  map[string]*leaving  // by port id
	arriving map[string]*arriving // likewise
	early    map[handover]time.Duration
}

// handover is the message of a host that it has sent all state of a port.
type handover struct{ port, from string }

// leaving is a port that moves from here.
type leaving struct {
	to      string // host
	network string
	addrs   map[netip.Addr]bool // of the machine
	tries   int
	next    time.Duration
}

// arriving is a port that moves here.
type arriving struct {
	from  string // host
	until time.Duration
	done  bool // need not wait
}

func newHandovers(e *engine) *handovers {
	return &handovers{e: e, kick: func(string) {}, begun: task.NewNotice(), leaving: map[string]*leaving{}, arriving: map[string]*arriving{},
		early: map[handover]time.Duration{}}
}

// rebind replaces the ports of one owner.
func (x *handovers) rebind(before, after *topology.Bundle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	wasLeaving, wasArriving := map[string]*leaving{}, map[string]*arriving{}
	for i := range before.Ports {
		id := before.Ports[i].ID
		if l := x.leaving[id]; l != nil {
			wasLeaving[id] = l
			delete(x.leaving, id)
		}
		if a := x.arriving[id]; a != nil {
			wasArriving[id] = a
			delete(x.arriving, id)
		}
	}
	for i := range after.Ports {
		switch p := &after.Ports[i]; x.e.host {
		case p.MovedFrom():
			l := wasLeaving[p.ID]
			if l == nil || l.to != p.HostID {
				l = &leaving{to: p.HostID}
				x.begun.Give()
			}
			l.network, l.addrs = p.NetworkID, addressesOf(after)
			x.leaving[p.ID] = l
		case p.HostID:
			if p.MovedFrom() == "" {
				continue
			}
			a := wasArriving[p.ID]
			if a == nil || a.from != p.MovedFrom() {
				a = x.arrival(p)
			}
			x.arriving[p.ID] = a
		}
	}
}

// arrival returns a port that begins to move here. Its state may be here already.
func (x *handovers) arrival(p *topology.Port) *arriving {
	now, from := x.e.clock(), p.MovedFrom()
	at, came := x.early[handover{p.ID, from}]
	delete(x.early, handover{p.ID, from})
	return &arriving{from: from, until: now + handoverMost, done: came && now < at+handoverMost}
}

// addressesOf returns the addresses of the machine behind a bundle's port.
func addressesOf(b *topology.Bundle) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for i := range b.Neighbours {
		addrs[b.Neighbours[i].IP] = true
	}
	return addrs
}

// ready reports whether the port may be attached here.
func (x *handovers) ready(port string) bool {
	x.mu.Lock()
	a := x.arriving[port]
	if a == nil || a.done || x.e.clock() >= a.until {
		x.mu.Unlock()
		return true
	}
	from := a.from
	x.mu.Unlock() // the network's lock is taken before
	_, known := x.e.net.addressOf(from)
	return !known
}

// received notes that another host has sent all state of ports, which may have been bound here in a
// change of the store that this host has yet to read.
func (x *handovers) received(host string, ports []string) {
	x.mu.Lock()
	var done []string
	for _, id := range ports {
		switch a := x.arriving[id]; {
		case a == nil || a.from != host:
			if len(x.early) < handoverEarly {
				x.early[handover{id, host}] = x.e.clock()
			}
		case !a.done:
			a.done = true
			done = append(done, id)
		}
	}
	x.mu.Unlock()
	for _, id := range done {
		x.kick(id)
	}
}

// soon has the state of a port that moves from here sent again: its machine has gone.
func (x *handovers) soon(port string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.leaving[port]; l != nil {
		l.next, l.tries = 0, 0
	}
}

// tick hands over what is due, and has ports attached that have waited long enough.
func (x *handovers) tick() {
	now := x.e.clock()
	x.mu.Lock()
	var kicks []string                      // ports
	due := map[string]map[string]*leaving{} // by host and port
	maps.DeleteFunc(x.early, func(_ handover, at time.Duration) bool { return now >= at+handoverMost })
	for id, a := range x.arriving {
		if !a.done && now >= a.until {
			a.done = true
			kicks = append(kicks, id)
		}
	}
	for id, l := range x.leaving {
		if now < l.next {
			continue
		}
		if l.tries++; l.tries <= handoverTries {
			l.next = now + handoverEvery
		} else {
			l.next = now + handoverAgain
		}
		if due[l.to] == nil {
			due[l.to] = map[string]*leaving{}
		}
		copied := *l
		due[l.to][id] = &copied
		kicks = append(kicks, id) // the tunnel to the host may be another one
	}
	x.mu.Unlock()
	for host, ports := range due {
		x.handOver(host, ports)
	}
	for _, id := range kicks {
		x.kick(id)
	}
}

// handOver sends a host the state of ports, and then that this was all.
func (x *handovers) handOver(host string, ports map[string]*leaving) {
	t, ok := x.e.tunnelTo(host)
	if !ok {
		return
	}
	s := x.e.stateOf(ports)
	for id := range ports {
		s.Ports = append(s.Ports, id)
	}
	x.e.sendState(t, host, s)
	x.e.log.Debug("handed over connections", "ports", len(ports), "host", x.e.keys.hostName(host), "id", host, "connections", len(s.Conns), "translations", len(s.NATs))
}

// stateOf returns the connections and translations that ports have opened, or that have an address
// of theirs and are of a device that links lead to from their network.
func (e *engine) stateOf(ports map[string]*leaving) (s flowstate.State) {
	owners := map[netip.Addr][]string{} // by address, the networks in which it is a port's
	for _, l := range ports {
		for a := range l.addrs {
			owners[a] = append(owners[a], l.network)
		}
	}
	near := map[[2]string]bool{}
	concerns := func(device string, addrs ...netip.Addr) bool {
		for _, a := range addrs {
			for _, network := range owners[a] {
				pair := [2]string{network, device}
				is, known := near[pair]
				if !known {
					is = e.keys.senders.related(network, device)
					near[pair] = is
				}
				if is {
					return true
				}
			}
		}
		return false
	}
	now := e.clock()
	s.Conns = e.conns.Select(now, func(port string, c flow.ConnKey) bool {
		return ports[port] != nil || concerns(c.Device, c.Src, c.Dst)
	})
	s.NATs = e.nats.Select(now, func(port string, n flow.NATEntry) bool {
		return ports[port] != nil || concerns(n.Device, n.Src, n.Dst, n.Addr)
	})
	return s
}

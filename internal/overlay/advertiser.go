package overlay

import (
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// Times of router advertisements that no machine has asked for (RFC 4861 §6.2.1, §10).
const (
	advertiseMin = 200 * time.Second // between two, chosen at random
	advertiseMax = 600 * time.Second
	// A change is advertised at once, and earlyAdverts more times within earlyEvery each: a machine
	// may have missed the first.
	earlyAdverts = 2
	earlyEvery   = 16 * time.Second
	// advertisePause is the least time between two on one network.
	advertisePause = 3 * time.Second
)

// advertiser sends router advertisements to the machines behind this host's ports: at once when
// what their network advertises has changed, or their port is new, and from time to time. It sends
// to local ports alone, as each host does, whatever the size of a network.
type advertiser struct {
	e    *engine
	work task.Notice // there is something for Run

	mu       sync.Mutex                 // taken after the lock of the virtual network
	ports    map[string]map[string]bool // this host's, by network
	networks map[string]string          // of these ports
	changed  map[string]bool            // networks that may advertise something else
	fresh    map[string]bool            // ports whose machines have heard nothing yet
}

func newAdvertiser(e *engine) *advertiser {
	return &advertiser{e: e, work: task.NewNotice(), ports: map[string]map[string]bool{}, networks: map[string]string{},
		changed: map[string]bool{}, fresh: map[string]bool{}}
}

// rebind replaces the ports of one owner bound to this host. Those that are down hear nothing, and
// the machines of a LAN hear of its own routers.
func (a *advertiser) rebind(before, after []topology.Port, isBound func(*topology.Port) bool) {
	listens := func(p *topology.Port) bool {
		return isBound(p) && p.AdminStateUp && p.NetworkID != "" && p.PhysicalNetwork == ""
	}
	was, is := portsByID(before, listens), portsByID(after, listens)
	if len(was)+len(is) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range was {
		if now := is[id]; now != nil && now.NetworkID == p.NetworkID {
			continue
		}
		delete(a.ports[p.NetworkID], id)
		delete(a.networks, id)
		if len(a.ports[p.NetworkID]) == 0 {
			delete(a.ports, p.NetworkID)
			a.mark(p.NetworkID)
		}
	}
	for id, p := range is {
		if a.networks[id] == p.NetworkID {
			continue
		}
		if a.ports[p.NetworkID] == nil {
			a.ports[p.NetworkID] = map[string]bool{}
			a.mark(p.NetworkID)
		}
		a.ports[p.NetworkID][id], a.networks[id] = true, p.NetworkID
		a.greet(id)
	}
}

// networkChanged is called while a change is applied to the world.
func (a *advertiser) networkChanged(network string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ports[network]) > 0 {
		a.mark(network)
	}
}

// attached notes that a port's interface has come.
func (a *advertiser) attached(port string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.networks[port] != "" {
		a.greet(port)
	}
}

// mark needs the lock.
func (a *advertiser) mark(network string) {
	a.changed[network] = true
	a.work.Give()
}

// greet needs the lock.
func (a *advertiser) greet(port string) {
	a.fresh[port] = true
	a.work.Give()
}

// Run advertises until ctx ends.
func (a *advertiser) Run(ctx context.Context) error {
	schedules := map[string]*advertSchedule{}
	due := task.NewAlarm()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.work:
			a.take(schedules)
		case <-due.C:
		}
		due.Set(a.sendDue(schedules, time.Now()))
	}
}

// take brings the schedules to the networks that have changed, and advertises to fresh ports.
func (a *advertiser) take(schedules map[string]*advertSchedule) {
	a.mu.Lock()
	changed, fresh := a.changed, slices.Collect(maps.Keys(a.fresh))
	a.changed, a.fresh = map[string]bool{}, map[string]bool{}
	a.mu.Unlock()
	for network := range changed {
		a.plan(network, schedules)
	}
	for _, port := range fresh {
		a.mu.Lock()
		s := schedules[a.networks[port]]
		a.mu.Unlock()
		if s != nil && s.has { // others have heard of the network
			a.send([]string{port}, s.told.ToAll())
		}
	}
}

// plan enters what a network advertises now into its schedule.
func (a *advertiser) plan(network string, schedules map[string]*advertSchedule) {
	a.e.net.mu.RLock()
	next, advertises := a.e.net.world.Advertisement(network)
	a.e.net.mu.RUnlock()
	if len(a.portsOf(network)) == 0 {
		delete(schedules, network)
		return
	}
	s := schedules[network]
	switch {
	case s == nil && !advertises:
		return
	case s == nil:
		s = &advertSchedule{}
		schedules[network] = s
	}
	s.change(next, advertises, time.Now())
}

// sendDue sends what is due, and returns when the next is; zero for never.
func (a *advertiser) sendDue(schedules map[string]*advertSchedule, now time.Time) (next time.Time) {
	for network, s := range schedules {
		if !now.Before(s.next) {
			ports := a.portsOf(network)
			for _, frame := range s.take(now, rand.Float64) {
				a.send(ports, frame)
			}
		}
		switch {
		case s.next.IsZero():
			delete(schedules, network)
		case next.IsZero() || s.next.Before(next):
			next = s.next
		}
	}
	return next
}

func (a *advertiser) portsOf(network string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.ports[network]))
}

// send sends a frame to ports whose interfaces are there.
func (a *advertiser) send(ports []string, frame []byte) {
	for _, id := range ports {
		if a.e.net.portWithID(id) != nil {
			a.e.emitOne(&flow.Emission{Output: flow.Output{PortID: id, HostID: a.e.host}, Frame: frame})
			a.e.count.advertised.Add(1)
		}
	}
}

// advertSchedule decides when a network is advertised.
type advertSchedule struct {
	now        simulate.Advertisement // what is true
	advertises bool
	told       simulate.Advertisement // what the machines have heard last
	has        bool                   // they have heard it
	at         time.Time              // when
	early      int                    // advertisements due soon, since the last was a change
	next       time.Time              // when the next is due; zero for never
}

// change sets what is advertised from now on.
func (s *advertSchedule) change(next simulate.Advertisement, advertises bool, now time.Time) {
	s.now, s.advertises = next, advertises
	if advertises == s.has && reflect.DeepEqual(next, s.told) {
		return
	}
	s.early = earlyAdverts
	s.next = now
	if soonest := s.at.Add(advertisePause); s.has && soonest.After(now) {
		s.next = soonest
	}
}

// take returns the frames that are due now: what ends, then what is true. random is as
// [rand.Float64].
func (s *advertSchedule) take(now time.Time, random func() float64) (frames [][]byte) {
	if s.has {
		if end, needed := s.told.Farewell(s.now); needed {
			frames = append(frames, end.ToAll())
		}
	}
	s.told, s.has, s.at, s.next = s.now, s.advertises, now, time.Time{}
	if !s.advertises {
		return frames
	}
	wait := advertiseMin + time.Duration(random()*float64(advertiseMax-advertiseMin))
	if s.early > 0 {
		s.early--
		wait = min(wait, advertisePause+time.Duration(random()*float64(earlyEvery-advertisePause)))
	}
	s.next = now.Add(wait)
	return append(frames, s.now.ToAll())
}

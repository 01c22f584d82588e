package overlay

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// senders keeps the set of hosts that may send to each port of this host through tunnels (decision
// 0018): those with a port in its area or in one above or below it, and across an area above them
// both those that have to do with a floating IP there. A host that enters an area costs one bit for
// each port here that it may send to by that.
type senders struct {
	dp interface {
		AllowSender(port datapath.Port, remote netip.Addr, allowed bool)
		SetSenders(port datapath.Port, remotes map[netip.Addr]bool)
	}

	mu      sync.Mutex
	devices map[string]*senderDevice
	hosts   map[string]*senderHost
	ports   map[string]string        // local port → device
	live    map[string]datapath.Port // local ports that are attached
	ends    map[string]linkEnd       // of ports that are not bound
	namedBy map[string][]string      // port → those that name it as their peer
	lans    senderLANs
	borders senderBorders
	mirrors senderMirrors

	// What the change under way may have made different; settle brings the datapath to it.
	stale      map[string]bool            // ports
	stalePairs map[string]map[string]bool // host → ports
}

// senderDevice is a network or router: how many ports each host has in it, the ports that this host
// has, and how many links lead to each other device. A link that is a border is in above and below
// instead.
type senderDevice struct {
	id           string
	hosts        map[string]int
	local        map[string]int // a port also for each port in the device of which it gets copies
	links        map[*senderDevice]int
	above, below map[*senderDevice]int // across borders: networks of a router's, routers of a network's
	floats       int                   // floating IPs of the network
	floating     map[string]int        // hosts of their ports
	opened       map[string]int        // their ports that are local
	area         *area
}

// area is a set of devices joined by links: a packet that enters one may leave by any of them, and
// the host by which it enters sends it there directly.
type area struct {
	devices     map[*senderDevice]bool
	exits       map[*senderDevice]bool // devices with borders to areas above
	entries     map[*senderDevice]bool // and to areas below
	hosts       map[string]int         // how many devices a host has ports in
	local       map[string]int         // ports of this host, as in the devices
	floating    map[string]int
	opened      map[string]int
	hostsBelow  map[string]int // hosts of areas from which borders lead up to this one, and its own
	portsBelow  map[string]int // likewise ports of this host
	contributes bool           // its hosts and ports count in hostsBelow and portsBelow
}

type senderHost struct {
	addrs []netip.Addr
	uses  int // areas that it has ports in
}

func newSenders(dp *datapath.Datapath) *senders {
	return &senders{dp: dp, devices: map[string]*senderDevice{}, hosts: map[string]*senderHost{}, ports: map[string]string{}, live: map[string]datapath.Port{},
		ends: map[string]linkEnd{}, namedBy: map[string][]string{}, lans: newSenderLANs(), borders: newSenderBorders(), mirrors: newSenderMirrors(),
		stale: map[string]bool{}, stalePairs: map[string]map[string]bool{}}
}

func deviceOf(p *topology.Port) string { return cmp.Or(p.NetworkID, p.RouterID) }

// change replaces what one owner has. own are the ports that are bound to this host.
func (s *senders) change(owner topology.Owner, before, after *topology.Bundle, own func(*topology.Port) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range after.Ports {
		s.countPort(&after.Ports[i], 1)
	}
	s.redraw(owner, before, after)
	was, is := portsByID(before.Ports, own), portsByID(after.Ports, own)
	for i := range before.Ports {
		s.countPort(&before.Ports[i], -1)
	}
	for id := range was {
		if is[id] == nil {
			s.place(id, "")
		}
	}
	for id, p := range is {
		s.place(id, deviceOf(p))
	}
	s.remirror(before, after)
	for i := range before.Ports {
		s.tidy(deviceOf(&before.Ports[i]))
	}
	s.settle()
}

// count notes that a host has more or fewer ports in a device.
func (s *senders) count(device, host string, by int) {
	d := s.device(device)
	was := d.hosts[host] > 0
	d.hosts[host] += by
	if d.hosts[host] <= 0 {
		delete(d.hosts, host)
	}
	if is := d.hosts[host] > 0; is && !was {
		s.enter(d.area, host, 1)
	} else if was && !is {
		s.enter(d.area, host, -1)
	}
}

// enter notes that a host has ports in more or fewer devices of an area.
func (s *senders) enter(a *area, host string, by int) {
	was := a.hosts[host] > 0
	if a.hosts[host] += by; a.hosts[host] <= 0 {
		delete(a.hosts, host)
	}
	is := a.hosts[host] > 0
	if is == was {
		return
	}
	step := 1
	if was {
		step = -1
	}
	s.host(host).uses += step
	s.tidyHost(host)
	s.touch(a.portsBelow, host)
	if a.contributes {
		for _, above := range a.upward() {
			s.countBelow(above, host, step)
		}
	}
}

// countBelow notes that a host has ports in more or fewer areas below one.
func (s *senders) countBelow(a *area, host string, by int) {
	was := a.hostsBelow[host] > 0
	if a.hostsBelow[host] += by; a.hostsBelow[host] <= 0 {
		delete(a.hostsBelow, host)
	}
	if (a.hostsBelow[host] > 0) == was {
		return
	}
	for id := range a.local {
		s.touchPair(id, host)
	}
	s.touch(a.opened, host)
}

// touch notes that a host may send to some ports, or no longer.
func (s *senders) touch(ports map[string]int, host string) {
	for id := range ports {
		s.touchPair(id, host)
	}
}

func (s *senders) touchPair(id, host string) {
	if s.stalePairs[host] == nil {
		s.stalePairs[host] = map[string]bool{}
	}
	s.stalePairs[host][id] = true
}

// settle brings the datapath to what has changed. Nobody is let go of in between who stays.
func (s *senders) settle() {
	for host, ports := range s.stalePairs {
		if h := s.hosts[host]; h != nil {
			for id := range ports {
				if !s.stale[id] {
					s.allow(id, host, h.addrs...)
				}
			}
		}
	}
	for id := range s.stale {
		s.renew(id)
	}
	clear(s.stalePairs)
	clear(s.stale)
}

// allow sets whether a host may send to a port of this host from some addresses of its.
func (s *senders) allow(id, host string, addrs ...netip.Addr) {
	if p, there := s.live[id]; there {
		may := s.maySend(id, host)
		for _, addr := range addrs {
			s.dp.AllowSender(p, addr, may)
		}
	}
}

// sources returns the sets of hosts that may send to a port of this host.
func (s *senders) sources(id string) (sets []map[string]int) {
	device := s.ports[id]
	if device == "" {
		return nil
	}
	sets = s.sourcesIn(sets, id, device)
	for source, in := range s.mirrors.watched[id] {
		sets = s.sourcesIn(sets, source, in)
	}
	return sets
}

// sourcesIn adds the sets of hosts that may send to a port in a device.
func (s *senders) sourcesIn(sets []map[string]int, id, device string) []map[string]int {
	a := s.device(device).area
	sets = append(sets, a.hostsBelow)
	for _, above := range a.upward() {
		sets = append(sets, above.hosts, above.floating)
	}
	for f := range s.borders.floatsOf[id] {
		sets = append(sets, s.device(f.network).area.hostsBelow)
	}
	return sets
}

func (s *senders) maySend(id, host string) bool {
	for _, hosts := range s.sources(id) {
		if hosts[host] > 0 {
			return true
		}
	}
	return false
}

// has reports whether a host has ports in a device.
func (s *senders) has(device, host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[device]
	return d != nil && d.hosts[host] > 0
}

// related reports whether packets may pass from one device to another, over borders too.
func (s *senders) related(a, b string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, y := s.devices[a], s.devices[b]
	if x == nil || y == nil {
		return false
	}
	above := y.area.upward()
	return slices.ContainsFunc(x.area.upward(), func(a *area) bool { return slices.Contains(above, a) })
}

// place notes in which device a port of this host is, "" for none.
func (s *senders) place(id, device string) {
	was := s.ports[id]
	if was == device {
		return
	}
	if was != "" {
		s.openAll(id, -1)
		d := s.device(was)
		add(d.local, id, -1)
		s.house(d.area, id, -1)
		delete(s.ports, id)
	}
	if device != "" {
		d := s.device(device)
		add(d.local, id, 1)
		s.house(d.area, id, 1)
		s.ports[id] = device
		s.openAll(id, 1)
	}
	s.stale[id] = true
}

// house notes that a port of this host is in more or fewer devices of an area.
func (s *senders) house(a *area, id string, by int) {
	add(a.local, id, by)
	if a.contributes {
		for _, above := range a.upward() {
			add(above.portsBelow, id, by)
		}
	}
}

// add adds to a count, which is removed when it is 0.
func add[K comparable](counts map[K]int, k K, by int) {
	if counts[k] += by; counts[k] == 0 {
		delete(counts, k)
	}
}

// renew sets all who may send to a port.
func (s *senders) renew(id string) {
	p, there := s.live[id]
	if !there {
		return
	}
	remotes := map[netip.Addr]bool{}
	for _, hosts := range s.sources(id) {
		for host := range hosts {
			if h := s.hosts[host]; h != nil {
				for _, a := range h.addrs {
					remotes[a] = true
				}
			}
		}
	}
	s.dp.SetSenders(p, remotes)
}

// attached sets the number of a port of this host in the datapath; gone removes it.
func (s *senders) attached(id string, number datapath.Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[id] = number
	s.renew(id)
}

func (s *senders) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// setHosts replaces the other hosts' addresses, which are peers of the datapath.
func (s *senders) setHosts(addrs map[string][]netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.hosts {
		s.readdress(id, h, addrs[id])
		s.tidyHost(id)
	}
	for id, now := range addrs {
		if s.hosts[id] == nil {
			s.host(id).addrs = now
		}
	}
}

func (s *senders) readdress(host string, h *senderHost, now []netip.Addr) {
	before := h.addrs
	if slices.Equal(before, now) {
		return
	}
	if h.addrs = now; h.uses == 0 {
		return
	}
	for id, p := range s.live {
		for _, addr := range before {
			if !slices.Contains(now, addr) {
				s.dp.AllowSender(p, addr, false)
			}
		}
		s.allow(id, host, now...)
	}
}

// entered notes that a host's addresses have become peers of the datapath again.
func (s *senders) entered(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts[host]; h != nil {
		for id := range s.live {
			s.allow(id, host, h.addrs...)
		}
	}
}

// device returns a device, in an area of its own if it is new.
func (s *senders) device(id string) *senderDevice {
	d := s.devices[id]
	if d == nil {
		d = &senderDevice{id: id, hosts: map[string]int{}, local: map[string]int{}, links: map[*senderDevice]int{}, above: map[*senderDevice]int{},
			below: map[*senderDevice]int{}, floating: map[string]int{}, opened: map[string]int{}, area: newArea()}
		d.area.devices[d], d.area.contributes = true, true
		s.devices[id] = d
	}
	return d
}

func newArea() *area {
	return &area{devices: map[*senderDevice]bool{}, exits: map[*senderDevice]bool{}, entries: map[*senderDevice]bool{}, hosts: map[string]int{},
		local: map[string]int{}, floating: map[string]int{}, opened: map[string]int{}, hostsBelow: map[string]int{}, portsBelow: map[string]int{}}
}

func (s *senders) host(id string) *senderHost {
	h := s.hosts[id]
	if h == nil {
		h = &senderHost{}
		s.hosts[id] = h
	}
	return h
}

// tidy removes a device without ports.
func (s *senders) tidy(id string) {
	if d := s.devices[id]; d != nil && len(d.hosts)+len(d.local)+len(d.links)+len(d.above)+len(d.below)+d.floats == 0 {
		delete(d.area.devices, d)
		delete(s.devices, id)
	}
}

// tidyHost removes a host without ports and addresses.
func (s *senders) tidyHost(id string) {
	if h := s.hosts[id]; h != nil && h.uses+len(h.addrs) == 0 {
		delete(s.hosts, id)
	}
}

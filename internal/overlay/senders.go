package overlay

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// senders keeps the set of hosts that may send to each port of this host through tunnels: those
// with a port in its area. A host that enters an area costs one bit for each port of it here.
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
}

// senderDevice is a network or router: how many ports each host has in it, the ports that this host
// has, and how many links lead to each other device.
type senderDevice struct {
	id    string
	hosts map[string]int
	local map[string]bool
	links map[*senderDevice]int
	area  *area
}

// area is a set of devices joined by links: a packet that enters one may leave by any of them, and
// the host by which it enters sends it there directly.
type area struct {
	devices map[*senderDevice]bool
	hosts   map[string]int  // how many devices a host has ports in
	local   map[string]bool // ports of this host
}

type senderHost struct {
	addrs []netip.Addr
	areas map[*area]bool
}

// linkEnd is a port that may be linked: its device, and the port that it names as its peer.
type linkEnd struct{ device, peer string }

func newSenders(dp *datapath.Datapath) *senders {
	return &senders{dp: dp, devices: map[string]*senderDevice{}, hosts: map[string]*senderHost{}, ports: map[string]string{}, live: map[string]datapath.Port{},
		ends: map[string]linkEnd{}, namedBy: map[string][]string{}, lans: newSenderLANs()}
}

func deviceOf(p *topology.Port) string { return cmp.Or(p.NetworkID, p.RouterID) }

// change replaces the ports of one owner. own are those that are bound to this host.
func (s *senders) change(before, after []topology.Port, own func(*topology.Port) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Added before removed, so that no host is removed in between.
	for i := range after {
		s.countPort(&after[i], 1)
	}
	s.relink(before, after)
	was, is := portsByID(before, own), portsByID(after, own)
	for i := range before {
		s.countPort(&before[i], -1)
	}
	for id := range was {
		if is[id] == nil {
			s.place(id, "")
		}
	}
	for id, p := range is {
		s.place(id, deviceOf(p))
	}
	for i := range before {
		s.tidy(deviceOf(&before[i]))
	}
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
	h := s.host(host)
	was := a.hosts[host] > 0
	if a.hosts[host] += by; a.hosts[host] <= 0 {
		delete(a.hosts, host)
		delete(h.areas, a)
	} else {
		h.areas[a] = true
	}
	if is := a.hosts[host] > 0; is != was {
		for _, addr := range h.addrs {
			s.allow(a, addr, is)
		}
	}
	s.tidyHost(host)
}

// has reports whether a host has ports in a device.
func (s *senders) has(device, host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[device]
	return d != nil && d.hosts[host] > 0
}

// joined reports whether links lead from one device to another, or both are one.
func (s *senders) joined(a, b string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, y := s.devices[a], s.devices[b]
	return x != nil && y != nil && x.area == y.area
}

// allow lets an address send to the ports of this host in an area, or no longer.
func (s *senders) allow(a *area, addr netip.Addr, allowed bool) {
	for id := range a.local {
		if p, there := s.live[id]; there {
			s.dp.AllowSender(p, addr, allowed)
		}
	}
}

// place notes in which device a port of this host is, "" for none.
func (s *senders) place(id, device string) {
	was := s.ports[id]
	if was == device {
		return
	}
	if was != "" {
		d := s.device(was)
		delete(d.local, id)
		delete(d.area.local, id)
		delete(s.ports, id)
	}
	if device != "" {
		d := s.device(device)
		d.local[id], d.area.local[id] = true, true
		s.ports[id] = device
	}
	s.renew(id)
}

// renew sets all who may send to a port.
func (s *senders) renew(id string) {
	p, there := s.live[id]
	if !there {
		return
	}
	remotes := map[netip.Addr]bool{}
	if device := s.ports[id]; device != "" {
		for host := range s.device(device).area.hosts {
			for _, a := range s.host(host).addrs {
				remotes[a] = true
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
		s.readdress(h, addrs[id])
		s.tidyHost(id)
	}
	for id, now := range addrs {
		if s.hosts[id] == nil {
			s.host(id).addrs = now
		}
	}
}

func (s *senders) readdress(h *senderHost, now []netip.Addr) {
	before := h.addrs
	if slices.Equal(before, now) {
		return
	}
	h.addrs = now
	for a := range h.areas {
		for _, addr := range before {
			if !slices.Contains(now, addr) {
				s.allow(a, addr, false)
			}
		}
		for _, addr := range now {
			s.allow(a, addr, true)
		}
	}
}

// entered notes that a host's addresses have become peers of the datapath again.
func (s *senders) entered(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts[host]; h != nil {
		for a := range h.areas {
			for _, addr := range h.addrs {
				s.allow(a, addr, true)
			}
		}
	}
}

// device returns a device, in an area of its own if it is new.
func (s *senders) device(id string) *senderDevice {
	d := s.devices[id]
	if d == nil {
		d = &senderDevice{id: id, hosts: map[string]int{}, local: map[string]bool{}, links: map[*senderDevice]int{}}
		d.area = &area{devices: map[*senderDevice]bool{d: true}, hosts: map[string]int{}, local: map[string]bool{}}
		s.devices[id] = d
	}
	return d
}

func (s *senders) host(id string) *senderHost {
	h := s.hosts[id]
	if h == nil {
		h = &senderHost{areas: map[*area]bool{}}
		s.hosts[id] = h
	}
	return h
}

// tidy removes a device without ports.
func (s *senders) tidy(id string) {
	if d := s.devices[id]; d != nil && len(d.hosts)+len(d.local)+len(d.links) == 0 {
		delete(d.area.devices, d)
		delete(s.devices, id)
	}
}

// tidyHost removes a host without ports and addresses.
func (s *senders) tidyHost(id string) {
	if h := s.hosts[id]; h != nil && len(h.areas)+len(h.addrs) == 0 {
		delete(s.hosts, id)
	}
}

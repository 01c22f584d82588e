package offline

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// carriers are the hosts of a scenario and what they carry.
type carriers struct {
	hosts    map[string]string   // ids by name
	placed   map[string]string   // host names by port, of those that name one
	physical map[string][]string // physical networks by host id
	dead     map[string]bool     // host ids
}

func newCarriers() carriers {
	return carriers{map[string]string{}, map[string]string{}, map[string][]string{}, map[string]bool{}}
}

// addCarrier makes a host of its own name, which carries physical networks.
func (s *scenario) addCarrier(n node) error {
	o, err := n.object("name", "physical_networks")
	if err != nil {
		return err
	}
	name, err := o.get("name").text()
	if err != nil {
		return err
	}
	switch {
	case name == "" || strings.Contains(name, "@"):
		return fileErrorf(o.under("name"), "want a name without @")
	case s.hosts[name] != "":
		return fileErrorf(o.under("name"), "there are two of name %q", name)
	case s.place != nil:
		return fileErrorf(n.place, "scenarios with hosts of their own are not played between real ones")
	}
	h := s.hostNamed(name)
	if h.PhysicalNetworks, err = each(o.get("physical_networks"), node.text); err != nil {
		return err
	}
	return s.at(n, s.addHost(h))
}

// readHost reads the name of a host, if it is there.
func (s *scenario) readHost(n node) (string, error) {
	name, err := n.text()
	if err == nil && name != "" && s.hosts[name] == "" {
		err = fileErrorf(n.place, "there is no host %q", name)
	}
	return name, err
}

func (s *scenario) hostNamed(name string) topology.Host {
	return topology.Host{ID: s.derive("host", name), Name: name}
}

// bindingOf is the host of a port, and the name of its interface there.
func (s *scenario) bindingOf(port string) (host topology.Host, iface string) {
	if sub, is := s.subports[port]; is {
		return s.bindingOf(sub.parent)
	}
	switch {
	case s.place != nil:
		return s.place(port)
	case s.placed[port] != "":
		return s.hostNamed(s.placed[port]), port
	case s.eachHost:
		return s.hostNamed("host-" + port), port
	}
	return s.hostNamed("host"), port
}

// addHost registers a host unless it is there. All hosts reach each other in one tunnel zone.
func (s *scenario) addHost(h topology.Host) error {
	if s.place != nil || s.hosts[h.Name] != "" {
		return nil
	}
	s.hosts[h.Name], s.physical[h.ID] = h.ID, h.PhysicalNetworks
	count := len(s.hosts)
	underlay := netip.AddrFrom4([4]byte{198, 18, byte(count >> 8), byte(count)})
	h.Tunnels = []topology.HostTunnel{{ZoneID: s.derive("zone"), IP: underlay}}
	return s.world.putHost(&h)
}

// updateHost has a host die or live again: {host: name, alive: false}.
func (s *scenario) updateHost(n node) error {
	o, err := n.object("host", "alive")
	if err != nil {
		return err
	}
	name, err := s.readHost(o.get("host"))
	if err != nil {
		return err
	}
	if name == "" {
		return fileErrorf(o.under("host"), "is missing")
	}
	alive, given := o.get("alive").value.(bool)
	if !given {
		return fileErrorf(o.under("alive"), "want true or false")
	}
	s.dead[s.hosts[name]] = !alive
	return nil
}

// hostStates enters which hosts are alive.
func (y *system) hostStates() {
	for _, id := range y.hosts {
		if y.dead[id] {
			y.topology.ApplyHostState(id, nil)
		} else {
			y.topology.ApplyHostState(id, &topology.HostState{HostID: id})
		}
	}
}

// A place where frames come in and go out is a port of the scenario or, on the LAN of a physical
// network, NETWORK@HOST: the interface that a host has there.

// findLANs notes the localnet ports of the networks, by which the places on LANs are found.
func (y *system) findLANs(bundles []*schema.Bundle) {
	y.localnets = map[string]string{}
	for _, b := range bundles {
		for i := range b.Bundle.Ports {
			if p := &b.Bundle.Ports[i]; p.PhysicalNetwork != "" {
				y.localnets[p.NetworkID] = p.ID
				y.nameOf[p.ID] = y.nameOf[p.NetworkID] + "@" + p.PhysicalNetwork
			}
		}
	}
}

// lanPlace reads a place on a LAN, as place writes it; false for what is none.
func (y *system) lanPlace(name string) (portID, hostID string, ok bool) {
	network, host, _ := strings.Cut(name, "@")
	portID, hostID = y.localnets[y.networks.ids[network]], y.hosts[host]
	return portID, hostID, portID != "" && hostID != ""
}

// hostAt is the id of the host at which frames of a place come in.
func (y *system) hostAt(place string) string {
	if _, host, ok := y.lanPlace(place); ok && y.ports.ids[place] == "" {
		return host
	}
	host, _ := y.bindingOf(place)
	return host.ID
}

// placeOf names where an output goes.
func (y *system) placeOf(o *flow.Output) string {
	if o.PortID == flow.MetadataPort {
		return flow.MetadataPort
	}
	network, isLAN := y.lanOf(o.PortID)
	if !isLAN {
		return y.nameOf[o.PortID]
	}
	for name, id := range y.hosts {
		if id == o.HostID {
			return y.nameOf[network] + "@" + name
		}
	}
	return y.nameOf[o.PortID]
}

// lanOf returns the network of a localnet port.
func (y *system) lanOf(portID string) (networkID string, ok bool) {
	for network, id := range y.localnets {
		if id == portID {
			return network, true
		}
	}
	return "", false
}

// otherPlaces returns where a frame comes in that goes out on a LAN: at all other hosts there.
func (y *system) otherPlaces(o *flow.Output) (places []string) {
	network, isLAN := y.lanOf(o.PortID)
	if !isLAN {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(y.hosts)) {
		if id := y.hosts[name]; id != o.HostID && y.carries(o.PortID, id) {
			places = append(places, y.nameOf[network]+"@"+name)
		}
	}
	return places
}

// carries reports whether a host is on the LAN of a localnet port.
func (y *system) carries(portID, hostID string) bool {
	for _, network := range y.physical[hostID] {
		for _, p := range y.topology.LocalnetPorts(network) {
			if p.ID == portID {
				return !y.dead[hostID]
			}
		}
	}
	return false
}

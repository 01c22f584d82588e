package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// mostNodes bounds a picture. A topology with more networks and routers is folded into its
// projects.
const mostNodes = 300

// mostExpanded bounds the ports of a network that are shown one by one.
const mostExpanded = 200

// nodeKind is a kind of nodes.
type nodeKind string

// Kinds of nodes, each in a layer of its own, except that projects stand for networks and ports
// for a part of their group.
const (
	kindOutside  nodeKind = "outside"  // the world beyond uplinks
	kindUplink   nodeKind = "uplink"   // a physical network
	kindExternal nodeKind = "external" // a network that leads outside
	kindRouter   nodeKind = "router"
	kindNetwork  nodeKind = "network"
	kindProject  nodeKind = "project" // all routers and networks of a project
	kindPorts    nodeKind = "ports"   // the ports of a network that are not shown one by one
	kindPort     nodeKind = "port"
)

// topologyView is the virtual network, or a part of it, as a graph.
type topologyView struct {
	Revision int64          `json:"revision"`
	Nodes    []topologyNode `json:"nodes"` // from the outside in, and by name
	Edges    []topologyEdge `json:"edges"`
	// Folded: projects stand for their routers and networks.
	Folded bool `json:"folded"`
	// LeftOut counts the nodes beyond the most that a picture has.
	LeftOut int `json:"left_out"`
}

type topologyNode struct {
	ID     string      `json:"id"`
	Kind   nodeKind    `json:"kind"`
	Name   string      `json:"name"`
	Detail string      `json:"detail,omitempty"`
	State  portState   `json:"state,omitempty"` // of a port; of others down when it carries nothing
	Ports  *portStates `json:"ports,omitempty"` // of kindPorts and kindProject
	// Networks and Routers count those of a project.
	Networks int `json:"networks,omitempty"`
	Routers  int `json:"routers,omitempty"`
}

type topologyEdge struct {
	From string `json:"from"` // the node further outside
	To   string `json:"to"`
}

// portState is the state of a port.
type portState string

// States of ports.
const (
	portActive  portState = "active"
	portDown    portState = "down"    // it has no interface yet, or its host is down
	portUnbound portState = "unbound" // it is on no host
	portOff     portState = "off"     // switched off by its owner
	portRouted  portState = "routed"  // bound, on a routed network, whose agents report elsewhere
)

// portStates counts ports by their state.
type portStates struct {
	Total   int `json:"total"`
	Active  int `json:"active"`
	Down    int `json:"down"`
	Unbound int `json:"unbound"`
	Off     int `json:"off"`
	Routed  int `json:"routed"`
}

func (s *portStates) add(state portState) {
	s.Total++
	switch state {
	case portActive:
		s.Active++
	case portDown:
		s.Down++
	case portUnbound:
		s.Unbound++
	case portOff:
		s.Off++
	case portRouted:
		s.Routed++
	}
}

func (s *portStates) addAll(o portStates) {
	s.Total += o.Total
	s.Active += o.Active
	s.Down += o.Down
	s.Unbound += o.Unbound
	s.Off += o.Off
	s.Routed += o.Routed
}

// stateOf returns the state of a port on a network.
func stateOf(r records.Reader, p *neutron.Port, n *neutron.Network) portState {
	switch {
	case !p.AdminStateUp:
		return portOff
	case p.BoundHostID == "":
		return portUnbound
	case n.Routed():
		return portRouted
	}
	if _, active := schema.PortStates.Peek(r, p.BoundHostID+"/"+p.ID); active {
		return portActive
	}
	return portDown
}

// ofMachine reports whether a port is one of a machine, not of the network's own devices.
func ofMachine(p *neutron.Port) bool { return !strings.HasPrefix(p.DeviceOwner, "network:") }

// topology answers with the virtual network as a graph. The parameter scope is the id of a
// project, network or router to show with its neighbours; expand is NETWORK or NETWORK:COUNT,
// repeatable: as many ports of the network are shown one by one.
func (c *console) topology(r *http.Request) (*topologyView, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	g := newGraph(snap)
	if g.expand, err = parseExpand(q["expand"]); err != nil {
		return nil, err
	}
	if scope := q.Get("scope"); scope != "" && !g.narrow(scope) {
		return nil, api.Errorf(http.StatusNotFound, "no network, router or project has the id %s", scope)
	}
	return g.view(), nil
}

// portsStep is the number of ports by which a network is expanded.
const portsStep = 20

func parseExpand(values []string) (map[string]int, error) {
	counts := map[string]int{}
	for _, v := range values {
		id, text, given := strings.Cut(v, ":")
		n := portsStep
		if given {
			var err error
			if n, err = strconv.Atoi(text); err != nil || n < 1 {
				return nil, api.Errorf(http.StatusBadRequest, "Invalid input for parameter 'expand': %q: want NETWORK or NETWORK:COUNT", v)
			}
		}
		counts[id] = min(n, mostExpanded)
	}
	return counts, nil
}

// graph collects what a picture shows.
type graph struct {
	snap     *records.Snap
	expand   map[string]int // ports to show, by network
	networks map[string]*neutron.Network
	routers  map[string]*neutron.Router
	links    []link
}

// link is a port of a router on a network.
type link struct {
	router, network string
	gateway         bool
}

func newGraph(snap *records.Snap) *graph {
	g := &graph{snap: snap, networks: map[string]*neutron.Network{}, routers: map[string]*neutron.Router{}}
	for n := range schema.Networks.All(snap) {
		g.networks[n.ID] = n
	}
	for r := range schema.Routers.All(snap) {
		g.routers[r.ID] = r
	}
	for p := range schema.RouterPorts.All(snap) {
		if port, ok := schema.Ports.Peek(snap, p.PortID); ok {
			g.links = append(g.links, link{p.RouterID, port.NetworkID, p.Gateway})
		}
	}
	return g
}

// narrow leaves the objects of a project, or a network or router, with what is one router away. It
// reports whether there is one with the id.
func (g *graph) narrow(scope string) bool {
	routers, networks := map[string]bool{}, map[string]bool{}
	if _, ok := g.networks[scope]; ok {
		networks[scope] = true
	}
	if _, ok := g.routers[scope]; ok {
		routers[scope] = true
	}
	for id, n := range g.networks {
		if n.ProjectID == scope {
			networks[id] = true
		}
	}
	for id, r := range g.routers {
		if r.ProjectID == scope {
			routers[id] = true
		}
	}
	if len(routers)+len(networks) == 0 {
		return false
	}
	for _, l := range g.links {
		// An external network has the routers of all projects: they are no neighbours.
		if networks[l.network] && (!l.gateway || l.network == scope) {
			routers[l.router] = true
		}
	}
	for _, l := range g.links {
		if routers[l.router] {
			networks[l.network] = true
		}
	}
	maps.DeleteFunc(g.networks, func(id string, _ *neutron.Network) bool { return !networks[id] })
	maps.DeleteFunc(g.routers, func(id string, _ *neutron.Router) bool { return !routers[id] })
	g.links = slices.DeleteFunc(g.links, func(l link) bool { return !routers[l.router] || !networks[l.network] })
	return true
}

// view returns the picture.
func (g *graph) view() *topologyView {
	v := &topologyView{Revision: g.snap.Revision(), Nodes: []topologyNode{}, Edges: []topologyEdge{}}
	ports := g.countPorts()
	v.Folded = len(g.networks)+len(g.routers)+len(ports) > mostNodes
	if v.Folded {
		g.addProjects(v, ports)
	} else {
		g.addObjects(v, ports)
	}
	g.addUplinks(v)
	v.trim()
	return v
}

// countPorts returns the ports of machines by network and state.
func (g *graph) countPorts() map[string]*portStates {
	counts := map[string]*portStates{}
	for p := range schema.Ports.All(g.snap) {
		n, ok := g.networks[p.NetworkID]
		if !ok || !ofMachine(p) {
			continue
		}
		if counts[n.ID] == nil {
			counts[n.ID] = &portStates{}
		}
		counts[n.ID].add(stateOf(g.snap, p, n))
	}
	return counts
}

// addObjects adds each router and network, and the ports of networks by count.
func (g *graph) addObjects(v *topologyView, ports map[string]*portStates) {
	for _, r := range g.routers {
		node := topologyNode{ID: r.ID, Kind: kindRouter, Name: r.Name}
		if !r.AdminStateUp {
			node.State = portOff
		}
		v.Nodes = append(v.Nodes, node)
	}
	for _, n := range g.networks {
		v.Nodes = append(v.Nodes, g.networkNode(n))
		if ports[n.ID] != nil {
			g.addPorts(v, n, *ports[n.ID])
		}
	}
	for _, l := range g.links {
		if g.networks[l.network].External {
			v.Edges = append(v.Edges, topologyEdge{l.network, l.router})
		} else {
			v.Edges = append(v.Edges, topologyEdge{l.router, l.network})
		}
	}
}

func (g *graph) networkNode(n *neutron.Network) topologyNode {
	node := topologyNode{ID: n.ID, Kind: kindNetwork, Name: n.Name, Detail: strings.Join(ranges(g.snap, n.ID), ", ")}
	if n.External {
		node.Kind = kindExternal
	}
	if !n.AdminStateUp {
		node.State = portOff
	}
	return node
}

// ranges returns the address ranges of a network's subnets.
func ranges(r records.Reader, networkID string) (all []string) {
	for s := range schema.Subnets.By(r, "network", networkID) {
		all = append(all, s.CIDR.String())
	}
	slices.Sort(all)
	return all
}

// addPorts adds the ports of a network that are to be shown, and the others as one node.
func (g *graph) addPorts(v *topologyView, n *neutron.Network, left portStates) {
	add := func(node topologyNode) {
		v.Nodes = append(v.Nodes, node)
		v.Edges = append(v.Edges, topologyEdge{n.ID, node.ID})
	}
	if count := g.expand[n.ID]; count > 0 {
		all := machinePorts(g.snap, n.ID)
		count = min(count, len(all))
		left = portStates{}
		for _, p := range all[count:] {
			left.add(stateOf(g.snap, p, n))
		}
		for _, p := range all[:count] {
			add(topologyNode{ID: p.ID, Kind: kindPort, Name: portName(p), Detail: addressesOf(p), State: stateOf(g.snap, p, n)})
		}
	}
	if left.Total > 0 {
		add(topologyNode{ID: n.ID + "/ports", Kind: kindPorts, Name: "ports", Ports: &left})
	}
}

// machinePorts returns the ports of machines on a network, by name.
func machinePorts(r records.Reader, networkID string) (all []*neutron.Port) {
	for p := range schema.Ports.By(r, "network", networkID) {
		if ofMachine(p) {
			all = append(all, p)
		}
	}
	sortPorts(all)
	return all
}

func sortPorts(all []*neutron.Port) {
	slices.SortFunc(all, func(a, b *neutron.Port) int {
		return cmp.Or(cmp.Compare(portName(a), portName(b)), cmp.Compare(a.ID, b.ID))
	})
}

func addressesOf(p *neutron.Port) string {
	var all []string
	for _, ip := range p.FixedIPs {
		all = append(all, ip.IPAddress.String())
	}
	return strings.Join(all, ", ")
}

// addProjects adds a node for each project, with what it has by count, and external networks.
func (g *graph) addProjects(v *topologyView, ports map[string]*portStates) {
	projects := map[string]*topologyNode{}
	of := func(id string) *topologyNode {
		if projects[id] == nil {
			projects[id] = &topologyNode{ID: id, Kind: kindProject, Name: id, Ports: &portStates{}}
		}
		return projects[id]
	}
	for id, n := range g.networks {
		if n.External {
			v.Nodes = append(v.Nodes, g.networkNode(n))
			continue
		}
		of(n.ProjectID).Networks++
		if ports[id] != nil {
			of(n.ProjectID).Ports.addAll(*ports[id])
		}
	}
	for _, r := range g.routers {
		of(r.ProjectID).Routers++
	}
	for _, node := range projects {
		v.Nodes = append(v.Nodes, *node)
	}
	for _, l := range g.links {
		if g.networks[l.network].External {
			v.Edges = append(v.Edges, topologyEdge{l.network, g.routers[l.router].ProjectID})
		}
	}
}

// addUplinks adds the physical networks below which networks are, and the world outside.
func (g *graph) addUplinks(v *topologyView) {
	carriers, uplinks := schema.Carriers(g.snap), map[string]bool{}
	for _, n := range g.networks {
		if n.PhysicalNetwork == "" {
			continue
		}
		id := "uplink/" + n.PhysicalNetwork
		if !uplinks[id] {
			uplinks[id] = true
			hosts := carriers[n.PhysicalNetwork]
			node := topologyNode{ID: id, Kind: kindUplink, Name: n.PhysicalNetwork, Detail: fmt.Sprintf("live hosts that carry it: %d", hosts)}
			if hosts == 0 {
				node.State = portDown
			}
			v.Nodes = append(v.Nodes, node)
			v.Edges = append(v.Edges, topologyEdge{outsideID, id})
		}
		to := n.ID
		if v.Folded && !n.External {
			to = n.ProjectID
		}
		v.Edges = append(v.Edges, topologyEdge{id, to})
	}
	if len(uplinks) > 0 {
		v.Nodes = append(v.Nodes, topologyNode{ID: outsideID, Kind: kindOutside, Name: "outside"})
	}
}

// outsideID is the id of the node that stands for the world outside.
const outsideID = "outside"

// layers has the kinds from the outside in.
var layers = []nodeKind{kindOutside, kindUplink, kindExternal, kindRouter, kindProject, kindNetwork, kindPort, kindPorts}

// trim sorts nodes and edges, so that the same topology gives the same picture, and leaves out what
// is beyond the most.
func (v *topologyView) trim() {
	slices.SortFunc(v.Nodes, func(a, b topologyNode) int {
		return cmp.Or(cmp.Compare(slices.Index(layers, a.Kind), slices.Index(layers, b.Kind)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	if v.LeftOut = max(0, len(v.Nodes)-mostNodes); v.LeftOut > 0 {
		v.Nodes = v.Nodes[:mostNodes]
	}
	index := map[string]int{}
	for i, n := range v.Nodes {
		index[n.ID] = i
	}
	v.Edges = slices.DeleteFunc(v.Edges, func(e topologyEdge) bool {
		_, from := index[e.From]
		_, to := index[e.To]
		return !from || !to
	})
	slices.SortFunc(v.Edges, func(a, b topologyEdge) int {
		return cmp.Or(cmp.Compare(index[a.From], index[b.From]), cmp.Compare(index[a.To], index[b.To]))
	})
	v.Edges = slices.Compact(v.Edges)
}

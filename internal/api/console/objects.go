package console

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// portsPage is the number of ports that an answer lists at a time.
const portsPage = 50

// nameView names an object.
type nameView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// objectView has what all objects have.
type objectView struct {
	nameView
	Description string `json:"description"`
	ProjectID   string `json:"project_id"`
	Revision    int64  `json:"revision"` // of the store
}

func viewOf(snap *records.Snap, o *neutron.Standard) objectView {
	return objectView{nameView{o.ID, o.Name}, o.Description, o.ProjectID, snap.Revision()}
}

// portSummary is a port in a list.
type portSummary struct {
	nameView
	Addresses []netip.Addr `json:"addresses"`
	Network   nameView     `json:"network"`
	Host      *nameView    `json:"host"` // that it is bound to; null: none
	State     portState    `json:"state"`
	Owner     string       `json:"device_owner"`
}

// portDetail is a port with all that concerns it.
type portDetail struct {
	objectView
	Summary      portSummary   `json:"summary"`
	MAC          string        `json:"mac_address"`
	Interface    string        `json:"interface"`
	DeviceID     string        `json:"device_id"`
	Router       *nameView     `json:"router"` // whose port it is; null: none's
	Floating     []nameView    `json:"floating_ips"`
	PortSecurity bool          `json:"port_security"`
	Groups       []groupDetail `json:"groups"`
	// OtherGroups counts the groups of other projects, whose rules a tenant does not see.
	OtherGroups int `json:"other_groups,omitempty"`
}

// groupDetail is a security group with its rules.
type groupDetail struct {
	objectView
	Stateful bool       `json:"stateful"`
	Rules    []ruleView `json:"rules"`
	*portList
}

// ruleView is a rule of a security group.
type ruleView struct {
	ID          string    `json:"id"`
	Direction   string    `json:"direction"`
	Ethertype   string    `json:"ethertype"`
	Protocol    string    `json:"protocol"`     // "" = any
	Ports       string    `json:"ports"`        // "" = any; of icmp the type and code
	Remote      string    `json:"remote"`       // a prefix; "" = any, or the group's members
	RemoteGroup *nameView `json:"remote_group"` // null: none
	Description string    `json:"description"`
}

// portList is a page of ports, and how many there are in all.
type portList struct {
	Ports []portSummary `json:"ports"`
	From  int           `json:"from"` // index of the first
	Total int           `json:"total"`
}

// networkDetail is a network with its subnets, routers and ports.
type networkDetail struct {
	objectView
	Type            string       `json:"type"`
	PhysicalNetwork string       `json:"physical_network"`
	SegmentationID  *int         `json:"segmentation_id"`
	MTU             int          `json:"mtu"`
	External        bool         `json:"external"`
	AdminUp         bool         `json:"admin_up"`
	Subnets         []subnetView `json:"subnets"`
	Routers         []nameView   `json:"routers"`
	portList
}

type subnetView struct {
	nameView
	CIDR    netip.Prefix `json:"cidr"`
	Gateway *netip.Addr  `json:"gateway"`
	DHCP    bool         `json:"dhcp"`
}

// routerDetail is a router with its ports, routes and floating IPs.
type routerDetail struct {
	objectView
	AdminUp    bool                `json:"admin_up"`
	Gateways   []routerEnd         `json:"gateways"`
	Interfaces []routerEnd         `json:"interfaces"`
	Routes     []neutron.HostRoute `json:"routes"`
	Floating   []floatingView      `json:"floating_ips"`
}

// routerEnd is a router's port on a network.
type routerEnd struct {
	Port      nameView     `json:"port"`
	Network   nameView     `json:"network"`
	Addresses []netip.Addr `json:"addresses"`
	SNAT      bool         `json:"snat"` // of a gateway
}

type floatingView struct {
	Address netip.Addr `json:"address"`
	Port    *nameView  `json:"port"` // null: none
}

// objectCalls returns the calls that answer with one object each, and what belongs to it.
func (c *console) objectCalls() []api.Call {
	return []api.Call{
		api.NewCall("GET /v1/ports", "the ports of machines of the caller's project, for its members, too", c.ownPorts, fromPort).ToAll(),
		api.NewCall("GET /v1/ports/{id}", "a port, and what concerns it; members see their own", c.port).ToAll(),
		detail(c, "/v1/networks/{id}", "a network, with a page of its ports", schema.Networks, (*objects).network, fromPort),
		detail(c, "/v1/routers/{id}", "a router, with its networks and floating IPs", schema.Routers, (*objects).router),
		detail(c, "/v1/groups/{id}", "a security group, with a page of its ports", schema.SecurityGroups, func(o *objects, g *neutron.SecurityGroup) *groupDetail {
			v := o.group(g)
			v.portList = o.page(slices.Collect(schema.Ports.By(o.snap, "security_group", g.ID)))
			return v
		}, fromPort),
	}
}

var fromPort = api.Parameter{Name: "from", Text: "index of the first port of the page"}

// detail returns a call that answers with an object of a table.
func detail[T, V any](c *console, path, summary string, table *records.Table[T], view func(*objects, *T) *V, query ...api.Parameter) api.Call {
	return api.NewCall("GET "+path, summary, func(r *http.Request) (*V, error) {
		o, err := c.objects(r)
		if err != nil {
			return nil, err
		}
		found, ok := table.Peek(o.snap, r.PathValue("id"))
		if !ok {
			return nil, api.Errorf(http.StatusNotFound, "%s %s could not be found", words(table.Name()), r.PathValue("id"))
		}
		return view(o, found), nil
	}, query...)
}

// objects returns what makes views of objects as they are now, with the page of ports that a
// request is about.
func (c *console) objects(r *http.Request) (*objects, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	o := &objects{snap: snap}
	if from := r.URL.Query().Get("from"); from != "" {
		if o.from, err = strconv.Atoi(from); err != nil || o.from < 0 {
			return nil, api.Errorf(http.StatusBadRequest, "Invalid input for parameter 'from': %q: want the index of the first port", from)
		}
	}
	return o, nil
}

// objects makes views of objects.
type objects struct {
	snap *records.Snap
	from int // index of the first port to list
}

func (o *objects) port(p *neutron.Port) *portDetail {
	v := &portDetail{objectView: viewOf(o.snap, &p.Standard), Summary: o.summary(p), MAC: p.MACAddress.String(), Interface: p.InterfaceName,
		DeviceID: p.DeviceID, PortSecurity: p.PortSecurityEnabled, Floating: []nameView{}, Groups: []groupDetail{}}
	if x, ok := schema.RouterPorts.Peek(o.snap, p.ID); ok {
		if r, ok := schema.Routers.Peek(o.snap, x.RouterID); ok {
			v.Router = &nameView{r.ID, r.Name}
		}
	}
	for f := range schema.FloatingIPs.By(o.snap, "port", p.ID) {
		v.Floating = append(v.Floating, nameView{f.ID, f.FloatingIPAddress.String()})
	}
	for _, id := range p.SecurityGroups {
		if g, ok := schema.SecurityGroups.Peek(o.snap, id); ok {
			v.Groups = append(v.Groups, *o.group(g))
		}
	}
	return v
}

func (o *objects) summary(p *neutron.Port) portSummary {
	v := portSummary{nameView: nameView{p.ID, portName(p)}, Addresses: o.addresses(p), Owner: p.DeviceOwner}
	if n, ok := schema.Networks.Peek(o.snap, p.NetworkID); ok {
		v.Network, v.State = nameView{n.ID, n.Name}, stateOf(o.snap, p, n)
	}
	if h, ok := schema.Hosts.Peek(o.snap, p.BoundHostID); ok {
		v.Host = &nameView{h.ID, h.Name}
	}
	return v
}

func (o *objects) addresses(p *neutron.Port) []netip.Addr {
	all := []netip.Addr{}
	for _, ip := range p.FixedIPs {
		all = append(all, ip.IPAddress)
	}
	return all
}

// page returns the ports to list of some.
func (o *objects) page(all []*neutron.Port) *portList {
	sortPorts(all)
	l := &portList{Ports: []portSummary{}, From: min(o.from, len(all)), Total: len(all)}
	for _, p := range all[l.From:min(l.From+portsPage, len(all))] {
		l.Ports = append(l.Ports, o.summary(p))
	}
	return l
}

func (o *objects) group(g *neutron.SecurityGroup) *groupDetail {
	v := &groupDetail{objectView: viewOf(o.snap, &g.Standard), Stateful: g.Stateful, Rules: []ruleView{}}
	for i := range g.Rules {
		v.Rules = append(v.Rules, o.rule(&g.Rules[i]))
	}
	slices.SortFunc(v.Rules, func(a, b ruleView) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Ethertype, b.Ethertype), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.ID, b.ID))
	})
	return v
}

func (o *objects) rule(r *neutron.SecurityGroupRule) ruleView {
	v := ruleView{ID: r.ID, Direction: r.Direction, Ethertype: r.Ethertype, Protocol: r.Protocol, Remote: r.RemoteIPPrefix, Description: r.Description}
	if r.PortRangeMin != nil {
		v.Ports = strconv.Itoa(*r.PortRangeMin)
	}
	if r.PortRangeMax != nil && (r.PortRangeMin == nil || *r.PortRangeMax != *r.PortRangeMin) {
		v.Ports += "-" + strconv.Itoa(*r.PortRangeMax)
	}
	if g, ok := schema.SecurityGroups.Peek(o.snap, r.RemoteGroupID); ok {
		v.RemoteGroup = &nameView{g.ID, g.Name}
	}
	if g, ok := schema.AddressGroups.Peek(o.snap, r.RemoteAddressGroupID); ok {
		v.Remote = "address group " + cmp.Or(g.Name, g.ID)
	}
	return v
}

func (o *objects) network(n *neutron.Network) *networkDetail {
	v := &networkDetail{objectView: viewOf(o.snap, &n.Standard), Type: n.NetworkType, PhysicalNetwork: n.PhysicalNetwork, SegmentationID: n.SegmentationID,
		MTU: n.MTU, External: n.External, AdminUp: n.AdminStateUp, Subnets: []subnetView{}, Routers: []nameView{}}
	for s := range schema.Subnets.By(o.snap, "network", n.ID) {
		v.Subnets = append(v.Subnets, subnetView{nameView{s.ID, s.Name}, s.CIDR, s.GatewayIP, s.EnableDHCP})
	}
	slices.SortFunc(v.Subnets, func(a, b subnetView) int { return cmp.Compare(a.CIDR.String(), b.CIDR.String()) })
	ports := slices.Collect(schema.Ports.By(o.snap, "network", n.ID))
	for _, p := range ports {
		if x, ok := schema.RouterPorts.Peek(o.snap, p.ID); ok {
			if r, ok := schema.Routers.Peek(o.snap, x.RouterID); ok {
				v.Routers = append(v.Routers, nameView{r.ID, r.Name})
			}
		}
	}
	sortNames(v.Routers)
	v.Routers = slices.Compact(v.Routers)
	v.portList = *o.page(ports)
	return v
}

func sortNames(all []nameView) {
	slices.SortFunc(all, func(a, b nameView) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
}

func (o *objects) router(r *neutron.Router) *routerDetail {
	v := &routerDetail{objectView: viewOf(o.snap, &r.Standard), AdminUp: r.AdminStateUp, Gateways: []routerEnd{}, Interfaces: []routerEnd{},
		Routes: append([]neutron.HostRoute{}, r.Routes...), Floating: []floatingView{}}
	for x := range schema.RouterPorts.By(o.snap, "router", r.ID) {
		p, ok := schema.Ports.Peek(o.snap, x.PortID)
		if !ok {
			continue
		}
		end := routerEnd{Port: nameView{p.ID, portName(p)}, Addresses: o.addresses(p)}
		if n, ok := schema.Networks.Peek(o.snap, p.NetworkID); ok {
			end.Network = nameView{n.ID, n.Name}
		}
		if !x.Gateway {
			v.Interfaces = append(v.Interfaces, end)
			continue
		}
		end.SNAT = slices.ContainsFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == p.ID && g.EnableSNAT })
		v.Gateways = append(v.Gateways, end)
	}
	for _, list := range [][]routerEnd{v.Gateways, v.Interfaces} {
		slices.SortFunc(list, func(a, b routerEnd) int {
			return cmp.Or(cmp.Compare(a.Network.Name, b.Network.Name), cmp.Compare(a.Port.ID, b.Port.ID))
		})
	}
	for f := range schema.FloatingIPs.By(o.snap, "router", r.ID) {
		one := floatingView{Address: f.FloatingIPAddress}
		if p, ok := schema.Ports.Peek(o.snap, f.PortID); ok {
			one.Port = &nameView{p.ID, portName(p)}
		}
		v.Floating = append(v.Floating, one)
	}
	slices.SortFunc(v.Floating, func(a, b floatingView) int { return a.Address.Compare(b.Address) })
	return v
}

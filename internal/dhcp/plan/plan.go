// Package plan decides what the DHCP agent of one host does (spec calico.md §17, seed 004): the
// addresses of its gateway device, the arguments and files of dnsmasq, router advertisements and,
// after a change, the least disruptive step. It is pure: this host's endpoints and the subnets in,
// one Plan out, whatever the order in which they came.
//
//	endpoints, subnets ── New ──▶ Plan ── Running.Step ──▶ files to write or remove,
//	                                                       restart now, soon or not at all
//
// One dnsmasq gives the host's addresses, another answers DNS. They read directories, with one file
// for each port or subnet, because a file that is moved in is read at once, while a signal to read
// again kills version 2.90.
package plan

import (
	"net/netip"
	"reflect"
	"slices"

	"heddle/calico"
)

// Directories below the agent's. They hold one file for each port or subnet; a file has to be
// written elsewhere and moved in, as dnsmasq reads new files at once.
const (
	HostsDir   = "hosts"      // MAC addresses, names and addresses
	OptionsDir = "opts"       // DHCP options
	NamesDir   = "addn_hosts" // names for DNS
)

// Infinite is a lease without end.
const Infinite = -1

// Options are the operator's settings.
type Options struct {
	Dir    string // absolute; of dnsmasq's files
	Device string // that carries the gateways' addresses
	// User and Group are dnsmasq's once it has its sockets and its lease file. It keeps the
	// capabilities for network administration, raw sockets and low ports. Default nobody and
	// nogroup.
	User, Group       string
	InterfacePrefixes []string // how the names of served interfaces begin
	LeaseSeconds      int      // or Infinite
	// RenewalSeconds and RebindingSeconds set when machines renew; 0: dnsmasq's defaults.
	RenewalSeconds, RebindingSeconds int

	Domain string // of machines without an fqdn; "" for none
	MTU    int    // 0: dnsmasq sends none
	// Servers resolve names that dnsmasq does not have. Without any, LocalResolve uses the host's.
	Servers      []string // address, address#port or /domain/address
	LocalResolve bool
	ConfigFile   string // absolute; of further configuration of dnsmasq's own; "" for none
	Broadcast    bool   // answers always go to the broadcast address
	LogQueries   bool   // of DNS
	LogDHCP      bool   // how requests are handled, not their outcome alone
	NoIPv6       bool   // the host has none: IPv6 addresses are passed over
	// Advertise has dnsmasq send router advertisements, of all subnets on every interface.
	// Otherwise the agent sends each Port's Advertisement.
	Advertise bool
}

// Plan is the desired state of a host's DHCP agent.
type Plan struct {
	// Gateways are the addresses of the device in order, each with the prefix length of its subnet:
	// the gateway of each subnet, and where that is link-local the subnet's own address.
	Gateways []netip.Prefix
	// Arguments are those of the dnsmasq that gives addresses, without --dhcp-leasefile, as each
	// instance has a file of its own. Without served ports there are none.
	Arguments []string
	// Resolver are the arguments of the dnsmasq that answers DNS, without --hostsdir for NamesDir.
	// Without served ports there are none.
	Resolver []string
	// Files are the contents of all files, by path below Options.Dir: dir/name.
	Files    map[string]string
	Ports    []Port    // the served ones, in key order
	Waiting  []Waiting // all other endpoints, in key order
	Problems []Problem // what could not be honoured in what is served nonetheless; in key order

	lease int
}

// Port is an endpoint that is served.
type Port struct {
	Key           calico.WorkloadEndpointKey
	Interface     string // on the host; its files are named after it
	MAC           calico.MAC
	Name          string // full name of its first address
	Addresses     []Address
	Advertisement *Advertisement // nil: it has no IPv6
}

// Address is an address of a port.
type Address struct {
	IP     netip.Addr
	Subnet string // its ID
}

// Advertisement is the content of router advertisements on a port's interface (RFC 4861). The
// router is the host, by its link-local address there.
type Advertisement struct {
	Managed  bool // addresses by DHCPv6
	Other    bool // the rest by DHCPv6
	Prefixes []AdvertisedPrefix
	MTU      int // 0: none
	// DNSServers and Domain are for machines that ask no DHCPv6 server (RFC 8106).
	DNSServers []netip.Addr
	Domain     string
	// LeaseSeconds is the lifetime of prefixes, or Infinite.
	LeaseSeconds int
}

// AdvertisedPrefix is a prefix of an advertisement. None is on-link: a machine sends everything to
// its host.
type AdvertisedPrefix struct {
	Prefix     netip.Prefix
	Autonomous bool // machines make their addresses themselves
}

// Waiting is an endpoint that is not served, with the reason.
type Waiting struct {
	Key    calico.WorkloadEndpointKey
	Reason string
}

// Problem is something of an object that could not be honoured.
type Problem struct {
	Key    calico.Key
	Reason string
}

// New makes the plan of a host from its endpoints and all subnets. Objects that could not be
// decoded are nil.
func New(o Options, endpoints map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint, subnets map[calico.DHCPSubnetKey]*calico.DHCPSubnet) *Plan {
	return new(Planner).Plan(o, endpoints, subnets)
}

// Planner makes one plan after another. It keeps its findings about objects, and examines only
// changed ones; its plans are those of [New]. The zero Planner is ready for use, by one goroutine.
type Planner struct {
	options Options
	subnets map[string]*subnet // by ID
	// networks are the IPv4 subnets of each network, on whatever host, by network ID and in order.
	networks map[string][]netip.Prefix
	cache    map[calico.WorkloadEndpointKey]*candidate
	order    []calico.WorkloadEndpointKey // of cache
}

// Plan makes the plan of a host as [New] does. The objects must not be changed afterwards.
func (m *Planner) Plan(o Options, endpoints map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint, subnets map[calico.DHCPSubnetKey]*calico.DHCPSubnet) *Plan {
	if m.cache == nil || !reflect.DeepEqual(o, m.options) {
		*m = Planner{options: o, cache: map[calico.WorkloadEndpointKey]*candidate{}}
	}
	m.learn(subnets)
	m.sort(endpoints)
	p := &planner{options: o, known: m.subnets, networks: m.networks, plan: &Plan{Files: make(map[string]string, 2*len(endpoints)), lease: o.LeaseSeconds}}
	p.choose(p.candidates(m.order, endpoints, m.cache))
	p.serve()
	sortByKey(p.plan)
	return p.plan
}

// learn takes the subnets. After a change all endpoints are examined again, as machines receive
// routes to the other subnets of their network.
func (m *Planner) learn(all map[calico.DHCPSubnetKey]*calico.DHCPSubnet) {
	same := len(all) == len(m.subnets)
	known := make(map[string]*subnet, len(all))
	for key, from := range all {
		s := m.subnets[key.Subnet]
		if s == nil || s.DHCPSubnet != from {
			s, same = readSubnet(m.options, key.Subnet, from), false
		}
		known[key.Subnet] = s
	}
	if !same || m.subnets == nil {
		m.subnets, m.networks = known, networksOf(known)
		clear(m.cache)
		m.order = nil
	}
}

// sort brings the keys into order. Those in the cache are in order already.
func (m *Planner) sort(endpoints map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint) {
	kept := slices.DeleteFunc(m.order, func(key calico.WorkloadEndpointKey) bool {
		_, there := endpoints[key]
		if !there {
			delete(m.cache, key)
		}
		return !there
	})
	var added []calico.WorkloadEndpointKey
	for key := range endpoints {
		if m.cache[key] == nil {
			added = append(added, key)
		}
	}
	slices.SortFunc(added, compareKeys)
	m.order = merge(kept, added)
}

// merge joins two lists of keys that are in order.
func merge(a, b []calico.WorkloadEndpointKey) []calico.WorkloadEndpointKey {
	if len(b) == 0 {
		return a
	}
	all := make([]calico.WorkloadEndpointKey, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareKeys(a[0], b[0]) < 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// planner makes one plan.
type planner struct {
	options  Options
	known    map[string]*subnet // by ID
	used     []*subnet          // by ID, of those that ports are served in
	networks map[string][]netip.Prefix
	served   []*candidate // in key order
	plan     *Plan
}

func (p *planner) wait(key calico.WorkloadEndpointKey, reason string) {
	p.plan.Waiting = append(p.plan.Waiting, Waiting{key, reason})
}

func (p *planner) problem(key calico.Key, reason string) {
	p.plan.Problems = append(p.plan.Problems, Problem{key, reason})
}

// serve turns the served endpoints into addresses, arguments and files.
func (p *planner) serve() {
	if len(p.served) == 0 {
		return
	}
	for _, s := range p.used {
		p.plan.Gateways = append(p.plan.Gateways, netip.PrefixFrom(s.server, s.CIDR.Bits()))
		p.addFile(OptionsDir, s.tag, p.subnetOptions(s)+p.extraLines(s))
	}
	p.plan.Ports = make([]Port, len(p.served))
	for i, c := range p.served {
		p.plan.Ports[i] = c.port
		p.addFile(NamesDir, c.Name, c.names)
		p.addFile(HostsDir, c.Name, c.hosts)
		for _, reason := range c.problems {
			p.problem(c.key, reason)
		}
	}
	p.plan.Arguments, p.plan.Resolver = p.arguments(), p.options.resolver()
}

func (p *planner) addFile(dir, name, content string) {
	if content != "" {
		p.plan.Files[dir+"/"+name] = content
	}
}

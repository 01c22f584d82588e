package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
)

const (
	customFilters = "custom_filters/" // and v4/NAME or v6/NAME
	// interfacePrefix is the policy agent's setting for the names of workloads' interfaces (spec
	// §14).
	interfacePrefix        = "InterfacePrefix"
	defaultInterfacePrefix = "cali"
)

// Entry is a key of etcd with its value.
type Entry struct {
	Path  string
	Value []byte
}

// Prefixes returns the prefixes of etcd that a host's plan depends on, without its blocks.
func Prefixes(host string) []string {
	return []string{
		"/calico/bgp/v1/",
		"/calico/v1/ipam/",
		"/calico/v1/config/bgp_", // the other spelling of mesh and global peers
		"/calico/v1/host/" + host + "/bgp_peer_",
		"/calico/v1/config/" + interfacePrefix,
		"/calico/v1/host/" + host + "/config/" + interfacePrefix,
	}
}

// reading holds the decoded entries.
type reading struct {
	hosts   map[string]hostAddresses
	global  uint32 // AS number, 0: none is set
	mesh    bool
	peers   []definedPeer  // of this host and of all
	pools   []calico.Pool  // by prefix
	filters []customFilter // by name
	// interfaces are the prefixes of workloads' interfaces for the host and for all hosts; "": not
	// set.
	interfaces [2]string
	logLevels  [2]string // likewise
	problems   []Problem
}

type definedPeer struct {
	peer   calico.BGPPeer
	origin Origin
}

type customFilter struct {
	family           Family
	name, path, text string
}

// hostAddresses are a host's own: one in each family, IPv4 first.
type hostAddresses struct {
	addresses [2]netip.Addr
	network   netip.Prefix // IPv4
	asNumber  uint32       // 0: the global one
}

// of returns the host's own address in the family of another.
func (h hostAddresses) of(other netip.Addr) netip.Addr {
	if other.Is4() {
		return h.addresses[0]
	}
	return h.addresses[1]
}

// read sorts the entries. Of a key with both spellings the entry at its own path counts.
func read(host string, entries []Entry) *reading {
	r := &reading{hosts: map[string]hostAddresses{}, mesh: true}
	chosen := map[calico.Key]Entry{}
	for _, e := range entries {
		key, ok := calico.ParseKey(e.Path)
		if !ok {
			continue
		}
		if _, twice := chosen[key]; !twice || !calico.IsAlias(e.Path) {
			chosen[key] = e
		}
	}
	for key, e := range chosen {
		if err := r.entry(host, key, e); err != nil {
			r.problems = append(r.problems, Problem{e.Path, err.Error()})
		}
	}
	slices.SortFunc(r.peers, func(a, b definedPeer) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), a.peer.IP.Compare(b.peer.IP), cmp.Compare(a.peer.ASNumber, b.peer.ASNumber))
	})
	slices.SortFunc(r.pools, func(a, b calico.Pool) int { return a.CIDR.Compare(b.CIDR) })
	slices.SortFunc(r.filters, func(a, b customFilter) int { return cmp.Compare(a.name, b.name) })
	return r
}

// entry takes in one key, unless it is another host's. One that cannot be decoded counts as absent,
// except that it turns the mesh off.
func (r *reading) entry(host string, key calico.Key, e Entry) error {
	object, err := calico.Decode(key, e.Value)
	if err != nil {
		if key == (calico.BGPGlobalConfigKey{Name: "node_mesh"}) {
			r.mesh = false
			err = fmt.Errorf("the mesh is off: %w", err)
		}
		return err
	}
	switch key := key.(type) {
	case calico.BGPGlobalConfigKey:
		r.globalConfig(key.Name, object, e)
	case calico.BGPNodeConfigKey:
		if key.Host == host && key.Name == "loglevel" {
			r.logLevels[0] = object.(string)
		}
		return r.hostConfig(key, object)
	case calico.BGPGlobalPeerKey:
		r.peers = append(r.peers, definedPeer{*object.(*calico.BGPPeer), Global})
	case calico.BGPNodePeerKey:
		if key.Host == host {
			r.peers = append(r.peers, definedPeer{*object.(*calico.BGPPeer), OwnOfHost})
		}
	case calico.HostConfigKey:
		if key.Host == host && key.Name == interfacePrefix {
			r.interfaces[0] = object.(string)
		}
	case calico.GlobalConfigKey:
		if key.Name == interfacePrefix {
			r.interfaces[1] = object.(string)
		}
	case calico.PoolKey:
		r.pools = append(r.pools, *object.(*calico.Pool))
	}
	return nil
}

func (r *reading) globalConfig(name string, object any, e Entry) {
	switch {
	case name == "as_num":
		r.global = object.(uint32)
	case name == "node_mesh":
		r.mesh = object.(*calico.NodeMesh).Enabled
	case name == "loglevel":
		r.logLevels[1] = object.(string)
	case strings.HasPrefix(name, customFilters):
		family, name, _ := strings.Cut(strings.TrimPrefix(name, customFilters), "/")
		f := customFilter{IPv4, name, e.Path, string(e.Value)}
		if family == "v6" {
			f.family = IPv6
		}
		r.filters = append(r.filters, f)
	}
}

func (r *reading) hostConfig(key calico.BGPNodeConfigKey, object any) (err error) {
	h := r.hosts[key.Host]
	switch key.Name {
	case "ip_addr_v4":
		h.addresses[0], err = ownAddress(object.(netip.Addr))
	case "ip_addr_v6":
		h.addresses[1], err = ownAddress(object.(netip.Addr))
	case "network_v4":
		if p := object.(netip.Prefix); p.IsValid() {
			h.network = p.Masked()
		}
	case "as_num":
		h.asNumber = object.(uint32)
	default:
		return nil
	}
	r.hosts[key.Host] = h
	return err
}

// ownAddress refuses addresses by which no other host can reach this one; none at all is fine.
func ownAddress(a netip.Addr) (netip.Addr, error) {
	if a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return netip.Addr{}, fmt.Errorf("%s is no address by which other hosts reach this one", a)
	}
	return a, nil
}

// custom returns the custom filters of a family, in the order of their names.
func (r *reading) custom(f Family) Filter {
	var all Filter
	for _, c := range r.filters {
		if c.family != f {
			continue
		}
		filter, err := parseCustom(f, c.text)
		if err != nil {
			r.problems = append(r.problems, Problem{c.path, "of this filter only what rejects is honoured: " + err.Error()})
		}
		all = append(all, filter...)
	}
	return all
}

// workloadPrefixes returns the prefixes of workloads' interfaces.
func (r *reading) workloadPrefixes() []string {
	var all []string
	for _, p := range strings.Split(cmp.Or(r.interfaces[0], r.interfaces[1], defaultInterfacePrefix), ",") {
		if p = strings.TrimSpace(p); p != "" {
			all = append(all, p)
		}
	}
	return all
}

package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/calico/legacy"
	"heddle/internal/policy/calc"
	"heddle/internal/store/follow"
)

// model holds everything the agent has read from etcd. It is pure: effects go to changed and out.
type model struct {
	host     string
	calc     *calc.Calc // endpoints, profiles, tiers and policies
	merger   *legacy.Merger
	revision int64
	complete bool              // a full update has arrived
	ready    bool              // /calico/v1/Ready is "true"
	seen     map[string]int64  // revision of the last write of each key, by path
	global   map[string]string // settings
	own      map[string]string // settings of this host
	pools    map[netip.Prefix]*calico.Pool
	hostIPs  map[string]netip.Addr // bird_ip of each host
	bgpIPs   map[string]netip.Addr // ip_addr_v4 of each host
	bad      map[string]*badObject // unreadable objects, by path
	badText  []string              // descriptions of unreadable objects, see describeUnreadable
	hidden   map[calico.Key]bool   // legacy objects with a v1 object of the same name
	spelled  map[calico.Key]string // paths that are not the canonical path of their key
	changed  modelChanges
	out      *requests
}

// modelChanges are the parts of the model that have changed since the last decision.
type modelChanges struct {
	opened     bool // Ready has become "true"
	settings   bool
	network    bool // pools and addresses of hosts
	policy     bool // input of calc
	problems   bool // input of calc that concerns more than one endpoint
	unreadable bool
}

func newModel(host string, out *requests) model {
	return model{host: host, calc: calc.New(host), merger: legacy.NewMerger(), seen: map[string]int64{},
		global: map[string]string{}, own: map[string]string{}, pools: map[netip.Prefix]*calico.Pool{},
		hostIPs: map[string]netip.Addr{}, bgpIPs: map[string]netip.Addr{}, bad: map[string]*badObject{},
		hidden: map[calico.Key]bool{}, spelled: map[calico.Key]string{}, changed: modelChanges{settings: true}, out: out}
}

func (m *model) apply(u follow.Update) {
	if u.Full {
		m.applyAll(u)
	}
	for _, event := range u.Events {
		switch {
		case !isRelevant(event.Key):
		case event.Deleted:
			m.applyKey(event.Key, nil, 0)
		default:
			m.applyKey(event.Key, event.Value, event.ModRevision)
		}
	}
	m.revision = u.Revision
}

// applyAll applies a full update: keys that are missing from it are gone.
func (m *model) applyAll(u follow.Update) {
	present := make(map[string]bool, len(u.All))
	for _, kv := range u.All {
		if !isRelevant(kv.Key) {
			continue
		}
		present[kv.Key] = true
		if mod, ok := m.seen[kv.Key]; !ok || mod != kv.ModRevision || u.Diverged {
			m.applyKey(kv.Key, kv.Value, kv.ModRevision)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(m.seen)) {
		if !present[path] {
			m.applyKey(path, nil, 0)
		}
	}
	if !m.complete {
		m.out.info("read the model", "revision", u.Revision, "keys", len(present))
	}
	m.complete = true
	m.out.recheck = true
}

// applyKey applies one key; a revision of 0 means that it is gone.
func (m *model) applyKey(path string, value []byte, mod int64) {
	exists := mod != 0
	setOrDelete(m.seen, path, mod, exists)
	key, ok := calico.ParseKey(path)
	if !ok || useOf(key) == unused || m.isShadowed(key, path, exists) {
		return
	}
	var object any
	var err error
	if exists {
		if object, err = calico.Decode(key, value); err != nil {
			object = nil
		}
	}
	switch key := key.(type) {
	case calico.ReadyKey:
		ready := exists && string(value) == "true"
		m.changed.opened = m.changed.opened || ready && !m.ready
		m.ready = ready
	case calico.GlobalConfigKey:
		setOrDelete(m.global, key.Name, string(value), exists)
		m.changed.settings = true
	case calico.HostConfigKey:
		if key.Host == m.host && !strings.EqualFold(key.Name, "marker") {
			setOrDelete(m.own, key.Name, string(value), exists)
			m.changed.settings = true
		}
	case calico.PoolKey:
		pool, _ := object.(*calico.Pool)
		setOrDelete(m.pools, key.CIDR, pool, pool != nil)
		m.changed.network = true
	case calico.HostIPKey:
		m.applyAddress(m.hostIPs, key.Host, object)
	case calico.BGPNodeConfigKey:
		m.applyAddress(m.bgpIPs, key.Host, object)
	default:
		m.applyPolicy(key, object, value, err)
	}
	m.noteUnreadable(key, path, err, mod)
}

func (m *model) applyAddress(addresses map[string]netip.Addr, host string, object any) {
	ip, ok := object.(netip.Addr)
	setOrDelete(addresses, host, ip, ok && ip.Is4())
	m.changed.network = true
}

// isShadowed reports whether a value does not count, because the canonical path of its key has one
// too. When that goes, a full update is requested, which brings the other one back.
func (m *model) isShadowed(key calico.Key, path string, exists bool) bool {
	canonical := path
	if strings.ContainsAny(path, "%:") { // no other keys can be written in two ways
		canonical = pathOf(key)
	}
	if canonical != path {
		setOrDelete(m.spelled, key, path, exists)
		_, shadowed := m.seen[canonical]
		return shadowed
	}
	if other, ok := m.spelled[key]; ok && !exists {
		delete(m.seen, other) // or the full update would find it unchanged
		m.out.relist = true
	}
	return false
}

func setOrDelete[K comparable, V any](m map[K]V, key K, value V, set bool) {
	if set {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// applyPolicy passes objects on to calc, without legacy objects that v1 objects hide.
func (m *model) applyPolicy(key calico.Key, object any, value []byte, err error) {
	if err != nil {
		object = unreadable{partial: PartOf(key, value), reason: err.Error()}
	}
	m.changed.policy = true
	m.changed.problems = m.changed.problems || useOf(key) == forManyEndpoints
	merged := m.merger.Update(key, object)
	for _, c := range merged.Changes {
		if u, ok := c.Object.(unreadable); ok {
			m.calc.Invalid(c.Key, u.partial, u.reason)
		} else {
			m.calc.Update(c.Key, c.Object)
		}
	}
	for _, h := range merged.Hidden {
		m.hidden[h] = true
		m.out.warn("a v1 object hides a legacy object", "kind", h.Kind(), "key", pathOf(h))
	}
	for _, h := range merged.Shown {
		delete(m.hidden, h)
	}
}

func (m *model) localAddress() netip.Addr {
	if ip, ok := m.hostIPs[m.host]; ok {
		return ip
	}
	return m.bgpIPs[m.host]
}

// peers returns the addresses by which tunnels and routes reach the other hosts, in order.
func (m *model) peers() []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, addresses := range []map[string]netip.Addr{m.hostIPs, m.bgpIPs} {
		for name, ip := range addresses {
			if name != m.host {
				all[ip] = true
			}
		}
	}
	delete(all, m.localAddress())
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// ipipSources returns the addresses from which IPIP packets may come (spec §10), in order.
func (m *model) ipipSources() []netip.Addr {
	return slices.Compact(slices.SortedFunc(maps.Values(m.hostIPs), netip.Addr.Compare))
}

// otherSubtrees are the prefixes of the model that do not matter to policy.
var otherSubtrees = []string{"/calico/ipam/", "/calico/bgp/v1/global/", "/calico/felix/", "/calico/dhcp/", "/calico/openstack/"}

// isRelevant reports whether a key may matter to policy.
func isRelevant(key string) bool {
	return !slices.ContainsFunc(otherSubtrees, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// use is the purpose for which the agent reads a key.
type use uint8

const (
	unused           use = iota
	forAgent             // settings, pools and addresses
	forOneEndpoint       // input of calc that concerns one endpoint
	forManyEndpoints     // other input of calc
)

func useOf(key calico.Key) use {
	switch key := key.(type) {
	case calico.ReadyKey, calico.GlobalConfigKey, calico.HostConfigKey, calico.PoolKey, calico.HostIPKey:
		return forAgent
	case calico.BGPNodeConfigKey:
		if key.Name == "ip_addr_v4" {
			return forAgent
		}
	case calico.WorkloadEndpointKey, calico.HostEndpointKey:
		return forOneEndpoint
	case calico.ProfileRulesKey, calico.ProfileTagsKey, calico.ProfileLabelsKey, calico.PolicyKey, calico.TierKey:
		return forManyEndpoints
	}
	return unused
}

func pathOf(k calico.Key) string {
	path, err := k.Path()
	if err != nil {
		return string(k.Kind())
	}
	return path
}

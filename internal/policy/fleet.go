package policy

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/judge"
	"heddle/internal/store/schema"
)

// Fleet decides what the agents of all hosts do by Calico's model. It takes the same steps as they
// do, and lacks what is known on a host alone: the settings in its file and environment, and its
// own interfaces. Each host's MaxIpsetSize is the global one. It is for one goroutine.
type Fleet struct {
	model    model
	objects  map[string]*schema.CalicoObject
	settings map[string]map[string]string // of hosts, by name
	syncs    int64
	shared   judge.Rules
	hosts    map[string]*fleetHost
	exempt   func(host, name string) bool
}

// fleetHost is a host of a Fleet.
type fleetHost struct {
	workloads map[calico.WorkloadEndpointKey]*calc.Workload
	hosts     map[calico.HostEndpointKey]*calc.Host
	decided   *decided // nil: not since the last change
}

// decided holds what the agent of a host decides.
type decided struct {
	settings Settings
	config   judge.Config
	assigned assignment
	rules    *judge.Rules
}

// NewFleet returns a Fleet without objects.
func NewFleet() *Fleet {
	f := &Fleet{model: newModel("", &requests{}), objects: map[string]*schema.CalicoObject{}, settings: map[string]map[string]string{}, hosts: map[string]*fleetHost{},
		exempt: func(string, string) bool { return false }}
	f.model.calc = calc.NewForAll()
	return f
}

// Sync makes the objects those that are stored. Objects that are the same as before cost nothing.
func (f *Fleet) Sync(all iter.Seq[*schema.CalicoObject]) {
	before, now := f.objects, map[string]*schema.CalicoObject{}
	f.syncs++
	for o := range all {
		now[o.Path] = o
		if before[o.Path] != o {
			f.set(o.Path, o)
		}
	}
	for path := range before {
		if now[path] == nil {
			f.set(path, nil)
		}
	}
	f.objects = now
	if f.model.out.relist { // what was shadowed by another spelling of its key counts again
		for path, o := range now {
			if _, ok := f.model.seen[path]; !ok {
				f.set(path, o)
			}
		}
	}
	*f.model.out = requests{}
	f.settle()
}

// set changes an object, without what follows; nil deletes it.
func (f *Fleet) set(path string, o *schema.CalicoObject) {
	if key, ok := calico.ParseKey(path); ok {
		if k, ok := key.(calico.HostConfigKey); ok {
			if f.settings[k.Host] == nil {
				f.settings[k.Host] = map[string]string{}
			}
			setOrDelete(f.settings[k.Host], k.Name, string(valueOf(o)), o != nil && !strings.EqualFold(k.Name, "marker"))
			f.model.changed.settings = true
			return
		}
	}
	if o == nil {
		f.model.applyKey(path, nil, 0)
		return
	}
	f.model.applyKey(path, o.Value, f.syncs)
}

func valueOf(o *schema.CalicoObject) []byte {
	if o == nil {
		return nil
	}
	return o.Value
}

// settle works out what follows from the changes so far.
func (f *Fleet) settle() {
	if f.model.changed.settings {
		global, _ := Resolve(Sources{Global: f.model.global})
		f.model.calc.SetMaxSetSize(global.MaxSetSize)
		for _, h := range f.hosts {
			h.decided = nil
		}
	}
	f.model.changed = modelChanges{}
	c := f.model.calc.Changes()
	f.shared.Apply(&calc.Changes{Sets: c.Sets, Lists: c.Lists})
	for key, w := range c.Workloads {
		setOrDelete(f.changed(key.Host).workloads, key, w, w != nil)
	}
	for key, e := range c.Hosts {
		setOrDelete(f.changed(key.Host).hosts, key, e, e != nil)
	}
}

// changed returns a host to change its endpoints.
func (f *Fleet) changed(name string) *fleetHost {
	h := f.hosts[name]
	if h == nil {
		h = &fleetHost{workloads: map[calico.WorkloadEndpointKey]*calc.Workload{}, hosts: map[calico.HostEndpointKey]*calc.Host{}}
		f.hosts[name] = h
	}
	h.decided = nil
	return h
}

// Try makes changes, calls try, and takes the changes back. An object without a value is deleted.
func (f *Fleet) Try(changes []schema.CalicoObject, try func()) {
	before := map[string]*schema.CalicoObject{}
	put := func(path string, o *schema.CalicoObject) {
		f.set(path, o)
		setOrDelete(f.objects, path, o, o != nil)
	}
	for i := range changes {
		o := &changes[i]
		if _, ok := before[o.Path]; !ok {
			before[o.Path] = f.objects[o.Path]
		}
		if o.Value == nil {
			o = nil
		}
		put(changes[i].Path, o)
	}
	f.settle()
	defer func() {
		for path, o := range before {
			put(path, o)
		}
		f.settle()
	}()
	try()
}

// SetExempt sets what reports whether an interface of a host is one of the virtual topology, which
// policy leaves alone.
func (f *Fleet) SetExempt(exempt func(host, name string) bool) {
	f.exempt = exempt
	for _, h := range f.hosts {
		h.decided = nil
	}
}

// Judge decides over a packet on a host.
func (f *Fleet) Judge(host string, p judge.Packet) judge.Verdict {
	d := f.decide(host)
	return judge.Judge(d.rules, d.config, p)
}

// decide returns what the agent of a host decides.
func (f *Fleet) decide(name string) *decided {
	h := f.hosts[name]
	if h == nil {
		h = f.changed(name)
	}
	if h.decided == nil {
		d := &decided{}
		d.settings, _ = Resolve(Sources{Host: f.settings[name], Global: f.model.global})
		d.config = d.settings.Judge()
		d.assigned = assign(h.workloads, &d.settings, func(i string) bool { return f.exempt(name, i) })
		d.rules = f.shared.Of(d.assigned.workloads, h.hosts)
		h.decided = d
	}
	return h.decided
}

// Refused returns why a workload's host has no interface for it, or why it has no route to one of
// its addresses; "" if it has.
func (f *Fleet) Refused(key calico.WorkloadEndpointKey, a netip.Addr) string {
	d := f.decide(key.Host)
	if why := d.assigned.refused[key]; why != "" {
		return why
	}
	w := d.assigned.workloads[key]
	if w == nil || w.Endpoint.State != calico.Active {
		return "" // the judge says so
	}
	if owner := d.assigned.owners[a]; owner != w.Endpoint.Name {
		return "the host routes " + a.String() + " to interface " + cmp.Or(owner, "none") + ", in place of " + w.Endpoint.Name
	}
	return ""
}

// Endpoint is an endpoint of a Fleet: a workload's, or a host's own.
type Endpoint struct {
	Host     string
	Workload *calc.Workload
	Own      *calc.Host
}

// Path returns the key of the endpoint in the store.
func (e *Endpoint) Path() string {
	if e.Workload != nil {
		return pathOf(e.Workload.Key)
	}
	return pathOf(e.Own.Key)
}

// Name returns a short name of the endpoint that no other has.
func (e *Endpoint) Name() string {
	all := e.names()
	return all[len(all)-1]
}

// Addresses returns the endpoint's own addresses, and those that stand for one of them.
func (e *Endpoint) Addresses() (own, floating []netip.Addr) {
	if e.Workload == nil {
		if e.Own.Endpoint == nil {
			return nil, nil
		}
		return slices.Concat(e.Own.Endpoint.ExpectedIPv4Addrs, e.Own.Endpoint.ExpectedIPv6Addrs), nil
	}
	w := e.Workload.Endpoint
	for _, n := range slices.Concat(w.IPv4Nets, w.IPv6Nets) {
		own = append(own, n.Addr())
	}
	for _, n := range slices.Concat(w.IPv4NAT, w.IPv6NAT) {
		floating = append(floating, n.ExtIP)
	}
	return own, floating
}

// names returns what the endpoint is called by: its id, its workload's, and both with what they
// are of.
func (e *Endpoint) names() []string {
	if e.Workload == nil {
		k := e.Own.Key
		return []string{k.Endpoint, k.Host + "/" + k.Endpoint}
	}
	k := e.Workload.Key
	return []string{k.Endpoint, k.Workload, k.Workload + "/" + k.Endpoint, k.Host + "/" + k.Workload + "/" + k.Endpoint,
		k.Host + "/" + k.Orchestrator + "/" + k.Workload + "/" + k.Endpoint}
}

// Endpoints returns all endpoints, in the order of their keys.
func (f *Fleet) Endpoints() []Endpoint {
	var all []Endpoint
	for name, h := range f.hosts {
		for _, w := range h.workloads {
			all = append(all, Endpoint{Host: name, Workload: w})
		}
		for _, e := range h.hosts {
			all = append(all, Endpoint{Host: name, Own: e})
		}
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return cmp.Compare(a.Path(), b.Path()) })
	return all
}

// Workload returns a workload's endpoint, and whether there is a valid one.
func (f *Fleet) Workload(key calico.WorkloadEndpointKey) (Endpoint, bool) {
	h := f.hosts[key.Host]
	if h == nil || h.workloads[key] == nil {
		return Endpoint{}, false
	}
	return Endpoint{Host: key.Host, Workload: h.workloads[key]}, true
}

// Named returns the endpoints with a name: an id, a workload's id, or several parts of a key with
// slashes between them, such as WORKLOAD/ENDPOINT or HOST/ENDPOINT.
func (f *Fleet) Named(name string) []Endpoint {
	return slices.DeleteFunc(f.Endpoints(), func(e Endpoint) bool { return !slices.Contains(e.names(), name) })
}

// At returns the endpoints with an address, their own or a floating one. Inactive workloads are
// among them.
func (f *Fleet) At(a netip.Addr) (own, floating []Endpoint) {
	for _, e := range f.Endpoints() {
		of, by := e.Addresses()
		switch {
		case slices.Contains(of, a):
			own = append(own, e)
		case slices.Contains(by, a):
			floating = append(floating, e)
		}
	}
	return own, floating
}

// Object returns what is stored at a key, decoded; nil if it is missing or invalid.
func (f *Fleet) Object(key calico.Key) any {
	o := f.objects[pathOf(key)]
	if o == nil {
		return nil
	}
	object, err := calico.Decode(key, o.Value)
	if err != nil {
		return nil
	}
	return object
}

// Lists returns the lists of a tier that apply to an endpoint of a host in a direction.
func (f *Fleet) Lists(host string, at judge.Place, tier string, d calc.Direction) []calc.ListID {
	tiers, _ := f.decide(host).rules.PolicyOf(at)
	for i := range tiers {
		if tiers[i].Name == tier {
			return tiers[i].Lists(d)
		}
	}
	return nil
}

// Profiles returns the profiles of an endpoint of a host, in order.
func (f *Fleet) Profiles(host string, at judge.Place) []string {
	_, profiles := f.decide(host).rules.PolicyOf(at)
	return profiles
}

// Translated returns the destination that policy sees on a host.
func (f *Fleet) Translated(host string, dst netip.Addr) netip.Addr {
	return f.decide(host).rules.Translated(dst)
}

// Uplink returns the endpoint that governs the interface by which a host reaches other hosts, and
// whether it is known to: the one that expects the host's address in the store, or the only one.
// The zero Place is an interface that no endpoint governs.
func (f *Fleet) Uplink(host string) (at judge.Place, known bool) {
	h := f.hosts[host]
	if h == nil || len(h.hosts) == 0 {
		return judge.Place{}, true
	}
	keys := slices.SortedFunc(maps.Keys(h.hosts), func(a, b calico.HostEndpointKey) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	address, ok := f.HostAddress(host)
	for _, k := range keys {
		if e := h.hosts[k].Endpoint; ok && e != nil && slices.Contains(e.ExpectedIPv4Addrs, address) {
			return judge.AtHost(k), true
		}
	}
	if len(keys) == 1 {
		return judge.AtHost(keys[0]), true
	}
	return judge.Place{}, false
}

// HostAddress returns the address by which other hosts reach a host.
func (f *Fleet) HostAddress(host string) (netip.Addr, bool) {
	if a, ok := f.model.hostIPs[host]; ok {
		return a, true
	}
	a, ok := f.model.bgpIPs[host]
	return a, ok
}

// Masqueraded returns the source with which packets leave a host for others.
func (f *Fleet) Masqueraded(host string, src, dst netip.Addr) netip.Addr {
	within := func(a netip.Addr, masquerade bool) bool {
		for cidr, pool := range f.model.pools {
			if cidr.Contains(a) && (pool.Masquerade || !masquerade) {
				return true
			}
		}
		return false
	}
	if own, ok := f.HostAddress(host); ok && own.Is4() == src.Is4() && within(src, true) && !within(dst, false) {
		return own
	}
	return src
}

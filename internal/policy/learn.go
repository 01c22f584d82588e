package policy

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/calico/legacy"
	"heddle/calico/selector"
	"heddle/internal/policy/calc"
)

// known is what the store holds, as far as policy is concerned, other than what calc keeps.
type known struct {
	revision int64
	complete bool             // a whole snapshot is in
	seen     map[string]int64 // revision at which each key was last written, by path
	merger   *legacy.Merger
	ready    bool
	global   map[string]string // settings
	own      map[string]string // settings of this host
	pools    map[netip.Prefix]*calico.Pool
	hostIPs  map[string]netip.Addr // bird_ip of each host
	bgpIPs   map[string]netip.Addr // ip_addr_v4 of each host
	bad      map[string]*badObject // objects that cannot be read, by path
	hidden   map[calico.Key]bool   // of the legacy tree, behind v1 objects
	spelled  map[calico.Key]string // paths that are not the key's own: names and CIDRs that somebody wrote in another way
}

func newKnown() known {
	return known{seen: map[string]int64{}, merger: legacy.NewMerger(), global: map[string]string{}, own: map[string]string{},
		pools: map[netip.Prefix]*calico.Pool{}, hostIPs: map[string]netip.Addr{}, bgpIPs: map[string]netip.Addr{},
		bad: map[string]*badObject{}, hidden: map[calico.Key]bool{}, spelled: map[calico.Key]string{}}
}

// learn takes news of the store in. It decides nothing.
func (e *engine) learn(n news) {
	k := &e.known
	if n.snapshot {
		there := make(map[string]bool, len(n.all))
		for _, kv := range n.all {
			if !concerns(kv.Key) {
				continue
			}
			there[kv.Key] = true
			if mod, ok := k.seen[kv.Key]; !ok || mod != kv.ModRevision || n.other {
				e.learnKey(kv.Key, kv.Value, kv.ModRevision)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(k.seen)) {
			if !there[path] {
				e.learnKey(path, nil, 0)
			}
		}
		if !k.complete {
			e.log.Info("the model is known", "revision", n.revision, "keys", len(there))
		}
		k.complete = true
		e.report.recheck()
	}
	for _, event := range n.events {
		if !concerns(event.Key) {
			continue
		}
		if event.Deleted {
			e.learnKey(event.Key, nil, 0)
		} else {
			e.learnKey(event.Key, event.Value, event.ModRevision)
		}
	}
	k.revision = n.revision
}

// learnKey takes one key in; a revision of 0 says that it is gone.
func (e *engine) learnKey(path string, value []byte, mod int64) {
	k := &e.known
	if mod == 0 {
		delete(k.seen, path)
	} else {
		k.seen[path] = mod
	}
	key, ok := calico.ParseKey(path)
	if !ok || !heeded(key) || e.behind(key, path, mod != 0) {
		return
	}
	var object any
	var err error
	if mod != 0 {
		object, err = calico.Decode(key, value)
	}
	if err != nil {
		object = nil
	}
	switch key := key.(type) {
	case calico.ReadyKey:
		e.setReady(mod != 0 && string(value) == "true")
	case calico.GlobalConfigKey:
		setText(k.global, key.Name, value, mod != 0)
		e.dirty.settings = true
	case calico.HostConfigKey:
		if key.Host == e.host && !strings.EqualFold(key.Name, "marker") {
			setText(k.own, key.Name, value, mod != 0)
			e.dirty.settings = true
		}
	case calico.PoolKey:
		pool, _ := object.(*calico.Pool)
		setOrDelete(k.pools, key.CIDR, pool, pool != nil)
		e.dirty.surroundings, e.dirty.tunnels = true, true
	case calico.HostIPKey:
		ip, ok := object.(netip.Addr)
		setOrDelete(k.hostIPs, key.Host, ip, ok && ip.Is4())
		e.dirty.surroundings, e.dirty.tunnels = true, true
	case calico.BGPNodeConfigKey:
		ip, ok := object.(netip.Addr)
		setOrDelete(k.bgpIPs, key.Host, ip, ok && ip.Is4())
		e.dirty.surroundings, e.dirty.tunnels = true, true
	default: // judged
		e.learnPolicy(key, object, value, err)
	}
	e.note(key, path, err, mod)
}

// behind says whether what lies at a path does not count, because its key's own path has something too. When that goes, a
// snapshot is asked for, which tells what was behind it.
func (e *engine) behind(key calico.Key, path string, there bool) bool {
	k := &e.known
	own := path
	if strings.ContainsAny(path, "%:") { // no other keys can be written in two ways
		own = pathOf(key)
	}
	if own != path {
		setOrDelete(k.spelled, key, path, there)
		_, before := k.seen[own]
		return before
	}
	if other, ok := k.spelled[key]; ok && !there {
		delete(k.seen, other) // else it would be known already
		e.resync()
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

func setText(m map[string]string, name string, value []byte, set bool) {
	setOrDelete(m, name, string(value), set)
}

// learnPolicy passes endpoints, profiles, tiers and policies on to calc, the legacy tree behind v1.
func (e *engine) learnPolicy(key calico.Key, object any, value []byte, bad error) {
	if bad != nil {
		object = unreadable{partial: PartOf(key, value), reason: bad.Error()}
	}
	e.dirty.calc = true
	e.dirty.problems = e.dirty.problems || concernsAll(key)
	merged := e.known.merger.Update(key, object)
	for _, c := range merged.Changes {
		if u, ok := c.Object.(unreadable); ok {
			e.calc.Invalid(c.Key, u.partial, u.reason)
		} else {
			e.calc.Update(c.Key, c.Object)
		}
	}
	for _, h := range merged.Hidden {
		e.known.hidden[h] = true
		e.log.Warn("an object of the legacy tree is hidden by one of v1", "kind", h.Kind(), "key", pathOf(h))
	}
	for _, h := range merged.Shown {
		delete(e.known.hidden, h)
	}
}

// unreadable stands for an object that cannot be read, and holds what of it can.
type unreadable struct {
	partial any
	reason  string
}

// PartOf reads of an invalid object what lets it close traffic: of a policy the selector and the order, of a host
// endpoint the name (spec §6.5). nil when not even that can be read. A selector that is too large to be read selects
// everything: whom it was to protect is not known, and must not be left open.
func PartOf(key calico.Key, value []byte) any {
	var members struct {
		Selector  json.RawMessage
		Order     json.RawMessage
		Untracked json.RawMessage
		Name      json.RawMessage
	}
	if json.Unmarshal(value, &members) != nil {
		return nil
	}
	switch key.(type) {
	case calico.PolicyKey:
		var text string
		if !present(members.Selector) || json.Unmarshal(members.Selector, &text) != nil {
			return nil
		}
		s, err := selector.Parse(text, selector.Length(calc.MaxSelector))
		var syntax *selector.SyntaxError
		if errors.As(err, &syntax) && syntax.TooLarge {
			s, err = selector.All(), nil
		}
		if err != nil {
			return nil
		}
		return &calico.Policy{Selector: s.String(), Order: orderPart(members.Order), Untracked: string(members.Untracked) == "true"}
	case calico.HostEndpointKey:
		h := &calico.HostEndpoint{}
		if !present(members.Name) || json.Unmarshal(members.Name, &h.Name) != nil {
			return nil
		}
		return h
	}
	return nil
}

// present says whether a member is there: null counts as absent.
func present(member json.RawMessage) bool { return member != nil && string(member) != "null" }

// orderPart reads the order of an invalid policy. One that cannot be read puts it before all others of its tier, so that
// none of them allows what it may have been there to deny.
func orderPart(member json.RawMessage) *float64 {
	if !present(member) || string(member) == `"default"` {
		return nil
	}
	order := math.Inf(-1)
	if json.Unmarshal(member, &order) != nil {
		order = math.Inf(-1)
	}
	return &order
}

// concernsAll says whether an object may make a problem for more than one endpoint.
func concernsAll(key calico.Key) bool {
	switch key.(type) {
	case calico.WorkloadEndpointKey, calico.HostEndpointKey:
		return false
	}
	return true
}

func pathOf(k calico.Key) string {
	path, err := k.Path()
	if err != nil {
		return string(k.Kind())
	}
	return path
}

// heeded says whether a key is of something that the agent works with.
func heeded(key calico.Key) bool {
	switch key := key.(type) {
	case calico.ReadyKey, calico.GlobalConfigKey, calico.HostConfigKey, calico.PoolKey, calico.HostIPKey:
		return true
	case calico.BGPNodeConfigKey:
		return key.Name == "ip_addr_v4"
	}
	return judged(key)
}

// judged says whether a key is of something that calc works with.
func judged(key calico.Key) bool {
	switch key.(type) {
	case calico.WorkloadEndpointKey, calico.HostEndpointKey, calico.ProfileRulesKey, calico.ProfileTagsKey, calico.ProfileLabelsKey,
		calico.PolicyKey, calico.TierKey:
		return true
	}
	return false
}

// badObject is an object that cannot be read.
type badObject struct {
	err     error
	inForce string // what is in force in its place
	since   int64  // revision from which on it could not be read
}

// note keeps what cannot be read, and logs it once for each cause and each thing in force in its place.
func (e *engine) note(key calico.Key, path string, err error, mod int64) {
	was := e.known.bad[path]
	if err == nil {
		if was != nil {
			delete(e.known.bad, path)
			e.dirty.statuses, e.dirty.unreadable = true, true
			e.log.Info("an object can be read again, or is gone", "key", path)
		}
		return
	}
	now := &badObject{err: err, inForce: e.inForce(key), since: mod}
	if was != nil {
		now.since = was.since
		if was.err.Error() == err.Error() && was.inForce == now.inForce {
			return
		}
	}
	e.known.bad[path] = now
	e.dirty.statuses, e.dirty.unreadable = true, true
	e.log.Error("an object cannot be read", "key", path, "err", err, "in_force", now.inForce, "since_revision", now.since)
}

// inForce says what is in force in the place of an object that cannot be read.
func (e *engine) inForce(key calico.Key) string {
	if !judged(key) {
		return "nothing: it counts as absent"
	}
	of := withoutLegacy(key)
	if e.known.hidden[key] {
		return "the object of v1 with the same name, " + pathOf(of)
	}
	return e.calc.InForce(of)
}

// withoutLegacy returns the v1 key of a key of the legacy tree, and other keys as they are.
func withoutLegacy(key calico.Key) calico.Key {
	switch k := key.(type) {
	case calico.WorkloadEndpointKey:
		k.Legacy = false
		return k
	case calico.ProfileRulesKey:
		k.Legacy = false
		return k
	case calico.ProfileTagsKey:
		k.Legacy = false
		return k
	}
	return key
}

// setReady notes the gate. When it opens again, everything is read anew before anything is applied: what was written
// while it was closed need not have been whole.
func (e *engine) setReady(ready bool) {
	k := &e.known
	if ready == k.ready {
		return
	}
	k.ready = ready
	if ready && k.complete && e.applied {
		k.complete = false
		e.resync()
	}
}

// errNotReady and others say what the agent waits for.
var (
	errNotReady   = errors.New("/calico/v1/Ready is not \"true\": have `heddle serve` started once, or set it with `heddle calico ready`")
	errNoSnapshot = errors.New("the first snapshot of /calico/ is not complete: the store does not answer yet")
	errNoBindings = errors.New("it is not known yet which interfaces belong to the virtual topology")
)

// waitingFor says why nothing may be applied now, nil when it may.
func (e *engine) waitingFor() error {
	switch {
	case !e.known.complete:
		return errNoSnapshot
	case !e.known.ready:
		return errNotReady
	case e.bound == nil:
		return errNoBindings
	}
	return nil
}

// bind takes in which interfaces are the overlay's.
func (e *engine) bind(names map[string]bool) {
	e.bound = names
	e.dirty.endpoints, e.dirty.surroundings = true, true
}

package legacy

import (
	"cmp"
	"slices"

	"heddle/calico"
)

// Merger merges the legacy and the v1 tree into one view with v1 keys. If both have an endpoint of
// equal ids, or any part of a profile of equal id, the v1 one replaces the legacy one whole, even
// if it is invalid: the legacy one might open what was meant to be closed. When the v1 one is
// deleted, the legacy one is back.
//
// The view depends on the trees, not on the order of updates. A Merger keeps the legacy objects,
// and of v1 only the ids of endpoints and profiles. It is not safe for concurrent use.
type Merger struct {
	endpoints map[calico.WorkloadEndpointKey]any      // legacy, by the key in the view
	winning   map[calico.WorkloadEndpointKey]struct{} // v1
	profiles  map[string]*profile
}

// profile holds the parts of a profile in both trees.
type profile struct {
	legacy [parts]any // nil: not there
	v1     [parts]bool
}

// The parts of a profile, by their places in profile's arrays.
const (
	rulesPart = iota
	tagsPart
	labelsPart // of v1 only
	parts
)

// Change is one change of the merged view: the object at a v1 key, nil when it is gone.
type Change struct {
	Key    calico.Key
	Object any
}

// Merged lists the consequences of an update.
type Merged struct {
	// Changes of the view. Those that take away come before those that set.
	Changes []Change
	// Hidden are the legacy keys that a v1 object hides from now on: something to report. Shown are
	// those it hides no longer, because either of the two has gone.
	Hidden, Shown []calico.Key
}

// NewMerger makes one of two empty trees.
func NewMerger() *Merger {
	return &Merger{
		endpoints: map[calico.WorkloadEndpointKey]any{},
		winning:   map[calico.WorkloadEndpointKey]struct{}{},
		profiles:  map[string]*profile{},
	}
}

// Update sets the object at a key, nil for none, and returns the changes of the view. The object is
// whatever the caller makes of the stored value, also of an invalid one. Keys of other kinds pass
// through; reference counts do not appear.
func (m *Merger) Update(key calico.Key, object any) Merged {
	switch k := key.(type) {
	case calico.WorkloadEndpointKey:
		if k.Legacy {
			return m.legacyEndpoint(k, object)
		}
		return m.endpoint(k, object)
	case calico.ProfileRulesKey:
		if k.Legacy {
			return m.legacyPart(k.Profile, rulesPart, object)
		}
		return m.part(k.Profile, rulesPart, object)
	case calico.ProfileTagsKey:
		if k.Legacy {
			return m.legacyPart(k.Profile, tagsPart, object)
		}
		return m.part(k.Profile, tagsPart, object)
	case calico.ProfileLabelsKey:
		return m.part(k.Profile, labelsPart, object)
	case calico.ProfileRefcountKey:
		return Merged{}
	}
	return Merged{Changes: []Change{{key, object}}}
}

// Hidden returns the legacy keys that v1 objects hide at present, in the order of their text.
func (m *Merger) Hidden() []calico.Key {
	var all []calico.Key
	for k := range m.endpoints {
		if _, hidden := m.winning[k]; hidden {
			all = append(all, legacyEndpointKey(k))
		}
	}
	for id, p := range m.profiles {
		if p.won() {
			all = append(all, p.legacyKeys(id)...)
		}
	}
	slices.SortFunc(all, func(a, b calico.Key) int { return cmp.Compare(text(a), text(b)) })
	return all
}

func text(k calico.Key) string {
	path, err := k.Path()
	if err != nil {
		return string(k.Kind()) // made by hand: one that was read has a path
	}
	return path
}

func legacyEndpointKey(k calico.WorkloadEndpointKey) calico.WorkloadEndpointKey {
	k.Legacy = true
	return k
}

func (m *Merger) legacyEndpoint(k calico.WorkloadEndpointKey, object any) (out Merged) {
	shown := k
	shown.Legacy = false
	_, was := m.endpoints[shown]
	if object == nil {
		delete(m.endpoints, shown)
	} else {
		m.endpoints[shown] = object
	}
	_, won := m.winning[shown]
	switch {
	case won && !was && object != nil:
		out.Hidden = []calico.Key{k}
	case won && was && object == nil:
		out.Shown = []calico.Key{k}
	case !won && (was || object != nil):
		out.Changes = []Change{{shown, object}}
	}
	return out
}

func (m *Merger) endpoint(k calico.WorkloadEndpointKey, object any) (out Merged) {
	_, was := m.winning[k]
	below, both := m.endpoints[k]
	if object != nil {
		m.winning[k] = struct{}{}
		out.Changes = []Change{{k, object}}
		if both && !was {
			out.Hidden = []calico.Key{legacyEndpointKey(k)}
		}
		return out
	}
	if !was {
		return out
	}
	delete(m.winning, k)
	out.Changes = []Change{{k, below}} // nil where there is none
	if both {
		out.Shown = []calico.Key{legacyEndpointKey(k)}
	}
	return out
}

// edit runs f on a profile and says what the view changes by.
func (m *Merger) edit(id string, f func(*profile)) (p *profile, before, after bool) {
	p = m.profiles[id]
	if p == nil {
		p = &profile{}
		m.profiles[id] = p
	}
	before = p.won()
	f(p)
	if p.empty() {
		delete(m.profiles, id)
	}
	return p, before, p.won()
}

func (m *Merger) legacyPart(id string, part int, object any) (out Merged) {
	was := false
	p, won, _ := m.edit(id, func(p *profile) {
		was = p.legacy[part] != nil
		p.legacy[part] = object
	})
	key := legacyPartKey(id, part)
	switch {
	case won && !was && object != nil:
		out.Hidden = []calico.Key{key}
	case won && was && object == nil:
		out.Shown = []calico.Key{key}
	case !won && (was || object != nil):
		out.Changes = []Change{{partKey(id, part), p.legacy[part]}}
	}
	return out
}

func (m *Merger) part(id string, part int, object any) (out Merged) {
	was := false
	p, before, after := m.edit(id, func(p *profile) {
		was = p.v1[part]
		p.v1[part] = object != nil
	})
	switch {
	case !before && after: // what the legacy tree showed beside this part goes
		for other, below := range p.legacy {
			if below != nil && other != part {
				out.Changes = append(out.Changes, Change{partKey(id, other), nil})
			}
		}
		out.Changes = append(out.Changes, Change{partKey(id, part), object})
		out.Hidden = p.legacyKeys(id)
	case before && !after: // the legacy one is back
		if p.legacy[part] == nil {
			out.Changes = append(out.Changes, Change{partKey(id, part), nil})
		}
		for other, below := range p.legacy {
			if below != nil {
				out.Changes = append(out.Changes, Change{partKey(id, other), below})
			}
		}
		out.Shown = p.legacyKeys(id)
	case was || object != nil:
		out.Changes = []Change{{partKey(id, part), object}}
	}
	return out
}

// won reports whether v1 has any part of the profile.
func (p *profile) won() bool { return p.v1 != [parts]bool{} }

func (p *profile) empty() bool {
	for _, object := range p.legacy {
		if object != nil {
			return false
		}
	}
	return !p.won()
}

// legacyKeys returns those of the parts that the legacy tree has.
func (p *profile) legacyKeys(id string) []calico.Key {
	var keys []calico.Key
	for part, object := range p.legacy {
		if object != nil {
			keys = append(keys, legacyPartKey(id, part))
		}
	}
	return keys
}

func partKey(id string, part int) calico.Key {
	switch part {
	case rulesPart:
		return calico.ProfileRulesKey{Profile: id}
	case tagsPart:
		return calico.ProfileTagsKey{Profile: id}
	}
	return calico.ProfileLabelsKey{Profile: id}
}

func legacyPartKey(id string, part int) calico.Key {
	if part == rulesPart {
		return calico.ProfileRulesKey{Profile: id, Legacy: true}
	}
	return calico.ProfileTagsKey{Profile: id, Legacy: true}
}

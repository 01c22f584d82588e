package calc

import (
	"maps"
	"slices"

	"heddle/calico"
)

// profile is a profile of which a part is stored or which an endpoint names.
type profile struct {
	id      uint64
	name    string
	labels  []*pair
	tags    []*pair
	rules   *calico.ProfileRules // nil: missing
	invalid string               // why the stored rules are refused
	lists   *lists               // nil: not yet needed
	classes []member             // that inherit from it
}

// classTable holds all profiles, and makes the classes of endpoints, which the index holds.
type classTable struct {
	index    *index
	sets     *addressSets
	lists    *ruleLists
	touched  *touched
	profiles map[string]*profile
	scratch  []*pair // room that is used again and again
}

func (ct *classTable) profile(name string) *profile {
	p := ct.profiles[name]
	if p == nil {
		ct.index.lastID++
		p = &profile{id: ct.index.lastID, name: name}
		ct.profiles[name] = p
	}
	return p
}

func (p *profile) list(d Direction) *list {
	if p.lists == nil {
		p.lists = newLists(list{id: ListID{Name: p.name}, profile: p})
	}
	return &p.lists[d]
}

// dropProfile removes a profile that is neither stored nor named.
func (ct *classTable) dropProfile(p *profile) {
	if len(p.classes) == 0 && p.labels == nil && p.tags == nil && p.rules == nil && p.invalid == "" && p.lists.idle() {
		delete(ct.profiles, p.name)
	}
}

// dropClass removes the class at a position of the profile's list.
func (p *profile) dropClass(pos int) {
	moved := removeAt(&p.classes, pos)
	moved.class.inherits[moved.at].pos = pos
}

// setRules takes a profile's rules; nil: there are none, or invalid is why they are refused.
func (ct *classTable) setRules(name string, rules *calico.ProfileRules, invalid string) {
	p := ct.profile(name)
	p.rules, p.invalid = rules, invalid
	ct.lists.reread(p.lists)
	ct.dropProfile(p)
}

func (ct *classTable) setLabels(name string, labels calico.ProfileLabels) {
	p := ct.profile(name)
	var pairs []*pair
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, ct.index.pair(label, labels[label]))
	}
	ct.replacePairs(p, &p.labels, pairs)
}

func (ct *classTable) setTags(name string, tags calico.ProfileTags) {
	p := ct.profile(name)
	var pairs []*pair
	for _, tag := range tags {
		pairs = append(pairs, ct.index.pair(tagPrefix+tag, ""))
	}
	ct.replacePairs(p, &p.tags, pairs)
}

// replacePairs replaces a profile's labels or tags, and relabels the classes that inherit them.
func (ct *classTable) replacePairs(p *profile, place *[]*pair, pairs []*pair) {
	old := *place
	*place = pairs
	if !slices.Equal(old, pairs) {
		for _, m := range p.classes {
			ct.relabel(m.class)
		}
	}
	for _, pair := range old {
		ct.index.release(pair)
	}
	ct.dropProfile(p)
}

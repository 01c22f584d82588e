package calc

import (
	"maps"
	"slices"

	"heddle/calico"
)

// profile is what is known of a profile. It exists while any part of it does or an endpoint names it.
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

// profile returns the profile by a name.
func (c *Calc) profile(name string) *profile {
	p := c.profiles[name]
	if p == nil {
		c.index.lastID++
		p = &profile{id: c.index.lastID, name: name}
		c.profiles[name] = p
	}
	return p
}

// list is the profile's list in a direction.
func (p *profile) list(d Direction) *list {
	if p.lists == nil {
		p.lists = newLists(list{id: ListID{Name: p.name}, profile: p})
	}
	return &p.lists[d]
}

// dropProfile forgets a profile that nothing speaks of.
func (c *Calc) dropProfile(p *profile) {
	if len(p.classes) == 0 && p.labels == nil && p.tags == nil && p.rules == nil && p.invalid == "" && p.lists.idle() {
		delete(c.profiles, p.name)
	}
}

// dropClass takes the class at a position off the profile's list.
func (p *profile) dropClass(pos int) {
	last := len(p.classes) - 1
	if moved := p.classes[last]; pos != last {
		p.classes[pos] = moved
		moved.class.inherits[moved.at].pos = pos
	}
	p.classes[last] = member{}
	p.classes = p.classes[:last]
}

// setProfileRules takes a profile's rules; nil: there are none, or none that are valid, for which invalid is the reason.
func (c *Calc) setProfileRules(name string, rules *calico.ProfileRules, invalid string) {
	p := c.profile(name)
	p.rules, p.invalid = rules, invalid
	c.reread(p.lists)
	c.dropProfile(p)
}

// setProfileLabels takes the labels that a profile gives; none: nil.
func (c *Calc) setProfileLabels(name string, labels calico.ProfileLabels) {
	p := c.profile(name)
	var pairs []*pair
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, c.index.pair(label, labels[label]))
	}
	c.replacePairs(p, &p.labels, pairs)
}

// setProfileTags takes the tags that a profile gives; none: nil.
func (c *Calc) setProfileTags(name string, tags calico.ProfileTags) {
	p := c.profile(name)
	var pairs []*pair
	for _, tag := range tags {
		pairs = append(pairs, c.index.pair(tagPrefix+tag, ""))
	}
	c.replacePairs(p, &p.tags, pairs)
}

// replacePairs replaces a profile's labels or tags, and relabels the classes that inherit them.
func (c *Calc) replacePairs(p *profile, place *[]*pair, pairs []*pair) {
	old := *place
	*place = pairs
	if !slices.Equal(old, pairs) {
		for _, m := range p.classes {
			c.relabel(m.class)
		}
	}
	for _, pair := range old {
		c.index.release(pair)
	}
	c.dropProfile(p)
}

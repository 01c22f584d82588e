package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/calico/client"
)

// Outcome is the result of a migration for one legacy key.
type Outcome string

// The outcomes. The last three are refusals: nothing of such an endpoint or profile is touched.
const (
	Copy    Outcome = "copy"    // it will be written into the v1 tree
	Same    Outcome = "same"    // the v1 tree has it
	Drop    Outcome = "drop"    // the v1 tree has no such thing: a reference count
	Clash   Outcome = "clash"   // the v1 tree has another object there, which is in force
	Invalid Outcome = "invalid" // it cannot be read, or not without loss
	Held    Outcome = "held"    // another part of the same profile is refused
)

// Refused reports whether the key cannot be migrated as things are.
func (o Outcome) Refused() bool { return o == Clash || o == Invalid || o == Held }

// Step is the migration of one legacy key.
type Step struct {
	From    calico.Key
	To      calico.Key // nil: nothing is written
	Outcome Outcome
	Why     string // of a refusal, and of what is worth knowing
}

// Plan lists the steps of a migration of the trees at a revision.
type Plan struct {
	Revision int64
	units    []unit
}

// unit is an endpoint or a profile: it is migrated in one transaction, because v1 wins whole.
type unit struct {
	steps  []step
	absent []calico.Key // parts of the profile that must stay missing in either tree, or it would not be the same profile
}

type step struct {
	Step
	from, to client.Entry
	object   any // to be written
}

// Migration moves the objects of the legacy tree into the v1 tree. What is shown by a [Merger] is
// the same before, after and at each moment between, so agents that read both trees notice nothing.
type Migration struct {
	etcd etcd
}

// NewMigration makes a Migration that works through c.
func NewMigration(c *client.Client) *Migration { return &Migration{c} }

// ErrRefused: some legacy objects cannot be migrated. The plan names them and the reasons.
var ErrRefused = errors.New("legacy objects cannot be migrated")

// Steps returns the steps for all legacy keys, ordered by path.
func (p *Plan) Steps() []Step {
	var all []Step
	for _, u := range p.units {
		for _, s := range u.steps {
			all = append(all, s.Step)
		}
	}
	slices.SortFunc(all, func(a, b Step) int { return strings.Compare(text(a.From), text(b.From)) })
	return all
}

// Refusals returns the steps that cannot be made.
func (p *Plan) Refusals() []Step {
	return slices.DeleteFunc(p.Steps(), func(s Step) bool { return !s.Outcome.Refused() })
}

// with returns the units that have a step of an outcome.
func (p *Plan) with(o Outcome) []unit {
	var all []unit
	for _, u := range p.units {
		if u.has(o) {
			all = append(all, u)
		}
	}
	return all
}

func (u unit) has(o Outcome) bool {
	return slices.ContainsFunc(u.steps, func(s step) bool { return s.Outcome == o })
}

func (u unit) refused() bool {
	return slices.ContainsFunc(u.steps, func(s step) bool { return s.Outcome.Refused() })
}

// Plan plans a migration and changes nothing.
func (m *Migration) Plan(ctx context.Context) (*Plan, error) {
	s, err := m.etcd.List(ctx,
		calico.WorkloadEndpointKey{Legacy: true}, calico.ProfileRulesKey{Legacy: true}, calico.ProfileTagsKey{Legacy: true}, calico.ProfileRefcountKey{},
		calico.WorkloadEndpointKey{}, calico.ProfileRulesKey{}, calico.ProfileTagsKey{}, calico.ProfileLabelsKey{})
	if err != nil {
		return nil, err
	}
	p := &Plan{Revision: s.Revision}
	found := make(map[calico.Key]client.Entry, len(s.Entries))
	profiles := map[string]bool{}
	for _, e := range s.Entries {
		if _, twice := found[e.Key]; !twice || !misspelled(e) {
			found[e.Key] = e
		}
	}
	for _, e := range s.Entries {
		switch k := e.Key.(type) {
		case calico.WorkloadEndpointKey:
			if k.Legacy {
				to := k
				to.Legacy = false
				p.units = append(p.units, unit{steps: []step{compare(e, found[to], to)}})
			}
		case calico.ProfileRulesKey:
			profiles[k.Profile] = profiles[k.Profile] || k.Legacy
		case calico.ProfileTagsKey:
			profiles[k.Profile] = profiles[k.Profile] || k.Legacy
		case calico.ProfileRefcountKey:
			profiles[k.Profile] = true
		}
	}
	named := tally(legacyOnly(s))
	for _, id := range slices.Sorted(maps.Keys(profiles)) {
		if profiles[id] {
			p.units = append(p.units, profileUnit(id, found, named[id]))
		}
	}
	return p, nil
}

// legacyOnly returns a snapshot of what lies in the legacy tree.
func legacyOnly(s *client.Snapshot) *client.Snapshot {
	out := &client.Snapshot{Revision: s.Revision}
	for _, e := range s.Entries {
		if k, ok := e.Key.(calico.WorkloadEndpointKey); ok && k.Legacy {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// compare plans the migration of one object, given the v1 object in its place.
func compare(from, there client.Entry, to calico.Key) step {
	s := step{Step: Step{From: from.Key, To: to, Outcome: Copy}, from: from, to: there}
	refuse := func(o Outcome, format string, args ...any) step {
		s.Outcome, s.Why = o, fmt.Sprintf(format, args...)
		return s
	}
	switch {
	case misspelled(from):
		return refuse(Invalid, "its key is written %s, which no program finds; want %s", from.Path, text(from.Key))
	case misspelled(there):
		return refuse(Clash, "the v1 object there has its key written %s", there.Path)
	case from.Err != nil:
		return refuse(Invalid, "%v", from.Err)
	}
	value, err := calico.Encode(to, from.Object)
	if err != nil {
		return refuse(Invalid, "%v", err)
	}
	if lost := lostMembers(from.Raw, value); len(lost) > 0 {
		return refuse(Invalid, "the v1 tree has no place for %s", strings.Join(lost, ", "))
	}
	s.object = from.Object
	if there.Revision == 0 {
		return s
	}
	if there.Err != nil {
		return refuse(Clash, "the v1 object there is not valid: %v", there.Err)
	}
	other, err := calico.Encode(to, there.Object)
	if err != nil {
		return refuse(Clash, "the v1 object there is not valid: %v", err)
	}
	if !bytes.Equal(value, other) {
		return refuse(Clash, "the v1 object there differs%s", difference(value, other))
	}
	s.Outcome = Same
	return s
}

// misspelled reports whether an object's path has another escaping than its key.
func misspelled(e client.Entry) bool { return e.Revision != 0 && e.Path != text(e.Key) }

// profileUnit plans the migration of a profile. v1 replaces it whole: so v1 must have none of the
// profile's parts, or all that the legacy tree has.
func profileUnit(id string, found map[calico.Key]client.Entry, named uint64) unit {
	var u unit
	inForce := false
	for part := range parts {
		to := partKey(id, part)
		there := found[to]
		inForce = inForce || there.Revision != 0
		if there.Revision == 0 {
			u.absent = append(u.absent, to)
		}
		if part == labelsPart {
			continue
		}
		if from := found[legacyPartKey(id, part)]; from.Revision != 0 {
			u.steps = append(u.steps, compare(from, there, to))
		} else {
			u.absent = append(u.absent, legacyPartKey(id, part))
		}
	}
	for i, s := range u.steps {
		if inForce && s.Outcome == Copy {
			u.steps[i].Outcome, u.steps[i].Why = Clash, "the v1 tree has this profile without this part, and has it in force so"
		}
	}
	refused := u.refused()
	for i, s := range u.steps {
		if refused && !s.Outcome.Refused() {
			u.steps[i].Outcome, u.steps[i].Why = Held, "another part of the profile cannot be migrated"
		}
		u.absent = slices.DeleteFunc(u.absent, func(k calico.Key) bool { return k == s.To })
	}
	if count := found[calico.ProfileRefcountKey{Profile: id}]; count.Revision != 0 {
		u.steps = append(u.steps, dropCount(count, named, refused))
	}
	return u
}

// dropCount plans the removal of a reference count.
func dropCount(e client.Entry, named uint64, held bool) step {
	s := step{Step: Step{From: e.Key, Outcome: Drop, Why: "v1 profiles have no reference count"}, from: e}
	if held {
		s.Outcome, s.Why = Held, "another part of the profile cannot be migrated"
		return s
	}
	if misspelled(e) {
		s.Outcome, s.Why = Invalid, fmt.Sprintf("its key is written %s, which no program finds; want %s", e.Path, text(e.Key))
	} else if n, ok := e.Object.(uint64); !ok {
		s.Why += fmt.Sprintf("; this one is corrupt: %.40q", e.Raw)
	} else if n != named {
		s.Why += fmt.Sprintf("; this one says %d, and %d endpoints name the profile", n, named)
	}
	return s
}

// lostMembers returns the members of a stored object that say something and do not come through.
// profile_id becomes profile_ids.
func lostMembers(raw, value []byte) []string {
	var before, after map[string]json.RawMessage
	if json.Unmarshal(raw, &before) != nil || json.Unmarshal(value, &after) != nil {
		return nil // a list: tags
	}
	var lost []string
	for name, v := range before {
		if _, kept := after[name]; kept || empty(v) {
			continue
		}
		if name == "profile_id" && comesThrough(v, after["profile_ids"]) {
			continue
		}
		lost = append(lost, name)
	}
	slices.Sort(lost)
	return lost
}

// comesThrough reports whether a profile is in a list of profiles.
func comesThrough(one, list json.RawMessage) bool {
	var id string
	var ids []string
	return json.Unmarshal(one, &id) == nil && (id == "" || json.Unmarshal(list, &ids) == nil && slices.Contains(ids, id))
}

// empty reports whether a member says nothing.
func empty(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "null", "[]", "{}", `""`, "false":
		return true
	}
	return false
}

// difference names the members in which two objects differ.
func difference(a, b []byte) string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return ""
	}
	names := map[string]bool{}
	for name := range x {
		names[name] = !bytes.Equal(x[name], y[name])
	}
	for name := range y {
		names[name] = !bytes.Equal(x[name], y[name])
	}
	maps.DeleteFunc(names, func(_ string, differs bool) bool { return !differs })
	return " in " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

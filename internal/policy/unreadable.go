package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"heddle/calico"
	"heddle/calico/selector"
	"heddle/internal/policy/calc"
)

// unreadable stands for an invalid object, with the part of it that can be read.
type unreadable struct {
	partial any
	reason  string
}

// PartOf reads those members of an invalid object that let it close traffic: of a policy the
// selector and the order, of a host endpoint the name (spec §6.5); nil: not even these can be read.
// A selector that is too large selects everything, since the endpoints that it protects are
// unknown.
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
		if !isPresent(members.Selector) || json.Unmarshal(members.Selector, &text) != nil {
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
		return &calico.Policy{Selector: s.String(), Order: readOrder(members.Order), Untracked: string(members.Untracked) == "true"}
	case calico.HostEndpointKey:
		h := &calico.HostEndpoint{}
		if !isPresent(members.Name) || json.Unmarshal(members.Name, &h.Name) != nil {
			return nil
		}
		return h
	}
	return nil
}

// isPresent reports whether a member is there: null counts as absent.
func isPresent(member json.RawMessage) bool { return member != nil && string(member) != "null" }

// readOrder reads the order of an invalid policy. If it is unreadable too, the policy goes before
// all others of its tier, so that none of them allows what it was to deny.
func readOrder(member json.RawMessage) *float64 {
	if !isPresent(member) || string(member) == `"default"` {
		return nil
	}
	var order float64
	if json.Unmarshal(member, &order) != nil {
		order = math.Inf(-1)
	}
	return &order
}

// badObject is an object that cannot be read.
type badObject struct {
	err     error
	inForce string // what is in force in its place
	since   int64  // revision from which on it could not be read
}

// noteUnreadable records whether an object can be read, and logs each change of that once.
func (m *model) noteUnreadable(key calico.Key, path string, err error, mod int64) {
	before := m.bad[path]
	if err == nil {
		if before != nil {
			delete(m.bad, path)
			m.changed.unreadable = true
			m.out.info("an object can be read again, or is gone", "key", path)
		}
		return
	}
	now := &badObject{err: err, inForce: m.inForce(key), since: mod}
	if before != nil {
		now.since = before.since
		if before.err.Error() == err.Error() && before.inForce == now.inForce {
			return
		}
	}
	m.bad[path] = now
	m.changed.unreadable = true
	m.out.error("an object cannot be read", "key", path, "err", err, "in_force", now.inForce, "since_revision", now.since)
}

// inForce describes what is in force in the place of an unreadable object.
func (m *model) inForce(key calico.Key) string {
	if useOf(key) == forAgent {
		return "nothing: it counts as absent"
	}
	v1 := withoutLegacy(key)
	if m.hidden[key] {
		return "the object of v1 with the same name, " + pathOf(v1)
	}
	return m.calc.InForce(v1)
}

// withoutLegacy returns the v1 key of a legacy key, and other keys as they are.
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

// maxUnreadable bounds how many unreadable objects the agent's status names.
const maxUnreadable = 20

// describeUnreadable returns the lines of the agent's status about unreadable objects.
func (m *model) describeUnreadable() []string {
	if !m.changed.unreadable {
		return m.badText
	}
	m.changed.unreadable = false
	paths := slices.Sorted(maps.Keys(m.bad))
	all := m.badText[:0:0]
	for _, path := range paths[:min(len(paths), maxUnreadable)] {
		b := m.bad[path]
		all = append(all, fmt.Sprintf("%s cannot be read since revision %d: %v; in force: %s", path, b.since, b.err, b.inForce))
	}
	if more := len(paths) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more objects cannot be read: the log names them", more))
	}
	m.badText = all
	return all
}

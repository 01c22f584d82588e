package xe

import (
	"errors"
	"slices"
	"strings"

	"heddle/internal/xen/client"
)

// errMet ends a wait.
var errMet = errors.New("the conditions are met")

// eventWait is the command event-wait.
func eventWait(c *call) error {
	class := c.need("class")
	k := kindNamed(class)
	if k == nil {
		return failure("'class' must be one of %s, not '%s'", strings.Join(kindNames(), ", "), class)
	}
	filters, err := k.conditions(c.params.without("class"))
	if err != nil {
		return err
	}
	err = c.session.Follow(c.ctx, k.classes(filters), func(all client.Objects, _ []client.Event) error {
		r := newReader(c.ctx, c.api, false)
		for class, records := range all {
			r.objects[class], r.whole[class] = records, true
		}
		found, err := k.choose(r, filters)
		if err == nil && len(found) > 0 {
			err = errMet
		}
		return err
	})
	if errors.Is(err, errMet) {
		return nil
	}
	return err
}

// conditions returns filters. A value that begins with /= stands for all other values.
func (k *kind) conditions(p params) ([]filter, error) {
	var all []filter
	for _, a := range p.without(generalKeys...) {
		value, not := strings.CutPrefix(a.value, "/=")
		f, err := k.parseFilter(a.key, value)
		if err != nil {
			return nil, err
		}
		f.not = not
		all = append(all, f)
	}
	return all, nil
}

// classes are those whose objects decide about filters.
func (k *kind) classes(filters []filter) []string {
	all := []string{k.api}
	for _, f := range filters {
		for _, step := range f.field.path {
			class := step.Type.Class
			if step.Type.Elem != nil {
				class = step.Type.Elem.Class
			}
			if kindOf(class) != nil || class == "host_metrics" || class == "PIF_metrics" {
				all = append(all, class)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// kindNamed is the kind of that name.
func kindNamed(name string) *kind {
	for _, k := range kinds() {
		if k.name == strings.ToLower(name) {
			return k
		}
	}
	return nil
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

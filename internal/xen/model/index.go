package model

import (
	"maps"
	"slices"
	"strings"
)

// classes are all of them, in the order in which clients list them.
var classes = []*Class{
	&sessionClass, &eventClass, &roleClass, &userClass, &taskClass, &poolClass, &hostClass, &hostMetricsClass, &networkClass, &pifClass, &pifMetricsClass,
	&vlanClass, &bondClass, &tunnelClass, &vmClass, &vifClass,
}

// Indexes of the table: classes by name, also in lower case, and their fields by name and in order.
var (
	byName  = index(func(name string) string { return name })
	byLower = index(strings.ToLower)
	byField = func() map[*Class]map[string]*Field {
		all := map[*Class]map[string]*Field{}
		for _, c := range byName {
			all[c] = map[string]*Field{}
			for i := range c.Fields {
				all[c][c.Fields[i].Name] = &c.Fields[i]
			}
		}
		return all
	}()
	sorted = func() map[*Class][]*Field {
		all := map[*Class][]*Field{}
		for c, fields := range byField {
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				all[c] = append(all[c], fields[name])
			}
		}
		return all
	}()
)

func index(key func(name string) string) map[string]*Class {
	m := map[string]*Class{}
	for _, c := range append(slices.Clone(classes), &eventBatchClass) {
		m[key(c.Name)] = c
	}
	return m
}

// Classes are all classes that calls name. They must not be changed.
func Classes() []*Class { return classes }

// Lookup returns the class of that name, as calls spell it, or event_batch; nil for others.
func Lookup(name string) *Class { return byName[name] }

// LookupFold is the class of that name in any case, as events and those who wait for them spell it;
// nil when there is none.
func LookupFold(name string) *Class { return byLower[strings.ToLower(name)] }

// Field is the class's field of that name; nil when there is none.
func (c *Class) Field(name string) *Field { return byField[c][name] }

// Sorted are the class's fields in the order of their names. They must not be changed.
func (c *Class) Sorted() []*Field { return sorted[c] }

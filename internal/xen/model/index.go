package model

// classes are all of them, in the order in which clients list them.
var classes = []*Class{
	&sessionClass, &eventClass, &roleClass, &userClass, &taskClass, &poolClass, &hostClass, &hostMetricsClass, &networkClass, &pifClass, &pifMetricsClass,
	&vlanClass, &bondClass, &tunnelClass, &vmClass, &vifClass,
}

var byName = func() map[string]*Class {
	m := map[string]*Class{}
	for _, c := range classes {
		m[c.Name] = c
	}
	return m
}()

// Classes are all classes. They must not be changed.
func Classes() []*Class { return classes }

// Lookup is the class of that name, as calls spell it; nil when there is none.
func Lookup(name string) *Class { return byName[name] }

// Field is the class's field of that name; nil when there is none.
func (c *Class) Field(name string) *Field {
	for i := range c.Fields {
		if c.Fields[i].Name == name {
			return &c.Fields[i]
		}
	}
	return nil
}

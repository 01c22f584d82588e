package offline

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// hostResource registers the host of an agent.
func hostResource() resource {
	type host = topology.Host
	return &table[host]{
		what:       "host",
		attributes: map[string]setter[host]{"name": setText(func(h *host) *string { return &h.Name })},
		objects:    func(w *world) map[string]*host { return w.hosts },
		fresh:      func(_ *world, std neutron.Standard) *host { return &host{ID: std.ID} },
		validate: func(_ *world, h, _ *host, _ object) error {
			if h.Name == "" {
				return refuse(neutron.Invalid, "host %s: name is missing", h.ID)
			}
			return nil
		},
		remove: func(w *world, h *host) error {
			if p := first(w.ports, func(p *neutron.Port) bool { return p.BoundHostID == h.ID }); p != nil {
				return refuse(neutron.Conflict, "host %s has port %s bound to it; unbind it first", h.Name, p.ID)
			}
			return nil
		},
	}
}

// hostNamed finds the host of a name; nil if there is none. Two of one name are a conflict (midonet-translations §4 H6).
func (w *world) hostNamed(name string) (*topology.Host, error) {
	var found *topology.Host
	for _, h := range w.hosts {
		if h.Name != name {
			continue
		}
		if found != nil {
			return nil, refuse(neutron.Conflict, "host name %q is that of two hosts", name)
		}
		found = h
	}
	return found, nil
}

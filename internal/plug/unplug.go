package plug

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// Unplug removes the interface of a port, by id or name, unbinds the port and removes what Plug
// wrote. It can be repeated after a failure.
func (p *Plugger) Unplug(ctx context.Context, idOrName string) (id string, err error) {
	id, err = p.findPlugged(ctx, idOrName)
	if err != nil {
		return "", err
	}
	alone, err := claim(id)
	if err != nil {
		return "", err
	}
	defer alone.Close()
	r, err := p.load(id)
	if err != nil {
		return "", err
	}
	if r == nil {
		return "", fmt.Errorf("port %s is not plugged on this host: `heddle port show %[1]s` says where it is bound", id)
	}
	return id, p.remove(ctx, r, binding{Profile: withoutInterface(r)})
}

// findPlugged returns the id of the plugged port with an id or name. A name that no record has is
// looked up by the API: the port may have been called otherwise since, or be plugged elsewhere.
func (p *Plugger) findPlugged(ctx context.Context, idOrName string) (string, error) {
	all, err := p.loadAll()
	if err != nil {
		return "", err
	}
	var named []string
	for _, r := range all {
		switch idOrName {
		case r.PortID:
			return r.PortID, nil
		case r.Name:
			named = append(named, r.PortID)
		}
	}
	switch len(named) {
	case 0:
		return p.API.Find(ctx, cloud.Port, idOrName)
	case 1:
		return named[0], nil
	}
	return "", fmt.Errorf("%d ports that are plugged here are called %s: give one's id: %s", len(named), terminal.Escape(idOrName), strings.Join(named, ", "))
}

// withoutInterface returns the port's former binding:profile without an interface.
func withoutInterface(r *record) map[string]any {
	profile := maps.Clone(r.Before.Profile)
	delete(profile, interfaceName)
	return profile
}

// remove removes what was made for a port, and leaves it with the given binding if this host still
// has it.
func (p *Plugger) remove(ctx context.Context, r *record, after binding) error {
	if err := p.Net.DeleteLink(r.Device); err != nil {
		return err
	}
	if err := removeResolver(r); err != nil {
		return err
	}
	var now port
	switch err := p.API.Get(ctx, cloud.Port, r.PortID, &now, "binding:host_id"); {
	case cloud.IsGone(err):
	case err != nil:
		return fmt.Errorf("port %s: its interface is gone, it is not unbound: %w", r.PortID, err)
	case now.host() == r.Host:
		if err := p.setBinding(ctx, r.PortID, after); err != nil {
			return err
		}
	}
	return p.forget(r)
}

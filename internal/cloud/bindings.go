package cloud

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// Binding is a binding of a port to a host.
type Binding struct {
	Host    string         `json:"host"`
	Profile map[string]any `json:"profile"`
	VIFType string         `json:"vif_type,omitempty"`
	Status  string         `json:"status,omitempty"` // ACTIVE or INACTIVE
}

func bindingsPath(portID string, more ...string) string {
	path := Port.path() + "/" + url.PathEscape(portID) + "/bindings"
	for _, part := range more {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Bindings returns the bindings of a port.
func (n *Neutron) Bindings(ctx context.Context, portID string) (all []Binding, err error) {
	err = n.call(ctx, http.MethodGet, bindingsPath(portID), nil, "bindings", &all)
	return all, err
}

// AddBinding makes an inactive binding.
func (n *Neutron) AddBinding(ctx context.Context, portID string, b Binding) error {
	return n.call(ctx, http.MethodPost, bindingsPath(portID), map[string]any{"binding": b}, "", nil)
}

// UpdateBinding changes the profile of a binding. One in whose place another was activated may
// become active again.
func (n *Neutron) UpdateBinding(ctx context.Context, portID string, b Binding) error {
	return n.call(ctx, http.MethodPut, bindingsPath(portID, b.Host), map[string]any{"binding": map[string]any{"profile": b.Profile}}, "", nil)
}

// ActivateBinding makes a binding the active one.
func (n *Neutron) ActivateBinding(ctx context.Context, portID, host string) error {
	return n.call(ctx, http.MethodPut, bindingsPath(portID, host, "activate"), nil, "", nil)
}

// DeleteBinding deletes a binding.
func (n *Neutron) DeleteBinding(ctx context.Context, portID, host string) error {
	return n.call(ctx, http.MethodDelete, bindingsPath(portID, host), nil, "", nil)
}

// IsConflict reports whether an error says that the state of an object does not allow the call.
func IsConflict(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Status == http.StatusConflict
}

package cloud

import (
	"context"
	"net/http"
	"net/url"
)

func metadataPath(port string) string { return Port.path() + "/" + url.PathEscape(port) + "/metadata" }

// PortMetadata reads what the user gave to the machine behind a port into out.
func (n *Neutron) PortMetadata(ctx context.Context, port string, out any) error {
	return n.call(ctx, http.MethodGet, metadataPath(port), nil, "metadata", out)
}

// SetPortMetadata changes the given members of it.
func (n *Neutron) SetPortMetadata(ctx context.Context, port string, members map[string]any) error {
	return n.call(ctx, http.MethodPut, metadataPath(port), map[string]any{"metadata": members}, "", nil)
}

// DeletePortMetadata removes it.
func (n *Neutron) DeletePortMetadata(ctx context.Context, port string) error {
	return n.call(ctx, http.MethodDelete, metadataPath(port), nil, "", nil)
}

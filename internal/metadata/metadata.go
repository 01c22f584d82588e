// Package metadata serves metadata to workloads: who they are, their keys and their user data, by
// HTTP at 169.254.169.254 and fe80::a9fe:a9fe (operate §9).
//
//	workload ─▶ simulation: source := an address of the host's own for it ─▶ proxy of the host
//	proxy: source address ─▶ Client ─▶ Source ─▶ answer
package metadata

import (
	"net/http"
	"net/netip"
)

// Client is the workload that sent a request. The packets' way to the proxy establishes it, never
// anything in the request.
type Client struct {
	Port string     // id of its Neutron port
	Addr netip.Addr // its own source address: IPv4, or IPv6 and perhaps link-local
}

// Source answers requests for metadata.
type Source interface {
	// ServeMetadata answers one request of a client. The proxy has limited the size of the
	// request's headers and the time that it may take; r.RemoteAddr is an address of the host's
	// own, which says nothing to the client or to others. Many requests are served at once.
	ServeMetadata(w http.ResponseWriter, r *http.Request, c Client)
}

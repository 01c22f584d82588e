// Package console is the operators' view of a running Heddle: its status, traces through the
// virtual network and probes of it, the BGP sessions of routers, and the format of the store.
// Every call but the one that answers tenants' questions about their ports wants the role admin. It
// also serves the page that shows these in a browser, and the sessions by which browsers call them.
package console

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/explain"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Options of the console.
type Options struct {
	DB *records.DB // over a replica that holds schema's tables of ports, hosts and states
	// Formats lists the formats that this server knows.
	Formats schema.Formats
	Log     *slog.Logger
	// TraceWait bounds how long the agent of a live host takes to answer; 0 = 3 s.
	TraceWait time.Duration
	// WorkloadWait bounds how long it takes to probe from a workload; 0 = 8 s.
	WorkloadWait time.Duration
	// StoreMembers returns the store's members, and Certificates those of this server, for the
	// status. Either may be nil.
	StoreMembers func(context.Context) ([]StoreMember, error)
	Certificates func() []Certificate
	// Journal has the past of the store; nil: this server keeps none.
	Journal *journal.Journal
	// Cluster returns the members of the cluster of embedded stores; nil if the server is in none.
	Cluster func(context.Context) ([]ClusterMember, error)
}

// Register adds the console's routes to mux, which must be behind api.RequireToken.
func Register(mux *http.ServeMux, o Options) {
	o.TraceWait = cmp.Or(o.TraceWait, 3*time.Second)
	o.WorkloadWait = cmp.Or(o.WorkloadWait, 8*time.Second)
	c := &console{Options: o, world: explain.NewWorld(), asked: inFlight{byUser: map[string]int{}}}
	mux.HandleFunc("POST /v1/traces", api.Admin(c.trace))
	mux.HandleFunc("POST /v1/why", api.Answering(c.why))
	mux.HandleFunc("POST /v1/reach", api.Admin(c.reach))
	mux.HandleFunc("POST /v1/reach/assert", api.Admin(c.assert))
	mux.HandleFunc("POST /v1/workloads", api.Admin(c.workload))
	mux.HandleFunc("POST /v1/support", api.Admin(c.support))
	mux.HandleFunc("GET /v1/status", api.Admin(c.status))
	mux.HandleFunc("GET /v1/health", api.Admin(c.health))
	mux.HandleFunc("GET /v1/topology", api.Admin(c.topology))
	mux.HandleFunc("GET /v1/search", api.Admin(c.search))
	c.objectCalls(mux)
	mux.HandleFunc("GET /v1/traffic", api.Admin(c.traffic))
	mux.HandleFunc("GET /v1/bgp", api.Admin(c.bgp))
	mux.HandleFunc("GET /v1/history", api.Admin(c.history))
	mux.HandleFunc("GET /v1/revisions/{revision}", api.Admin(c.revision))
	mux.HandleFunc("GET /v1/upgrade", api.Admin(c.upgrade))
	mux.HandleFunc("POST /v1/upgrade/commit", api.Admin(c.commitUpgrade))
}

type console struct {
	Options
	world *explain.World
	asked inFlight
	moments
}

// notFound is the 404 of a record, or err.
func notFound(err error, kind, id string) error {
	var missing *records.NotFoundError
	if errors.As(err, &missing) {
		return api.Errorf(http.StatusNotFound, "%s %s could not be found", kind, id)
	}
	return err
}

// findHost returns the host with this id or name.
func findHost(r records.Reader, idOrName string) (*topology.Host, error) {
	h, err := schema.FindHost(r, idOrName)
	var ambiguous *schema.AmbiguousHostError
	if errors.As(err, &ambiguous) {
		return nil, api.Errorf(http.StatusConflict, "%v", err)
	}
	return h, notFound(err, "host", idOrName)
}

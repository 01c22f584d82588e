// Package console is the operators' view of a running Heddle: its status, traces through the
// virtual network and probes of it, the BGP sessions of routers, and the format of the store.
// Every call but those that answer tenants about their own objects wants the role admin. It
// also serves the page that shows these in a browser, and the sessions by which browsers call them.
package console

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// openAPI describes the calls; TestDescription makes it from them.
//
//go:embed openapi.json
var openAPI []byte

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
	Events  *Events      // the store's recent changes, as its replica adds them
	Flows   *FlowStreams // of hosts that post flow logs to clients
	// Calico follows Calico's objects, for questions about routed hosts; nil: there are none.
	Calico *replica.Replica
	// PolicyAgentAlive reports whether a host has a policy agent that is alive; nil: none has.
	PolicyAgentAlive func(host string) bool
	// Cluster returns the members of the cluster of embedded stores; nil if the server is in none.
	Cluster func(context.Context) ([]ClusterMember, error)
	// Neutron makes Neutron's API over another store, such as a fork, to try changes by; nil: there
	// is none.
	Neutron func(db *records.DB, tokens api.Validator) (http.Handler, error)
}

// Register adds the console's routes to mux, which must be behind api.RequireToken.
func Register(mux *http.ServeMux, o Options) {
	o.TraceWait = cmp.Or(o.TraceWait, 3*time.Second)
	o.WorkloadWait = cmp.Or(o.WorkloadWait, 8*time.Second)
	c := &console{Options: o, world: explain.NewWorld(), surveys: explain.NewWorld(), asked: inFlight{byUser: map[string]int{}}}
	api.Register(mux, c.calls())
}

// calls returns all calls of the console but those of browsers' sessions.
func (c *console) calls() []api.Call {
	return append(c.objectCalls(),
		api.NewBodyCall("POST /v1/traces", "what becomes of a frame, step by step", c.trace),
		api.NewBodyCall("POST /v1/why", "whether a new connection would pass, and why; members ask about their own ports", c.why).ToAll(),
		api.NewBodyCall("POST /v1/reach", "who can reach a machine, what it can reach, or all pairs", c.reach),
		api.NewBodyCall("POST /v1/reach/assert", "whether rules hold about who reaches whom", c.assert),
		api.NewBodyCall("POST /v1/diffs", "what a change would do, or what has changed, and who reaches whom then", c.diff),
		api.NewBodyCall("POST /v1/workloads", "have a temporary workload on a port's host probe the network", c.workload),
		api.NewBodyCall("POST /v1/support", "a part of a support bundle of a host", c.support),
		api.NewCall("GET /v1/status", "the state of servers, store, hosts and ports, and what is wrong", c.status),
		api.NewCall("GET /v1/health", "what is wrong, with hosts and ports counted", c.health),
		api.NewCall("GET /v1/topology", "the virtual network as a graph", c.topology,
			api.Parameter{Name: "scope", Text: "id of a project, network or router to show with its neighbours"},
			api.Parameter{Name: "expand", Text: "NETWORK or NETWORK:COUNT, as many of whose ports are shown one by one", Many: true}),
		api.NewCall("GET /v1/search", "objects whose name, id or address begins with a text", c.search, api.Parameter{Name: "q", Text: "the text"}),
		api.NewCall("GET /v1/traffic", "tunnels, networks and busiest ports of a host", c.traffic, api.Parameter{Name: "host", Text: "its id or name"}),
		api.NewCall("GET /v1/drops", "how many packets were dropped, where and why", c.drops,
			api.Parameter{Name: "port", Text: "id, name or address of the only port"},
			api.Parameter{Name: "host", Text: "name or id of the only host whose counters to read"},
			api.Parameter{Name: "code", Text: "the only code of drops"}),
		api.NewStream[operator.Flow]("GET /v1/flows", "records of hosts' flow logs, a JSON object a line, or as events for text/event-stream", "application/x-ndjson", c.flows,
			api.Parameter{Name: "follow", Text: "true: those to come, until the client leaves"},
			api.Parameter{Name: "host", Text: "name or id of the only host"},
			api.Parameter{Name: "port", Text: "id, name or address of a port at either end"},
			api.Parameter{Name: "project", Text: "id of the project of the port by which packets come in"},
			api.Parameter{Name: "network", Text: "id of its network"},
			api.Parameter{Name: "peer", Text: "address or prefix"},
			api.Parameter{Name: "verdict", Text: "forward, drop or error drop"},
			api.Parameter{Name: "code", Text: "code of drops"},
			api.Parameter{Name: "proto", Text: "protocol, by name or number"},
			api.Parameter{Name: "service", Text: "destination port"}),
		api.NewCall("GET /v1/unused-rules", "rules of security groups by which no packet was let pass", c.unusedRules),
		api.NewCall("GET /v1/bgp", "routers that speak BGP, with their sessions", c.bgp),
		api.NewCall("GET /v1/history", "what changed, the newest first; members see their project's changes", c.history,
			api.Parameter{Name: "object", Text: "id or name of an object, or a floating IP's address"},
			api.Parameter{Name: "by", Text: "name or id of the user who made the changes"},
			api.Parameter{Name: "since", Text: "time in RFC 3339"},
			api.Parameter{Name: "before", Text: "the answer's next, to continue it"},
			api.Parameter{Name: "limit", Text: "number of changes, 100 unless given"},
			api.Parameter{Name: "effect", Text: "true: with the connections that fare otherwise by each change"}).ToAll(),
		api.NewCall("GET /v1/revisions/{revision}", "what changed at a revision; members see their project's changes", c.revision).ToAll(),
		api.NewStream[changeEvent]("GET /v1/events", "changes of the store, with revisions as ids, and the event reset where some were left out", "text/event-stream", c.events,
			api.Parameter{Name: "since", Text: "revision after which to begin, in place of the header Last-Event-ID"},
			api.Parameter{Name: "kinds", Text: "kinds of objects, by commas"}),
		api.NewCall("GET /v1/openapi.json", "this description", func(*http.Request) (json.RawMessage, error) { return openAPI, nil }).ToAll(),
		api.NewCall("GET /v1/upgrade", "the store's format, and those that its members know", c.upgrade),
		api.NewCall("POST /v1/upgrade/commit", "raise the store's format to the newest that all members know", c.commitUpgrade),
	)
}

// BoundsItself reports whether a request is a call that bounds how long it takes, in place of the
// limit that other requests have.
func BoundsItself(r *http.Request) bool { return slices.Contains(long, r.URL.Path) }

// long are the paths of the calls that may take longer than others.
var long = []string{"/v1/why", "/v1/events", "/v1/flows"}

type console struct {
	Options
	world   *explain.World
	surveys *explain.World // for questions about many machines, and about changes
	asked   inFlight
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

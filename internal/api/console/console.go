// Package console is the operators' view of a running Heddle: traces through the virtual network. Every call wants the
// role admin.
package console

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// Options of the console.
type Options struct {
	DB  *records.DB // over a replica that holds schema's tables of ports, hosts and states
	Log *slog.Logger
	// TraceWait is how long the agent of a live host may take to answer; 0 = 3 s.
	TraceWait time.Duration
}

// Register adds the console's routes to mux, which must be behind api.RequireToken.
func Register(mux *http.ServeMux, o Options) {
	if o.TraceWait == 0 {
		o.TraceWait = 3 * time.Second
	}
	c := &console{o}
	mux.HandleFunc("POST /v1/traces", admin(c.trace))
}

type console struct{ Options }

// admin answers errors, and 403 to whoever is no admin.
func admin(h func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if who := api.Who(r.Context()); who == nil || !who.Admin() {
			api.WriteError(w, r, api.Errorf(http.StatusForbidden, "this call wants the role admin"))
			return
		}
		if err := h(w, r); err != nil {
			api.WriteError(w, r, err)
		}
	}
}

// notFound is the 404 of a record, or err.
func notFound(err error, kind, id string) error {
	var missing *records.NotFoundError
	if errors.As(err, &missing) {
		return api.Errorf(http.StatusNotFound, "%s %s could not be found", kind, id)
	}
	return err
}

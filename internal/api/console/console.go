// Package console is the operators' view of a running Heddle: traces through the virtual network, and a copy of the store.
// Every call wants the role admin.
package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// Options of the console.
type Options struct {
	DB *records.DB // over a replica that holds schema's tables of ports, hosts and states
	// Backup writes a copy of the whole store; nil when the store is not ours to copy (a cluster has its own tools).
	Backup func(ctx context.Context, w io.Writer) error
	Log    *slog.Logger
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
	mux.HandleFunc("GET /v1/backup", admin(c.backup))
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

func (c *console) backup(w http.ResponseWriter, r *http.Request) error {
	if c.Backup == nil {
		return api.Errorf(http.StatusConflict, "the store is an etcd cluster of its own: back it up with `etcdctl snapshot save`")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &counted{ResponseWriter: w}
	err := c.Backup(r.Context(), out)
	if err != nil && out.n > 0 {
		// The status has been sent; cutting the connection is the only way left to say that the copy is not whole.
		c.Log.Error("backup failed", "written", out.n, "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// counted counts what was written.
type counted struct {
	http.ResponseWriter
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

// notFound is the 404 of a record, or err.
func notFound(err error, kind, id string) error {
	var missing *records.NotFoundError
	if errors.As(err, &missing) {
		return api.Errorf(http.StatusNotFound, "%s %s could not be found", kind, id)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"heddle/internal/api/hosts"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// ledger records the outcomes of calls as clients saw them.
type ledger struct {
	mu      sync.Mutex
	objects map[string]fate // "<kind>/<id>"
	calls   atomic.Int64    // acknowledged
	failed  atomic.Int64    // not acknowledged
}

// fate is the last known outcome of an acknowledged object.
type fate struct {
	name    string
	unsure  bool // its last change was not answered: it may be the old or the new name
	deleted bool
	maybe   bool // its deletion was not answered
}

func newLedger() *ledger { return &ledger{objects: map[string]fate{}} }

func (l *ledger) set(kind, id string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[kind+"/"+id] = f
}

// load creates, renames and deletes until ctx ends, switching to the next server when one is gone.
// Refusals that no fault explains are errors of the test.
func (l *ledger) load(ctx context.Context, t *testing.T, worker int, servers ...*client) {
	w := &loader{ledger: l, t: t, servers: servers, at: worker % len(servers)}
	for round := 0; ctx.Err() == nil; round++ {
		w.round(ctx, fmt.Sprintf("%d-%d", worker, round))
	}
}

type loader struct {
	*ledger
	t       *testing.T
	servers []*client
	at      int // which server it uses
}

// round makes a network with a subnet and ports, renames one port, and deletes another; every third
// network goes too.
func (w *loader) round(ctx context.Context, name string) {
	network, ok := w.make(ctx, "network", map[string]any{"name": name})
	if !ok {
		return
	}
	subnet := map[string]any{"name": name, "network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24"}
	if _, ok := w.make(ctx, "subnet", subnet); !ok {
		return
	}
	var ports []object
	for i := range 3 {
		p, ok := w.make(ctx, "port", map[string]any{"name": fmt.Sprintf("%s.%d", name, i), "network_id": network.ID})
		if !ok {
			return
		}
		ports = append(ports, p)
	}
	w.rename(ctx, ports[0], name+"-renamed")
	w.delete(ctx, "port", ports[1])
}

// try carries out a call and says whether it was acknowledged.
func (w *loader) try(ctx context.Context, call func(*client) error) bool {
	err := call(w.servers[w.at])
	var refused *statusError
	switch {
	case err == nil:
		w.calls.Add(1)
		return true
	case ctx.Err() != nil:
		return false
	case errors.As(err, &refused):
		// 503 was not done; of 504 that is unknown.
		if refused.status != http.StatusServiceUnavailable && refused.status != http.StatusGatewayTimeout {
			w.t.Errorf("refused: %v", err)
		}
	default: // the server is gone
		w.at = (w.at + 1) % len(w.servers)
	}
	w.failed.Add(1)
	return false
}

func (w *loader) make(ctx context.Context, kind string, attributes map[string]any) (o object, ok bool) {
	ok = w.try(ctx, func(c *client) (err error) {
		o, err = c.create(ctx, kind, attributes)
		return err
	})
	if ok {
		w.set(kind, o.ID, fate{name: o.Name})
	}
	return o, ok
}

func (w *loader) rename(ctx context.Context, port object, name string) {
	change := map[string]any{"port": map[string]any{"name": name}}
	w.set("port", port.ID, fate{name: port.Name, unsure: true})
	if w.try(ctx, func(c *client) error { return c.call(ctx, http.MethodPut, "/v2.0/ports/"+port.ID, change, nil) }) {
		w.set("port", port.ID, fate{name: name})
	}
}

func (w *loader) delete(ctx context.Context, kind string, o object) {
	w.set(kind, o.ID, fate{name: o.Name, maybe: true})
	if w.try(ctx, func(c *client) error { return c.call(ctx, http.MethodDelete, "/v2.0/"+kind+"s/"+o.ID, nil, nil) }) {
		w.set(kind, o.ID, fate{deleted: true})
	}
}

// check compares what clients were told with what a server lists.
func (l *ledger) check(t *testing.T, c *client) {
	t.Helper()
	found := map[string]object{}
	for _, kind := range []string{"network", "subnet", "port"} {
		for id, o := range c.list(t, kind) {
			found[kind+"/"+id] = o
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := 0
	for key, want := range l.objects {
		got, there := found[key]
		switch {
		case want.maybe || there && want.unsure:
			continue
		case want.deleted && !there, !want.deleted && there && got.Name == want.name:
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("%s: clients were told %+v, the server has %+v (there: %t)", key, want, got, there)
		}
	}
	if wrong > 10 {
		t.Errorf("%d objects differ in all", wrong)
	}
}

// verify fails the test if the store is inconsistent: unique names and addresses, references, and
// for each Neutron object exactly what derives from it.
func verify(t *testing.T, st store.Store) {
	t.Helper()
	if err := verifyStore(t.Context(), st); err != nil {
		t.Errorf("half-made: %v", err)
	}
}

func verifyStore(ctx context.Context, st store.Store) error {
	var tables []records.Target
	for _, table := range append(schema.All(), hosts.Tables()...) {
		tables = append(tables, table.(records.Target))
	}
	err := records.Verify(ctx, withoutIdentity{st}, tables...)
	kvs, _, listErr := st.List(ctx, schema.Root)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	there := map[string]bool{}
	for _, kv := range kvs {
		there[kv.Key] = true
	}
	var faults []error
	for _, kind := range []struct{ prefix, owner string }{
		{schema.Networks.Key(""), "network"}, {schema.Subnets.Key(""), "subnet"},
		{schema.Ports.Key(""), "port"}, {schema.SecurityGroups.Key(""), "security-group"},
	} {
		bundles := schema.Bundles.Key(schema.BundleID(topology.Owner{Kind: kind.owner}))
		for key := range there {
			for _, pair := range [2][2]string{{kind.prefix, bundles}, {bundles, kind.prefix}} {
				id, ok := strings.CutPrefix(key, pair[0])
				if ok && !there[pair[1]+id] {
					faults = append(faults, fmt.Errorf("%s is there without %s", key, pair[1]+id))
				}
			}
		}
	}
	return errors.Join(err, errors.Join(faults...))
}

// withoutIdentity hides the identity service's keys: its tables are its own.
type withoutIdentity struct{ store.Store }

func (s withoutIdentity) List(ctx context.Context, prefix string) ([]store.KV, int64, error) {
	all, rev, err := s.Store.List(ctx, prefix)
	var rest []store.KV
	for _, kv := range all {
		if !ofIdentity(kv.Key) {
			rest = append(rest, kv)
		}
	}
	return rest, rev, err
}

func ofIdentity(key string) bool {
	for _, root := range []string{"/heddle/unique/", "/heddle/idx/"} {
		rest, ok := strings.CutPrefix(key, root)
		if !ok {
			continue
		}
		for _, table := range []string{"domain", "project", "user", "role", "assignment", "application_credential"} {
			if strings.HasPrefix(rest, table+"/") {
				return true
			}
		}
	}
	return false
}

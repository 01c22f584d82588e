package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/journal"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

var admin = neutron.Caller{UserID: "u", ProjectID: "p", Roles: []string{"admin", "member", "reader"}}

// cloud is a store in memory, with what Neutron's operations make of it and a journal.
type cloud struct {
	*control.Service
	db      *records.DB
	journal *journal.Journal
}

func newCloud(t testing.TB) *cloud {
	t.Helper()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	c := &cloud{db: records.NewDB(st, rep), journal: NewJournal(t.TempDir(), st, nil)}
	var err error
	if c.Service, err = control.New(c.db, control.Options{Quotas: map[string]int{"port": -1}}); err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, rep)
	apitest.Run(t, c.journal)
	c.view(t)
	return c
}

// view returns the present, once the journal has it.
func (c *cloud) view(t testing.TB) *records.Snap {
	t.Helper()
	snap, err := c.db.View(t.Context())
	if err == nil {
		err = c.journal.Await(t.Context(), snap.Revision())
	}
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// create makes objects of a resource as a request does.
func create[V any](t testing.TB, ops control.Operations[V], r neutron.Resource, bodies ...string) []V {
	t.Helper()
	values := make([]neutron.Values, len(bodies))
	for i, body := range bodies {
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		var object map[string]any
		err := d.Decode(&object)
		if err == nil {
			values[i], err = neutron.Parse(admin, r, neutron.Create, object)
		}
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	made, err := ops.Create(t.Context(), admin, values)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestAt: at each revision the journal has the tables as they were.
func TestAt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var snaps []*records.Snap
	network := create(t, c.Networks(), neutron.Networks, `{"name":"blue"}`)[0]
	snaps = append(snaps, c.view(t))
	create(t, c.Subnets(), neutron.Subnets, fmt.Sprintf(`{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}`, network.ID))
	snaps = append(snaps, c.view(t))
	port := create(t, c.Ports(), neutron.Ports, fmt.Sprintf(`{"network_id":%q,"name":"vm1"}`, network.ID))[0]
	snaps = append(snaps, c.view(t))
	if _, err := c.Ports().Update(t.Context(), admin, port.ID, neutron.Values{"name": "vm2"}, nil); err != nil {
		t.Fatal(err)
	}
	snaps = append(snaps, c.view(t))
	if err := c.Ports().Delete(t.Context(), admin, port.ID, nil); err != nil {
		t.Fatal(err)
	}
	snaps = append(snaps, c.view(t))
	for _, want := range snaps {
		got, at, err := AtRevision(t.Context(), c.journal, journal.Position{Revision: want.Revision()})
		if err != nil {
			t.Fatal(err)
		}
		if got.Revision() != want.Revision() || at.IsZero() {
			t.Errorf("revision %d of %v, want %d", got.Revision(), at, want.Revision())
		}
		same(t, "networks", schema.Networks.All(got), schema.Networks.All(want))
		same(t, "subnets", schema.Subnets.All(got), schema.Subnets.All(want))
		same(t, "ports", schema.Ports.All(got), schema.Ports.All(want))
		same(t, "groups", schema.SecurityGroups.All(got), schema.SecurityGroups.All(want))
		same(t, "bundles", schema.Bundles.All(got), schema.Bundles.All(want))
	}
	if now, _, err := At(t.Context(), c.journal, time.Now().Add(time.Minute)); err != nil || now.Revision() != snaps[len(snaps)-1].Revision() {
		t.Errorf("the newest state: %v", err)
	}
	var missing *journal.NotRecordedError
	if _, _, err := At(t.Context(), c.journal, time.Now().Add(-time.Hour)); !errors.As(err, &missing) {
		t.Errorf("before the journal begins: %v", err)
	}
}

func same[T any](t *testing.T, what string, got, want iter.Seq[*T]) {
	t.Helper()
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
		t.Errorf("%s, -want +got:\n%s", what, diff)
	}
}

func asJSON[T any](t *testing.T, all iter.Seq[*T]) (texts []string) {
	t.Helper()
	for _, o := range slices.Collect(all) {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(raw))
	}
	return texts
}

// BenchmarkAt makes the tables of 10,000 ports at a past revision, and a page of one port's
// history; the goals are 1 s and 1 s.
func BenchmarkAt(b *testing.B) {
	c := newCloud(b)
	network := create(b, c.Networks(), neutron.Networks, `{"name":"blue"}`)[0]
	create(b, c.Subnets(), neutron.Subnets, fmt.Sprintf(`{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/16"}`, network.ID))
	for range 40 {
		create(b, c.Ports(), neutron.Ports, slices.Repeat([]string{fmt.Sprintf(`{"network_id":%q}`, network.ID)}, 250)...)
	}
	port := create(b, c.Ports(), neutron.Ports, fmt.Sprintf(`{"network_id":%q}`, network.ID))[0]
	revision := c.view(b).Revision()
	b.Run("tables", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := AtRevision(context.Background(), c.journal, journal.Position{Revision: revision}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("history of a port", func(b *testing.B) {
		for b.Loop() {
			if h, err := Page(context.Background(), c.journal, Query{Caller: admin, IDs: []string{port.ID}, Limit: 20}); err != nil || len(h.Changes) != 1 {
				b.Fatal(h, err)
			}
		}
	})
}

package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestUpgrade: the format is raised once no live member is behind, by those who may. A host and
// a server of the cluster that do not report are named.
func TestUpgrade(t *testing.T) {
	w := newWorld(t, time.Second)
	w.writeFormat(t)
	w.cluster = []ClusterMember{{Name: "cloud"}, {Name: "s2"}, {PeerURL: "https://192.0.2.3:2380"}} // the last has never run
	report := func(reads int) {
		w.update(t, func(tx *records.Tx) error {
			return schema.HostStates.Put(tx, &topology.HostState{HostID: host, Version: "v", Reads: reads, Writes: reads})
		})
	}
	w.update(t, func(tx *records.Tx) error {
		if err := errors.Join(schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}), schema.Hosts.Put(tx, &topology.Host{ID: "away", Name: "h2"})); err != nil {
			return err
		}
		return schema.Servers.Put(tx, &schema.Server{ID: "s", Name: "cloud", Role: "serve", Version: "v", Reads: 2, Writes: 2})
	})
	report(1)
	wantUpgrade(t, w, 1, 1, []bool{false, true})
	if status, text := w.call(t, "admin", http.MethodPost, "/v1/upgrade/commit"); status != http.StatusConflict || !strings.Contains(text, "agent on h1 (v) reads format 1") {
		t.Errorf("commit with a host behind: %d %s", status, text)
	}
	report(2)
	if status, _ := w.call(t, "member", http.MethodPost, "/v1/upgrade/commit"); status != http.StatusForbidden {
		t.Errorf("a member is answered %d", status)
	}
	if status, text := w.call(t, "admin", http.MethodPost, "/v1/upgrade/commit"); status != http.StatusOK || !strings.HasPrefix(text, `{"written":2,"min_reader":1,`) {
		t.Errorf("commit: %d %s", status, text)
	}
	wantUpgrade(t, w, 2, 1, []bool{false, false})
	report(9999) // which no server knows
	wantUpgrade(t, w, 2, 1, []bool{false, false})
	if status, text := w.call(t, "admin", http.MethodPost, "/v1/upgrade/commit"); status != http.StatusOK {
		t.Errorf("commit beside a host that says anything: %d %s", status, text)
	}
}

// writeFormat marks the store as one of format 1.
func (w *world) writeFormat(t *testing.T) {
	t.Helper()
	if _, err := w.db.Store().Commit(t.Context(), nil, []store.Op{{Key: store.SchemaKey, Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
}

// wantUpgrade compares the format in use, and who of server and host is behind.
func wantUpgrade(t *testing.T, w *world, written, minReader int, behind []bool) {
	t.Helper()
	status, text := w.get(t, "admin", "/v1/upgrade")
	var v operator.Formats
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != http.StatusOK {
		t.Fatalf("status: %d %s", status, text)
	}
	if v.Written != written || v.MinReader != minReader || v.Newest != 2 || len(v.Members) != 2 || v.Members[0].Name != "cloud" || v.Members[1].Name != "h1" {
		t.Fatalf("status: %s; want format %d for %d, the server and the host", text, written, minReader)
	}
	if want := []operator.Silent{{Role: "serve", Name: "s2"}, {Role: "agent", Name: "h2"}}; !slices.Equal(v.Silent, want) {
		t.Errorf("away: %v, want %v", v.Silent, want)
	}
	for i, m := range v.Members {
		if m.Behind != behind[i] {
			t.Errorf("%s: behind %v", m.Name, m.Behind)
		}
	}
}

package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/api/operator"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// claim returns the record of a host as it would be if the host had the name.
func claim(t *testing.T, id, name string) []byte {
	t.Helper()
	value, err := json.Marshal(&topology.Host{ID: id, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestNamesComeFromTheJoin: a host cannot take another's name, and so neither its new ports nor its
// removal.
func TestNamesComeFromTheJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	victim, err := w.join(w.token(""), "victim")
	if err != nil {
		t.Fatal(err)
	}
	thief, err := w.join(w.token(""), "thief")
	if err != nil {
		t.Fatal(err)
	}
	st, err := w.reach(thief)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	key := schema.Hosts.Key(thief.HostID)
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: claim(t, thief.HostID, "victim")}}); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a host writes its own name: %v", err)
	}
	own := schema.Underlays.Key(thief.HostID)
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: own, Value: []byte(`{"hostId":"` + thief.HostID + `"}`)}}); err != nil {
		t.Errorf("a host reports how it is reached: %v", err)
	}
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.Underlays.Key(victim.HostID), Value: []byte(`{}`)}}); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a host says how another is reached: %v", err)
	}

	// As an earlier version let it: with the right to write its record, and its name changed.
	// Nobody can say now which of the two a name is, so nothing is done by it.
	if _, err := w.store.Commit(t.Context(), nil, []store.Op{{Key: key, Value: claim(t, thief.HostID, "victim")}}); err != nil {
		t.Fatal(err)
	}
	w.call("admin", 409, "GET", "/v1/hosts/victim", "", nil)
	w.call("admin", 409, "DELETE", "/v1/hosts/victim?force=true", "", nil)
	if _, err := w.join(w.token(`{"name":"victim"}`), "victim"); err == nil || !strings.Contains(err.Error(), "name of several hosts") {
		t.Errorf("join under an ambiguous name: %v", err)
	}
	u := NewUpkeep(Options{DB: w.db, Admission: w.store, CA: w.store.Authority().PEM})
	if err := u.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(names(w.hosts())); got != "[thief victim]" {
		t.Errorf("names after the upkeep: %s", got)
	}
	var show struct{ Host operator.Host }
	w.call("admin", 200, "GET", "/v1/hosts/victim", "", &show)
	if show.Host.ID != victim.HostID {
		t.Errorf("victim is %s, want %s", show.Host.ID, victim.HostID)
	}
	w.call("admin", 204, "DELETE", "/v1/hosts/thief", "", nil)
	if got := fmt.Sprint(names(w.hosts())); got != "[victim]" {
		t.Errorf("names after the removal: %s", got)
	}
	if left, _, err := w.store.List(t.Context(), schema.UnderlayPrefix); err != nil || len(left) != 0 {
		t.Errorf("left of a removed host: %v, %v", left, err)
	}
}

func names(all []operator.Host) (names []string) {
	for _, h := range all {
		names = append(names, h.Name)
	}
	return names
}

// TestNameOfAnothersID: no host can be called as another's id is, and a word that is both names
// neither.
func TestNameOfAnothersID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.join(w.token(""), first.HostID); err == nil || !strings.Contains(err.Error(), "could be mistaken for the id") {
		t.Errorf("joined as another's id: %v", err)
	}
	w.call("admin", 400, "POST", "/v1/join-tokens", `{"name":"`+uuid.NewString()+`"}`, nil)
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error {
		return schema.Hosts.Put(tx, &topology.Host{ID: "other", Name: first.HostID})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.call("admin", 409, "DELETE", "/v1/hosts/"+first.HostID, "", nil)
	w.call("admin", 204, "DELETE", "/v1/hosts/other", "", nil)
	w.call("admin", 204, "DELETE", "/v1/hosts/"+first.HostID, "", nil)
}

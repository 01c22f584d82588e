package neutronv2_test

import (
	"encoding/json"
	"strings"
	"testing"

	"heddle/internal/audit"
	"heddle/internal/control"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// records returns the records of requests.
func (s *server) records(t *testing.T) []store.KV {
	t.Helper()
	kvs, _, err := s.st.List(t.Context(), audit.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	return kvs
}

// TestAudit: each request that changes something has a record in its commit, without secrets, and
// no other request has one.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	id := s.create(t, "admin", "bgp-peers", `{"bgp_peer":{"name":"tor","peer_ip":"192.0.2.1","remote_as":65000,"auth_type":"md5","password":"hunter2"}}`)["id"].(string)
	kvs := s.records(t)
	if len(kvs) != 1 {
		t.Fatalf("%d records of a request, want 1", len(kvs))
	}
	peer, err := s.st.Get(t.Context(), schema.BGPPeers.Key(id))
	if err != nil {
		t.Fatal(err)
	}
	if peer.ModRevision != kvs[0].ModRevision {
		t.Errorf("the record is of revision %d, the change of %d", kvs[0].ModRevision, peer.ModRevision)
	}
	if strings.Contains(string(kvs[0].Value), "hunter2") {
		t.Errorf("a record has a password: %s", kvs[0].Value)
	}
	var r audit.Record
	if err := json.Unmarshal(kvs[0].Value, &r); err != nil {
		t.Fatal(err)
	}
	if r.UserID != "u3" || r.ProjectID != adminProject || r.Method != "POST" || r.Path != "/v2.0/bgp-peers" || r.API != "network" || r.Summary != "create bgp-peers" ||
		r.Client != "127.0.0.1" || r.Time.IsZero() || kvs[0].Key != audit.Prefix+r.RequestID || !strings.Contains(r.Body, `"name":"tor"`) || !strings.Contains(r.Body, `"password":"***"`) {
		t.Errorf("the record is %s", kvs[0].Value)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/bgp-peers", ""},
		{"POST", "/bgp-peers", `{"bgp_peer":{"name":"x"}}`},
		{"DELETE", "/networks/none", ""},
		{"PUT", "/bgp-peers/" + id, `{"bgp_peer":{"name":"tor"}}`},
	} {
		s.do(t, "admin", c.method, c.path, c.body, nil)
		if n := len(s.records(t)); n != 1 {
			t.Errorf("%s %s changes nothing, and has left a record: %d, want 1", c.method, c.path, n)
		}
	}
}

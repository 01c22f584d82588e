package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/api/hosts"
	"heddle/internal/store/schema"
)

// TestHostFollowsServer: a server's API and its store move to other addresses one after the other,
// once while the host is off; then the API, and last the store, get another authority. The host
// follows, by what the store and the API say of each other.
func TestHostFollowsServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ctl.MustIP(t, "addr add 192.0.2.2/24 dev underlay", "addr add 192.0.2.3/24 dev underlay")
	h := s.addHost(t, "h1", "192.0.2.11")
	at := func(operator, store string, more ...string) *running {
		t.Helper()
		return start(t, s.ctl, append([]string{"serve", "--data", s.data, "--operator-listen", operator + ":9698", "--agents-listen", store + ":2379"}, more...)...)
	}
	follows := func(server, store string) {
		t.Helper()
		within(t, "the host to follow to "+server+" and "+store, func() bool {
			c, err := hosts.Load(h.state)
			return err == nil && slices.Contains(c.Servers, "https://"+server+":9698") && slices.Equal(c.Endpoints, []string{"https://" + store + ":2379"})
		})
	}
	var agent *running
	hears := func() {
		t.Helper()
		st, id := openData(t, s.data), uuid.NewString()
		put(t, st, schema.Hosts.Key(id), fmt.Sprintf(`{"id": %q, "name": %q}`, id, id))
		written, err := st.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		within(t, "the host to follow the store", func() bool { return agent.storeRevision(t) >= written })
	}
	server := at("192.0.2.1", "192.0.2.1")
	agent = start(t, h.ns, h.agent("--join", s.token(t))...)

	server.stop(t)
	server = at("192.0.2.2", "192.0.2.1") // the store says where the API is
	follows("192.0.2.2", "192.0.2.1")
	server.stop(t)
	server = at("192.0.2.2", "192.0.2.3") // the API says where the store is
	follows("192.0.2.2", "192.0.2.3")
	hears()

	agent.stop(t)
	server.stop(t)
	server = at("192.0.2.2", "192.0.2.1")
	agent = start(t, h.ns, h.agent()...)
	follows("192.0.2.2", "192.0.2.1")
	hears()

	server.stop(t)
	ca, cert, key := certify(t) // for 192.0.2.1
	server = at("192.0.2.1", "192.0.2.1", "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca)
	within(t, "the host to know the certificate", func() bool {
		c, err := hosts.Load(h.state)
		return err == nil && len(c.Pins) == 2
	})
	server.stop(t)
	server = at("192.0.2.1", "192.0.2.3", "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca) // only the API with that certificate says where
	follows("192.0.2.1", "192.0.2.3")
	hears()

	server.stop(t)
	if err := os.RemoveAll(filepath.Join(s.data, "tls")); err != nil { // the store gets another authority
		t.Fatal(err)
	}
	at("192.0.2.1", "192.0.2.3", "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca)
	within(t, "the host to know the authority", func() bool {
		now, err1 := os.ReadFile(filepath.Join(s.data, "tls", "ca.crt"))
		known, err2 := os.ReadFile(filepath.Join(h.state, "ca.crt"))
		return err1 == nil && err2 == nil && string(known) == string(now)
	})
	hears()
}

// overlayRevision matches the metric of the revision that an overlay agent has.
var overlayRevision = regexp.MustCompile(`(?m)^heddle_overlay_store_revision (\S+)$`)

// storeRevision returns the revision of the store that an agent has, or 0 while it does not say.
func (r *running) storeRevision(t *testing.T) int64 {
	t.Helper()
	_, text, err := r.page(t.Context(), "/metrics")
	found := overlayRevision.FindStringSubmatch(text)
	if err != nil || found == nil {
		return 0
	}
	at, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Errorf("revision %q: %v", found[1], err)
	}
	return int64(at)
}

package authority

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// certificate returns an authority that ends at a time; bridges: it can certify another one.
func certificate(name string, end time.Time, bridges bool) *x509.Certificate {
	c := &x509.Certificate{Raw: []byte(name), Subject: pkix.Name{CommonName: name}, NotAfter: end}
	if bridges {
		c.MaxPathLen = 1
	}
	return c
}

// TestStatus lists states of a rotation, and what each waits for or asks for.
func TestStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	later := now.Add(10 * 365 * 24 * time.Hour)
	a, b, old := certificate("a", later, true), certificate("b", later, true), certificate("old", later, false)
	of := func(signer *x509.Certificate, trusts ...*x509.Certificate) *schema.Trust {
		t := &schema.Trust{SignedBy: fingerprint(signer)}
		for _, c := range trusts {
			t.Authorities = append(t.Authorities, fingerprint(c))
		}
		return t
	}
	peers := func(t *schema.Trust, trusts ...*x509.Certificate) *schema.Trust {
		for _, c := range trusts {
			t.Peers = append(t.Peers, fingerprint(c))
		}
		return t
	}
	server := func(name string, trust *schema.Trust) schema.Server {
		return schema.Server{Name: name, Role: "serve", Reach: schema.Reach{Trust: trust}}
	}
	announced := backend.AuthorityState{Signs: a, Next: b}
	signing := backend.AuthorityState{Signs: b, Former: a, FormerTrusted: true, Bridged: true}
	retired := backend.AuthorityState{Signs: b, Former: a, Bridged: true}
	done := []schema.Server{server("s1", of(b, b, a))}
	for _, test := range []struct {
		name     string
		found    found
		waiting  []string // beginnings
		problems []string
	}{
		{"before the first rotation", found{state: backend.AuthorityState{Signs: a}, servers: []schema.Server{server("s1", of(a, a))}, hosts: []host{{name: "h1", alive: true}}}, nil, nil},
		{"within a year of its end", found{state: backend.AuthorityState{Signs: certificate("a", now.Add(364*24*time.Hour), true)}}, nil, []string{"the authority ends on 2030-12-31"}},
		{"the clock is 400 days ahead", found{state: backend.AuthorityState{Signs: certificate("a", now.Add(700*24*time.Hour), true)}, now: now.Add(400 * 24 * time.Hour)}, nil, []string{"the authority ends on"}},
		{"announced", found{state: announced, servers: []schema.Server{server("s1", of(a, a))}}, []string{"server s1 does not trust the new authority yet"}, nil},
		{"all servers trust it", found{state: announced, servers: []schema.Server{server("s1", of(a, a, b))}}, nil, nil},
		{"a server of an earlier version", found{state: announced, servers: []schema.Server{server("s1", nil)}}, []string{"server s1 does not say"}, nil},
		{"a member is down", found{state: announced, members: []string{"s1", "s2"}, servers: []schema.Server{server("s1", peers(of(a, a, b), a))}}, []string{"server s2 is down"}, nil},
		{"a member that has never run", found{state: announced, members: []string{"s1", ""}, servers: []schema.Server{server("s1", peers(of(a, a, b), a))}}, []string{"server (never ran) is down"}, nil},
		{"members know the present authority", found{state: announced, members: []string{"s1", "s2"}, servers: []schema.Server{
			server("s1", peers(of(a, a, b), a)), server("s2", peers(of(a, a, b), a, b))}}, nil, nil},
		{"a member that has run since before the present authority", found{state: announced, members: []string{"s1", "s2"}, servers: []schema.Server{
			server("s1", peers(of(a, a, b), old)), server("s2", peers(of(a, a, b), a))}}, []string{"server s1 has not been started since the rotation before"}, nil},
		{"members over an authority of an earlier version", found{state: backend.AuthorityState{Signs: old, Next: b}, members: []string{"s1", "s2"}, servers: []schema.Server{
			server("s1", peers(of(old, old, b), old)), server("s2", peers(of(old, old, b), old, b))}}, []string{"server s1 has to be started again"}, nil},
		{"a server without new certificate", found{state: signing, servers: []schema.Server{server("s1", of(a, b, a))}}, []string{"server s1 has no certificate"}, nil},
		{"hosts", found{state: signing, servers: done, hosts: []host{
			{name: "renewed", signer: fingerprint(b)}, {name: "up", alive: true, signer: fingerprint(a), until: later}, {name: "away", until: later},
			{name: "ended", signer: fingerprint(a), until: now}, {name: "unknown"}}},
			[]string{"host up has no certificate", "host away is away, and its certificate good until", "host unknown is away: start its agent"}, nil},
		{"hosts after an authority of an earlier version", found{state: backend.AuthorityState{Signs: b, Former: old, FormerTrusted: true}, servers: done, hosts: []host{{name: "away", until: later}}},
			[]string{"host away is away: start its agent"}, nil},
		{"programs", found{state: signing, servers: done, programs: map[string]string{"p1": "", "p2": fingerprint(b), "p3": fingerprint(a)}},
			[]string{"program p1 has", "program p3 has"}, nil},
		{"the former one is out of use", found{state: signing, servers: done}, nil, nil},
		{"retired", found{state: retired, members: []string{"s1", "s2"}, servers: []schema.Server{server("s1", peers(of(b, b), a, b)), server("s2", peers(of(b, b), b))}},
			nil, []string{"server s1 trusts the retired authority"}},
	} {
		if test.found.now.IsZero() {
			test.found.now = now
		}
		v := test.found.view()
		begins := func(line, want string) bool { return strings.HasPrefix(line, want) }
		if !slices.EqualFunc(v.WaitingFor, test.waiting, begins) || !slices.EqualFunc(v.Problems, test.problems, begins) {
			t.Errorf("%s: waits for %q, problems %q; want %q and %q", test.name, v.WaitingFor, v.Problems, test.waiting, test.problems)
		}
		if v.Rotating != (test.found.state.Next != nil || test.found.state.FormerTrusted) {
			t.Errorf("%s: rotating %v", test.name, v.Rotating)
		}
	}
}

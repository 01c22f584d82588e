package backend

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
)

// hostClient makes a host's certificate by a server, and returns a client of that server's store
// which trusts the authorities in caFile.
func hostClient(t *testing.T, s *Etcd, host, caFile string) (Cluster, *x509.Certificate) {
	t.Helper()
	if err := s.AllowHost(t.Context(), host, host, ""); err != nil {
		t.Fatal(err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := s.Issue(host, "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Cluster{Endpoints: []string{"https://" + s.Endpoint()}, CAFile: caFile, CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key"), SkipLimits: true}
	if err := errors.Join(writeFile(c.CertFile, cert), writeFile(c.KeyFile, keyPEM)); err != nil {
		t.Fatal(err)
	}
	leaf, err := parseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	return c, leaf
}

// read opens the store with new connections and reads from it.
func (o Cluster) read(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := Open(ctx, Options{Cluster: &o})
	if err != nil {
		return err
	}
	defer s.Close()
	_, _, err = s.List(ctx, "/heddle/topology/")
	return err
}

// within waits for a condition, for a minute at most.
func within(t *testing.T, what string, cond func() (bool, error)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return netlab.Until(ctx, what, cond)
}

// waitAuthority waits until a store has these authorities in force, the one that signs first.
func waitAuthority(t *testing.T, s *Etcd, want ...*x509.Certificate) {
	t.Helper()
	var prints []string
	for _, c := range want {
		prints = append(prints, fingerprint(c.Raw))
	}
	err := within(t, "the authorities in force", func() (bool, error) {
		a := s.Authority()
		return slices.Equal(a.TrustedFingerprints(), prints) && a.Fingerprint() == prints[0], nil
	})
	if err != nil {
		t.Fatalf("the store trusts %v, want %v: %v", s.Authority().TrustedFingerprints(), prints, err)
	}
}

// copyFile returns a copy of a file.
func copyFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// mustState returns the state of the authority.
func mustState(t *testing.T, s *Etcd) AuthorityState {
	t.Helper()
	state, err := s.AuthorityState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestRotation: through all steps of a rotation hosts with certificates of either authority reach
// the store, with the authorities that they know. The steps after the first can be repeated. In the
// end certificates of the former authority are refused, and who knows only that one still
// recognizes the server.
func TestRotation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := Embedded{DataDir: t.TempDir(), Agents: freeAddress(t)}
	s := openTest(t, o)
	first := mustState(t, s).Signs
	before := copyFile(t, o.caCert()) // what a client has copied
	oldHost, _ := hostClient(t, s, "h1", before)
	check := func(when string, c Cluster) {
		t.Helper()
		if err := c.read(t); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("before", oldHost)

	if err := s.AnnounceAuthority(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	next := mustState(t, s).Next
	if err := s.AnnounceAuthority(ctx, time.Now()); !errors.Is(err, ErrAnnounced) || !mustState(t, s).Next.Equal(next) {
		t.Errorf("announced again: %v", err)
	}
	waitAuthority(t, s, first, next)
	check("announced", oldHost)
	for range 2 {
		if err := s.PromoteAuthority(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	waitAuthority(t, s, next, first)
	if err := s.AnnounceAuthority(ctx, time.Now()); !errors.Is(err, ErrRotating) {
		t.Errorf("a rotation within a rotation: %v", err)
	}
	check("old certificate, old authority known", oldHost)
	newHost, leaf := hostClient(t, s, "h2", before)
	if leaf.CheckSignatureFrom(next) != nil {
		t.Error("the new authority does not sign")
	}
	check("new certificate, old authority known", newHost)
	pair, err := tls.LoadX509KeyPair(o.serverCert(), o.serverKey())
	if err != nil || pair.Leaf.CheckSignatureFrom(next) != nil || fingerprint(pair.Certificate[len(pair.Certificate)-1]) != fingerprint(next.Raw) {
		t.Errorf("the server's certificate: %v, of %d", err, len(pair.Certificate))
	}

	open, err := Open(ctx, Options{Cluster: &oldHost})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for range 2 {
		if err := s.RetireAuthority(ctx); err != nil {
			t.Fatal(err)
		}
	}
	waitAuthority(t, s, next)
	check("new certificate, old authority known, retired", newHost)
	newHost.CAFile = o.caCert()
	check("new certificate, new authority known", newHost)
	if err := oldHost.read(t); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a certificate of the retired authority: %v", err)
	}
	// Its connection ends, and it can make no other.
	for end := time.Now().Add(time.Minute); ; {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, _, err := open.List(attempt, "/heddle/topology/")
		cancel()
		if errors.Is(err, store.ErrUnavailable) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a connection by a certificate of the retired authority goes on: %v", err)
		}
	}
}

// TestRotationInterrupted: a server that dies between any two writes of its files starts, and goes
// on with what the store has.
func TestRotationInterrupted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := Embedded{DataDir: t.TempDir(), Agents: freeAddress(t)}
	read := func() map[string]string {
		t.Helper()
		files := map[string]string{}
		for _, f := range []string{o.caCert(), o.caKey(), o.caFormer()} {
			text, err := os.ReadFile(f)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			files[f] = string(text)
		}
		return files
	}
	s := openTest(t, o)
	start := read()
	if err := s.AnnounceAuthority(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	state := mustState(t, s)
	waitAuthority(t, s, state.Signs, state.Next)
	announced := read()
	if err := s.PromoteAuthority(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	waitAuthority(t, s, state.Next, state.Signs)
	promoted := read()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"nothing written":           announced,
		"not even the announcement": start,
		"key":                       {o.caCert(): announced[o.caCert()], o.caKey(): promoted[o.caKey()], o.caFormer(): ""},
		"key and chain":             {o.caCert(): announced[o.caCert()], o.caKey(): promoted[o.caKey()], o.caFormer(): promoted[o.caFormer()]},
	} {
		for file, text := range files {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(ctx, Options{Embedded: &o, Log: testLog(t)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		waitAuthority(t, s, state.Next, state.Signs)
		if got := read(); got[o.caCert()] != promoted[o.caCert()] || got[o.caKey()] != promoted[o.caKey()] || got[o.caFormer()] != promoted[o.caFormer()] {
			t.Errorf("%s: the files differ from the store's authority", name)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRotationOfPeers: a rotation leaves a cluster together, and members that join or start during
// and after it find it.
func TestRotationOfPeers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o1, o2, o3 := peerStore(t, "s1"), peerStore(t, "s2"), peerStore(t, "s3")
	s1 := openPeer(t, o1)
	admit(t, s1, &o2)
	s2 := openPeer(t, o2)
	state := mustState(t, s1)
	first := state.Signs
	if got := s2.PeersTrust(); !slices.Equal(got, []string{fingerprint(first.Raw)}) {
		t.Errorf("members trust %v", got)
	}
	if err := s2.AnnounceAuthority(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	next := mustState(t, s1).Next
	waitAuthority(t, s1, first, next)
	waitAuthority(t, s2, first, next)
	if err := s1.PromoteAuthority(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	waitAuthority(t, s1, next, first)
	waitAuthority(t, s2, next, first)
	// The connections of members that know only the first authority are made anew.
	if err := s2.Close(); err != nil {
		t.Fatal(err)
	}
	s2 = openPeer(t, o2)
	mustCommit(t, s2, put("/heddle/during", "1"))
	if err := s1.RetireAuthority(ctx); err != nil {
		t.Fatal(err)
	}
	waitAuthority(t, s1, next)
	waitAuthority(t, s2, next)
	// etcd wants a member to be connected for a while before it adds another.
	err := within(t, "a majority that is connected", func() (ok bool, err error) {
		if o3.Peer.Join, err = s1.AddMember(ctx, o3.Peer.Name, o3.Peer.URL()); errors.Is(err, ErrQuorum) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	admit(t, s1, &o3)
	s3 := openPeer(t, o3)
	waitAuthority(t, s3, next)
	if kv, err := s3.Get(ctx, "/heddle/during"); err != nil || string(kv.Value) != "1" {
		t.Errorf("a member that joined after the rotation: %s, %v", kv.Value, err)
	}
	mustCommit(t, s3, put("/heddle/after", "1"))
}

// TestAuthorityOfEarlierVersion: an authority that certifies no other is exchanged without a chain
// from the one to the other, which no client would accept.
func TestAuthorityOfEarlierVersion(t *testing.T) {
	t.Parallel()
	o := Embedded{DataDir: t.TempDir(), Agents: freeAddress(t)}
	if err := os.MkdirAll(o.tlsDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	template := certificate("Heddle store", time.Now(), authorityLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero, template.KeyUsage = true, true, true, x509.KeyUsageCertSign
	cert, err := sign(template, template, key.Public(), key)
	if err == nil {
		err = errors.Join(writeFile(o.caKey(), keyPEM), writeFile(o.caCert(), cert))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := openTest(t, o)
	oldCA := copyFile(t, o.caCert())
	if err := errors.Join(s.AnnounceAuthority(t.Context(), time.Now()), s.PromoteAuthority(t.Context(), time.Now())); err != nil {
		t.Fatal(err)
	}
	state := mustState(t, s)
	waitAuthority(t, s, state.Signs, state.Former)
	if state.Bridged {
		t.Error("an authority that certifies no other has certified the new one")
	}
	host, _ := hostClient(t, s, "h1", o.caCert())
	if err := host.read(t); err != nil {
		t.Errorf("a host that knows both authorities: %v", err)
	}
	host.CAFile = oldCA
	if err := host.read(t); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a host that knows only the former one: %v", err)
	}
}

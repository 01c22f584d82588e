package backend

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// The authority of an embedded store is exchanged in steps, each one transaction that any server
// may make; what is in force is in the store, and each server's files follow it:
//
//	Announce ─▶ next:   all servers trust a new authority beside the present one
//	Promote  ─▶ former: it signs; the one before is still trusted, and its key is gone
//	Retire   ─▶         the one before is trusted no more
//
// The present authority certifies the new one's key before its own is thrown away. Servers present
// that certificate, so clients that know only the authority before recognize them.

// authorityKey holds the authority with its key, so that a backup has it and hosts need not join
// again after a restore. Only root can read it.
const authorityKey = "/heddle-authority"

// storedAuthority is the record of an authority and of its rotation.
type storedAuthority struct {
	Certificate string `json:"certificate"` // PEM
	Key         string `json:"key"`
	// Next will sign once all servers trust it.
	Next *storedAuthority `json:"next,omitempty"`
	// Cross is Certificate's key certified by the authority before, whose own certificate is
	// Former: PEM, and empty before the first rotation.
	Cross         string `json:"cross,omitempty"`
	Former        string `json:"former,omitempty"`
	FormerTrusted bool   `json:"former_trusted,omitempty"`
}

// ErrAnnounced and ErrRotating: a rotation of the authority is under way, before and after the new
// one signs.
var (
	ErrAnnounced = errors.New("a new authority is announced")
	ErrRotating  = errors.New("the authority is being rotated")
)

// AuthorityState describes the authority in force and its rotation. Certificates are nil where
// there is none.
type AuthorityState struct {
	Signs, Next, Former *x509.Certificate
	FormerTrusted       bool
	// Bridged: clients that know only the former authority recognize servers by the chain that
	// these present. It is not possible for an authority of an earlier version.
	Bridged bool
}

// Rotating reports whether a rotation is under way.
func (s AuthorityState) Rotating() bool { return s.Next != nil || s.FormerTrusted }

// AuthorityState returns the state of the authority. Only root may call it.
func (s *Etcd) AuthorityState(ctx context.Context) (AuthorityState, error) {
	a, _, err := s.storedAuthority(ctx)
	if err != nil {
		return AuthorityState{}, err
	}
	return a.state()
}

func (a storedAuthority) state() (s AuthorityState, err error) {
	var failures []error
	read := func(text string) *x509.Certificate {
		if text == "" {
			return nil
		}
		cert, err := parseCertificate([]byte(text))
		failures = append(failures, err)
		return cert
	}
	s.Signs, s.Former, s.FormerTrusted, s.Bridged = read(a.Certificate), read(a.Former), a.FormerTrusted, a.Cross != ""
	if a.Next != nil {
		s.Next = read(a.Next.Certificate)
	}
	if err := errors.Join(failures...); err != nil {
		return s, fmt.Errorf("certificate authority: %w", err)
	}
	return s, nil
}

// storedAuthority reads the record, and the revision at which it was written.
func (s *Etcd) storedAuthority(ctx context.Context) (a storedAuthority, mod int64, err error) {
	kv, err := s.Get(ctx, authorityKey)
	if err == nil {
		err = json.Unmarshal(kv.Value, &a)
	}
	if err != nil {
		return a, 0, fmt.Errorf("certificate authority: %w", err)
	}
	return a, kv.ModRevision, nil
}

// changeAuthority changes the record in one transaction, unless f says that nothing is to be done.
func (s *Etcd) changeAuthority(ctx context.Context, f func(*storedAuthority) (changed bool, err error)) error {
	for {
		a, mod, err := s.storedAuthority(ctx)
		if err != nil {
			return err
		}
		changed, err := f(&a)
		if err != nil || !changed {
			return err
		}
		value, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = s.Commit(ctx, []store.Cond{{Key: authorityKey, Mod: mod}}, []store.Op{{Key: authorityKey, Value: value}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// AnnounceAuthority begins a rotation: it makes the authority that will sign. During a rotation the
// error is [ErrAnnounced] or [ErrRotating]: who calls it after a theft must know that the
// announced authority's key was made before, and may have been stolen, too.
func (s *Etcd) AnnounceAuthority(ctx context.Context, now time.Time) error {
	return s.changeAuthority(ctx, func(a *storedAuthority) (bool, error) {
		switch {
		case a.Next != nil:
			return false, ErrAnnounced
		case a.FormerTrusted:
			return false, ErrRotating
		}
		cert, key, err := newAuthority("Heddle store "+now.UTC().Format(time.RFC3339), now)
		a.Next = &storedAuthority{Certificate: string(cert), Key: string(key)}
		return err == nil, err
	})
}

// PromoteAuthority lets the announced authority sign in the place of the present one, whose key is
// thrown away. Without an announced one it does nothing.
func (s *Etcd) PromoteAuthority(ctx context.Context, now time.Time) error {
	return s.changeAuthority(ctx, func(a *storedAuthority) (bool, error) {
		if a.Next == nil {
			return false, nil
		}
		cross, err := a.certifyNext(now)
		if err != nil {
			return false, err
		}
		*a = storedAuthority{Certificate: a.Next.Certificate, Key: a.Next.Key, Cross: string(cross), Former: a.Certificate, FormerTrusted: true}
		return true, nil
	})
}

// certifyNext returns the next authority's key certified by the present authority (PEM), or nil if
// clients would not accept a chain over it.
func (a storedAuthority) certifyNext(now time.Time) ([]byte, error) {
	present, err := parseAuthority([]byte(a.Certificate), []byte(a.Key))
	if err != nil {
		return nil, err
	}
	next, err := parseCertificate([]byte(a.Next.Certificate))
	if err != nil || !Bridges(present.cert) {
		return nil, err
	}
	return present.sign(&x509.Certificate{
		Subject: next.Subject, NotBefore: now.Add(-ClockSkew), NotAfter: earlier(present.cert.NotAfter, next.NotAfter), KeyUsage: next.KeyUsage,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, SubjectKeyId: next.SubjectKeyId,
	}, next.PublicKey)
}

// Bridges reports whether clients that trust an authority accept another one that it has certified.
// Those that earlier versions made do not allow it.
func Bridges(authority *x509.Certificate) bool { return authority.MaxPathLen != 0 }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// RetireAuthority ends trust in the authority before the present one. Called again it does nothing.
func (s *Etcd) RetireAuthority(ctx context.Context) error {
	return s.changeAuthority(ctx, func(a *storedAuthority) (bool, error) {
		had := a.FormerTrusted
		a.FormerTrusted = false
		return had, nil
	})
}

// AuthorityFiles are the contents of an authority's files in a data directory, PEM.
type AuthorityFiles struct {
	Trusted string `json:"certificate"`      // authorities that are trusted
	Key     string `json:"key"`              // of the one that signs
	Former  string `json:"former,omitempty"` // chain from it to the one before
}

// files returns the contents of the authority's files.
func (a storedAuthority) files() AuthorityFiles {
	f := AuthorityFiles{Trusted: a.Certificate, Key: a.Key}
	if a.Next != nil {
		f.Trusted += a.Next.Certificate
	}
	if a.FormerTrusted {
		f.Trusted += a.Former
	}
	if a.Cross != "" {
		f.Former = a.Cross + a.Former
	}
	return f
}

// AuthorityFiles returns the contents of the authority's files. Only root may call it.
func (s *Etcd) AuthorityFiles(ctx context.Context) (AuthorityFiles, error) {
	a, _, err := s.storedAuthority(ctx)
	return a.files(), err
}

// SaveAuthority puts the authority of a cluster into the data directory of a server that joins it.
func SaveAuthority(dataDir string, f AuthorityFiles) error {
	o := Embedded{DataDir: dataDir}
	if err := os.MkdirAll(o.tlsDir(), 0o700); err != nil {
		return err
	}
	return o.saveAuthority(f)
}

func (o Embedded) caFormer() string { return filepath.Join(o.tlsDir(), "ca-former.crt") }

// saveAuthority replaces the authority's files. At each moment the file of certificates has the one
// that the key is for.
func (o Embedded) saveAuthority(f AuthorityFiles) error {
	if _, err := parseAuthority([]byte(f.Trusted), []byte(f.Key)); err != nil {
		return fmt.Errorf("authority of the cluster: %w", err)
	}
	before, err := os.ReadFile(o.caCert())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, write := range []struct{ file, content string }{
		{o.caCert(), Union(f.Trusted, string(before))}, {o.caKey(), f.Key}, {o.caFormer(), f.Former}, {o.caCert(), f.Trusted},
	} {
		if err := keepFile(write.file, []byte(write.content)); err != nil {
			return err
		}
	}
	return nil
}

// Union returns certificates (PEM), followed by those of more that are not among them.
func Union(certs, more string) string {
	for _, one := range splitPEM([]byte(more)) {
		if !strings.Contains(certs, string(one)) {
			certs += string(one)
		}
	}
	return certs
}

// readAuthority returns the authority in the data directory's files.
func (o Embedded) readAuthority() (*Authority, error) {
	a, err := LoadAuthority(o.caCert(), o.caKey())
	if err != nil {
		return nil, err
	}
	a.former, err = os.ReadFile(o.caFormer())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return a, nil
}

// syncAuthority makes the store and the files in the data directory agree when the store opens. The
// store's record counts, which other members may have changed while this one was down, unless it
// does not know the authority in the files: those were put there by an operator.
func (m *member) syncAuthority(ctx context.Context, s *Etcd) error {
	o, own := m.options, s.Authority()
	a, _, err := s.storedAuthority(ctx)
	if err == nil && a.knows(own.cert) {
		return m.adoptAuthority(s, a)
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	key, err := os.ReadFile(o.caKey())
	if err != nil {
		return err
	}
	value, err := json.Marshal(storedAuthority{Certificate: string(own.pem), Key: string(key)})
	if err != nil {
		return err
	}
	return s.set(ctx, authorityKey, value)
}

// recallAuthority copies the authority, if any, from the store into the data directory.
func (o Embedded) recallAuthority(ctx context.Context, s *Etcd) error {
	f, err := s.AuthorityFiles(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return o.saveAuthority(f)
}

// knows reports whether the record has a certificate.
func (a storedAuthority) knows(cert *x509.Certificate) bool {
	s, err := a.state()
	return err == nil && slices.ContainsFunc([]*x509.Certificate{s.Signs, s.Next, s.Former}, func(c *x509.Certificate) bool { return c != nil && c.Equal(cert) })
}

// adoptAuthority writes the store's authority to the files, and renews what it has not signed.
func (m *member) adoptAuthority(s *Etcd, a storedAuthority) error {
	m.certificates.Lock()
	defer m.certificates.Unlock()
	if err := m.options.saveAuthority(a.files()); err != nil {
		return err
	}
	now, err := m.options.keepCertificates(time.Now())
	if err != nil {
		return err
	}
	s.authority.Store(now)
	return nil
}

// followAuthority keeps the authority in force until ctx ends.
func (m *member) followAuthority(ctx context.Context, s *Etcd) {
	f := follow.New(follow.Options{Store: s, Prefixes: []string{authorityKey}})
	_ = f.Run(ctx, func(_ context.Context, u follow.Update) { // it ends with ctx alone
		values := make([][]byte, 0, 1)
		for _, kv := range u.All {
			values = append(values, kv.Value)
		}
		for _, e := range u.Events {
			values = append(values, e.Value)
		}
		if len(values) > 0 && len(values[len(values)-1]) > 0 {
			m.replaceAuthority(s, values[len(values)-1])
		}
	})
}

// replaceAuthority puts a record in force. Connections that rest on an authority which is trusted
// no more end.
func (m *member) replaceAuthority(s *Etcd, value []byte) {
	var a storedAuthority
	before := s.Authority()
	err := json.Unmarshal(value, &a)
	if err == nil {
		err = m.adoptAuthority(s, a)
	}
	if err != nil {
		m.log.Error("cannot take over the store's authority; keeping the one before until the next start", "directory", m.options.tlsDir(), "err", err)
		return
	}
	after := s.Authority()
	if bytes.Equal(before.trusted, after.trusted) && before.cert.Equal(after.cert) {
		return
	}
	m.log.Info("the store's authorities have changed", "signs", after.cert.Subject.CommonName, "trusted", len(splitPEM(after.trusted)))
	if len(splitPEM(after.trusted)) < len(splitPEM(before.trusted)) {
		m.front.cut()
	}
}

// PeersTrust returns the fingerprints of the authorities by which a running member of a cluster
// recognizes the others: those that there were when it started. It is empty for other stores.
func (s *Etcd) PeersTrust() []string {
	if s.member == nil {
		return nil
	}
	return s.member.peersTrust
}

// Rotating reports whether a rotation is under way, as far as this server has followed it: more
// than one authority is trusted then.
func (a *Authority) Rotating() bool { return len(splitPEM(a.trusted)) > 1 }

// TrustedFingerprints returns the fingerprints of all authorities that are trusted.
func (a *Authority) TrustedFingerprints() (all []string) {
	for _, one := range splitPEM(a.trusted) {
		if cert, err := parseCertificate(one); err == nil {
			all = append(all, fingerprint(cert.Raw))
		}
	}
	return all
}

// Programs returns the names of programs that have certificates, each with the fingerprint of the
// authority that signed it; "" if an earlier version signed it. Only root may call it.
func (s *Etcd) Programs(ctx context.Context) (map[string]string, error) {
	users, err := s.client.UserList(s.as(ctx))
	if err != nil {
		return nil, explain(ctx, "list etcd users", err)
	}
	signed, _, err := s.List(ctx, programCertificates)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, user := range users.Users {
		if name, ok := strings.CutPrefix(user, programUser("")); ok {
			all[name] = ""
		}
	}
	for _, kv := range signed {
		if name := strings.TrimPrefix(kv.Key, programCertificates); all[name] == "" {
			all[name] = string(kv.Value)
		}
	}
	return all, nil
}

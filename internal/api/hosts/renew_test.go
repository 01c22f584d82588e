package hosts

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/jointoken"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// certificateOf reads a host's certificate.
func certificateOf(t *testing.T, c Credentials) *x509.Certificate {
	t.Helper()
	cert, err := readLeaf(c.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestRenew: a host's certificate is short and renewed with its key, until the host is removed or
// joins with another key.
func TestRenew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "state")
	joined1, err := Join(t.Context(), w.token(""), JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	first := certificateOf(t, joined1)
	if life := first.NotAfter.Sub(first.NotBefore); life > DefaultCertificateLife+backend.ClockSkew {
		t.Errorf("the certificate is good for %v", life)
	}
	before, err := w.reach(joined1)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if _, err := Renew(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	second := certificateOf(t, joined1)
	if second.SerialNumber.Cmp(first.SerialNumber) == 0 || string(second.RawSubjectPublicKeyInfo) != string(first.RawSubjectPublicKeyInfo) {
		t.Error("the renewed certificate is the old one, or for another key")
	}
	if _, _, err := before.List(t.Context(), "/heddle/topology/"); err != nil {
		t.Errorf("an open connection after the renewal: %v", err)
	}
	after, err := w.reach(joined1)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()

	// It was away for longer than its certificate, but not for too long.
	w.pass(DefaultCertificateLife + renewalGrace - time.Hour)
	if _, err := Renew(t.Context(), dir); err != nil {
		t.Errorf("renewal within the grace time: %v", err)
	}
	refused := func(what, dir, why string) {
		t.Helper()
		if _, err := Renew(t.Context(), dir); !Refused(err) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want a refusal that says %q", what, err, why)
		}
	}
	w.pass(DefaultCertificateLife + renewalGrace + 2*time.Hour)
	refused("away for too long", dir, "ended on")
	w.pass(-2*(DefaultCertificateLife+renewalGrace) - time.Hour)

	// Its name joins again elsewhere: the machine that was h1 before is not any more.
	elsewhere := filepath.Join(t.TempDir(), "state")
	if _, err := Join(t.Context(), w.token(`{"name":"h1"}`), JoinOptions{Name: "h1", StateDir: elsewhere}); err != nil {
		t.Fatal(err)
	}
	refused("joined again elsewhere", dir, "another key")
	if _, err := Renew(t.Context(), elsewhere); err != nil {
		t.Error(err)
	}
	w.call("admin", 204, "DELETE", "/v1/hosts/h1", "", nil)
	refused("removed", elsewhere, "was removed")
	// The upkeep of the next start brings nothing back.
	if err := NewUpkeep(Options{DB: w.db, Admission: w.store, CA: w.store.Authority().PEM}).pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("removed, after an upkeep", elsewhere, "was removed")
}

// TestRenewEarlier: a host that joined under an earlier version, whose key the store does not know,
// renews with the certificate it has, and no other host with it.
func TestRenewEarlier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "state")
	c, err := Join(t.Context(), w.token(""), JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.join(w.token(""), "h2")
	if err != nil {
		t.Fatal(err)
	}
	csr, err := os.ReadFile(c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if csr, err = newRequest(csr); err != nil {
		t.Fatal(err)
	}
	long, err := w.store.Issue(c.HostID, "", csr, 20*365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.CertFile, long, 0o600); err != nil {
		t.Fatal(err)
	}
	if due := renewalDue(certificateOf(t, c)); due.After(time.Now()) {
		t.Errorf("a certificate of twenty years is to be renewed at %v", due)
	}
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error { return joined.Put(tx, &Joined{HostID: c.HostID}) })
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, certificate := range []string{"", string(foreign), strings.Replace(string(long), "M", "N", 1)} {
		ask, _ := json.Marshal(renewRequest{c.HostID, certificate, string(csr)})
		w.call("", 403, "POST", "/v1/renew", string(ask), nil)
	}
	if _, err := Renew(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if end := certificateOf(t, c).NotAfter; end.After(time.Now().Add(DefaultCertificateLife + time.Minute)) {
		t.Errorf("renewed until %v", end)
	}
}

// TestEarlierJoinHasNoRights: what was stolen with a state directory is of no use once the host has
// joined again, whether it was cut off meanwhile, and whichever version it had joined under.
func TestEarlierJoinHasNoRights(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(w *world, stolen Credentials){
		"joined again": func(*world, Credentials) {},
		"cut off": func(w *world, stolen Credentials) {
			if err := w.store.CutOff(w.t.Context(), stolen.HostID, "test", time.Now()); err != nil {
				w.t.Fatal(err)
			}
		},
		"joined under an earlier version": func(w *world, stolen Credentials) { w.joinEarlier(stolen) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stolen, err := w.join(w.token(""), "h1")
			if err != nil {
				t.Fatal(err)
			}
			between(w, stolen)
			again, err := w.join(w.token(`{"name":"h1"}`), "h1")
			if err != nil {
				t.Fatal(err)
			}
			if again.HostID != stolen.HostID {
				t.Errorf("joined again as %s, was %s", again.HostID, stolen.HostID)
			}
			if st, err := w.reach(stolen); !errors.Is(err, store.ErrDenied) {
				if err == nil {
					st.Close()
				}
				t.Errorf("the store with the certificate of the earlier join: %v, want ErrDenied", err)
			}
			w.mustReach(again)
			// A server that starts later brings nothing back.
			if err := NewUpkeep(Options{DB: w.db, Admission: w.store, CA: w.store.Authority().PEM}).pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st, err := w.reach(stolen); !errors.Is(err, store.ErrDenied) {
				if err == nil {
					st.Close()
				}
				t.Errorf("the store with the certificate of the earlier join, after an upkeep: %v, want ErrDenied", err)
			}
			w.mustReach(again)
		})
	}
}

// TestJoinRemovesSecrets: keys of the host that the machine was before do not outlive a join, and
// stay while a join is refused.
func TestJoinRemovesSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := JoinOptions{Name: "h1", StateDir: t.TempDir(), Secrets: []string{"stolen.key", "missing.key"}}
	for _, name := range []string{"stolen.key", "other"} {
		if err := os.WriteFile(filepath.Join(o.StateDir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string, want bool) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(o.StateDir, name)); want != (err == nil) {
			t.Errorf("%s: %v, want it there: %t", name, err, want)
		}
	}
	if _, err := Join(t.Context(), w.token(`{"name":"h2"}`), o); !Refused(err) {
		t.Fatalf("a token for another name: %v", err)
	}
	there("stolen.key", true)
	if _, err := Join(t.Context(), w.token(""), o); err != nil {
		t.Fatal(err)
	}
	there("stolen.key", false)
	there("other", true)
}

// TestEarlierVersionGoesOn: a host that joined under an earlier version, where all joins of a host
// shared its rights, keeps its access and renews its certificate, whose etcd user stays the same.
func TestEarlierVersionGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	w.joinEarlier(c)
	if err := NewUpkeep(Options{DB: w.db, Admission: w.store, CA: w.store.Authority().PEM}).pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mustReach(c)
	if _, err := Renew(t.Context(), filepath.Dir(c.CertFile)); err != nil {
		t.Fatal(err)
	}
	if got, want := certificateOf(t, c).Subject.CommonName, "host-"+c.HostID; got != want {
		t.Errorf("renewed for the etcd user %s, want %s, which agents of that version expect", got, want)
	}
	w.mustReach(c)
}

// TestRenewedByEarlierVersion: a host takes a certificate for the etcd user of earlier versions
// from a server of one, and one for its key from a server of this one.
func TestRenewedByEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	own := certificateOf(t, c).Subject.CommonName
	old, err := os.ReadFile(c.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	earlier := w.issueEarlier(c)
	if _, err := checkRenewed(c.HostID, old, earlier); err != nil {
		t.Error(err)
	}
	if _, err := checkRenewed("11111111-1111-4111-8111-111111111111", old, earlier); err == nil {
		t.Error("another host's certificate is taken")
	}
	if err := os.WriteFile(c.CertFile, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Renew(t.Context(), filepath.Dir(c.CertFile)); err != nil {
		t.Fatal(err)
	}
	if got := certificateOf(t, c).Subject.CommonName; got != own {
		t.Errorf("renewed for the etcd user %s, want %s", got, own)
	}
	w.mustReach(c)
}

// issueEarlier returns the certificate that a server of an earlier version signs for a host's key.
func (w *world) issueEarlier(c Credentials) []byte {
	w.t.Helper()
	key, err := os.ReadFile(c.KeyFile)
	if err != nil {
		w.t.Fatal(err)
	}
	csr, err := newRequest(key)
	if err != nil {
		w.t.Fatal(err)
	}
	certificate, err := w.store.Issue(c.HostID, "", csr, DefaultCertificateLife)
	if err != nil {
		w.t.Fatal(err)
	}
	return certificate
}

// joinEarlier makes things as a join under an earlier version leaves them.
func (w *world) joinEarlier(c Credentials) {
	w.t.Helper()
	if err := os.WriteFile(c.CertFile, w.issueEarlier(c), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.db.Update(w.t.Context(), func(tx *records.Tx) error {
		j, err := joined.Get(tx, c.HostID)
		if err != nil {
			return err
		}
		earlier := *j
		earlier.KeyRights = false
		return joined.Put(tx, &earlier)
	}); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(w.store.AllowHost(w.t.Context(), c.HostID, c.Name, ""), w.store.EndOtherKeys(w.t.Context(), c.HostID, "")); err != nil {
		w.t.Fatal(err)
	}
}

// mustReach has a host use its rights in the store.
func (w *world) mustReach(c Credentials) {
	w.t.Helper()
	st, err := w.reach(c)
	if err != nil {
		w.t.Fatalf("the store with good credentials: %v", err)
	}
	defer st.Close()
	if _, err := st.Commit(w.t.Context(), nil, []store.Op{{Key: schema.StatePrefix + c.HostID + "/x", Value: []byte("{}")}}); err != nil {
		w.t.Errorf("write with good credentials: %v", err)
	}
}

// TestJoinAfterALostAnswer: the server took the token, and its answer was lost. Asked again with
// the same token, the host is the one it became; the token is good for no other key.
func TestJoinAfterALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, err := jointoken.Parse(w.token(""), jointoken.ForHost)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.Transport = w.client.Transport
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusCreated {
			return errors.New("the answer is lost")
		}
		return nil
	}
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	losing := httptest.NewServer(proxy)
	defer losing.Close()
	real := token.Servers
	token.Servers = []string{losing.URL}
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Join(t.Context(), token.Encode(jointoken.ForHost), JoinOptions{Name: "h1", StateDir: dir}); err == nil || Refused(err) {
		t.Fatalf("the answer was lost, but: %v", err)
	}
	if got := fmt.Sprint(names(w.hosts())); got != "[h1]" {
		t.Fatalf("hosts: %s", got)
	}
	token.Servers = real
	if _, err := w.join(token.Encode(jointoken.ForHost), "h1"); !Refused(err) || !strings.Contains(err.Error(), "used, expired or unknown") {
		t.Errorf("another machine with the same token: %v", err)
	}
	joined, err := Join(t.Context(), token.Encode(jointoken.ForHost), JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	list := w.hosts()
	if len(list) != 1 || list[0].ID != joined.HostID {
		t.Errorf("joined as %s; hosts %+v", joined.HostID, list)
	}
	st, err := w.reach(joined)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := os.Stat(filepath.Join(dir, pendingKeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key of the finished join: %v", err)
	}
}

// TestJoinWaits: a host whose server is away or refuses its token tries again until it has joined,
// with the token that there is then, and says each time why. It can be told to give up instead.
func TestJoinWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, err := jointoken.Parse(w.token(""), jointoken.ForHost)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = w.client.Transport
	asked := make(chan struct{}, 10)
	first := true
	door := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		if first {
			first = false
			http.Error(out, "starting", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(out, r)
	}))
	defer door.Close()
	token.Servers = []string{door.URL}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	o := JoinOptions{Name: "h1", StateDir: filepath.Join(t.TempDir(), "state")}
	always := func(token string) func() (string, error) { return func() (string, error) { return token, nil } }
	if _, err := JoinRetrying(t.Context(), always(token.Encode(jointoken.ForHost)), o, nil, log); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || strings.Count(said.String(), "cannot join yet") != 1 {
		t.Errorf("asked %d times and said:\n%s", len(asked), said.String())
	}
	said.Reset()
	o.Name, o.StateDir = "h2", filepath.Join(t.TempDir(), "state")
	missing := errors.New("there is no such file")
	another := w.token("")
	replaced := func() (string, error) { // missing, then used, then good
		switch strings.Count(said.String(), "cannot join yet") {
		case 0:
			return "", missing
		case 1:
			return token.Encode(jointoken.ForHost), nil
		}
		return another, nil
	}
	if _, err := JoinRetrying(t.Context(), replaced, o, nil, log); err != nil {
		t.Fatal(err)
	}
	for _, why := range []string{missing.Error(), "used, expired or unknown"} {
		if !strings.Contains(said.String(), why) {
			t.Errorf("the log lacks %q:\n%s", why, said.String())
		}
	}
	o.StateDir = filepath.Join(t.TempDir(), "state")
	if _, err := JoinRetrying(t.Context(), always(token.Encode(jointoken.ForHost)), o, Refused, log); !Refused(err) {
		t.Errorf("a used token: %v", err)
	}
	token.Servers, token.Expires = []string{"http://127.0.0.1:1"}, time.Now().Add(-time.Second).Unix()
	if _, err := JoinRetrying(t.Context(), always(token.Encode(jointoken.ForHost)), o, Refused, log); !Refused(err) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired token and no server: %v", err)
	}
	if _, err := JoinRetrying(t.Context(), always("nonsense"), o, Refused, log); !Refused(err) {
		t.Errorf("no token: %v", err)
	}
}

package hosts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/callertest"
	"heddle/internal/api/jointoken"
	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// world is the API over a store that serves agents, both listening on loopback with TLS.
type world struct {
	t      *testing.T
	store  *backend.Etcd
	db     *records.DB
	url    string
	client *http.Client
	server *api.Server
	log    apitest.Log

	mu  sync.Mutex
	now time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir(), Agents: "127.0.0.1:0", Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := schema.KnownFormats().Check(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	rep := replica.New(st, replica.Options{Watch: schema.Root}, append(schema.All(), Tables()...)...)
	apitest.Run(t, rep)
	w := &world{t: t, store: st, db: records.NewDB(st, rep), now: time.Now()}

	open, guarded := http.NewServeMux(), http.NewServeMux()
	Register(open, guarded, Options{DB: w.db, Admission: st, CA: st.Authority().PEM, Signer: st.Authority, Endpoints: []string{"https://" + st.Endpoint()},
		Pin: func() string { return w.server.Fingerprint() }, Log: w.log.Logger(), Now: w.clock})
	open.Handle("/", api.RequireToken(callertest.WithRoles("admin", "member"), "", api.Routes(guarded, api.NoRoute)))
	certFile, keyFile, pool := chain(t)
	w.server, err = api.NewServer(api.Options{Name: "operator", Listen: "127.0.0.1:0", Handler: open, CertFile: certFile, KeyFile: keyFile,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, w.server)
	w.url = "https://" + w.server.Addr().String()
	w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// chain writes a certificate for 127.0.0.1 followed by that of its authority.
func chain(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	certFile, keyFile = filepath.Join(t.TempDir(), "api.crt"), filepath.Join(t.TempDir(), "api.key")
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	fail(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "api"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	fail(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	fail(err)
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})...)
	fail(os.WriteFile(certFile, both, 0o600))
	fail(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(caDER)
	fail(err)
	pool.AddCert(parsed)
	return certFile, keyFile, pool
}

// call makes a request that must be answered with the status, and decodes the answer.
func (w *world) call(token string, status int, method, path, body string, answer any) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(api.TokenHeader, token)
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode != status {
		w.t.Fatalf("%s %s %s answered %d %s\nwant %d", method, path, body, res.StatusCode, text, status)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			w.t.Fatalf("%s: %v", text, err)
		}
	}
}

// TestRefusedJoinsAreLogged: a used and a false token, and a name that another host has.
func TestRefusedJoinsAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("")
	if _, err := w.join(token, "h1"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.join(token, "h2"); !Refused(err) {
			t.Errorf("a used token: %v", err)
		}
	}
	if _, err := w.join(w.token(""), "h1"); !Refused(err) {
		t.Errorf("a name that another host has: %v", err)
	}
	want := []string{
		`level=WARN msg="join refused" host=h2 from=127.0.0.1 reason="bad token"`,
		`level=WARN msg="join refused" host=h1 from=127.0.0.1 reason="not admitted"`,
	}
	if got := w.log.Lines("refused"); !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (w *world) token(body string) string {
	w.t.Helper()
	var answer tokenView
	w.call("admin", 201, "POST", "/v1/join-tokens", body, &answer)
	return answer.Token
}

func (w *world) hosts() []operator.Host {
	w.t.Helper()
	var answer struct{ Hosts []operator.Host }
	w.call("admin", 200, "GET", "/v1/hosts", "", &answer)
	return answer.Hosts
}

func (w *world) join(token, name string) (Credentials, error) {
	return Join(w.t.Context(), token, JoinOptions{Name: name, StateDir: filepath.Join(w.t.TempDir(), "state")})
}

// reach opens the store as a host does.
func (w *world) reach(c Credentials) (*backend.Etcd, error) {
	return backend.Open(w.t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: c.Endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, SkipLimits: true}})
}

func TestJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Load(dir); !errors.Is(err, ErrNotJoined) {
		t.Errorf("before joining: %v", err)
	}
	token := w.token("")
	joined, err := Join(t.Context(), token, JoinOptions{Name: "h1", StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || loaded.HostID != joined.HostID || loaded.Name != "h1" || loaded.KeyFile != joined.KeyFile {
		t.Errorf("loaded %+v, %v; joined %+v", loaded, err, joined)
	}
	for _, name := range []string{keyFile, certFile, caFile, hostFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}

	// With what it got the host reaches the store: the virtual network and itself, no more.
	st, err := w.reach(joined)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: schema.HostStates.Key(joined.HostID),
		Value: []byte(`{"hostId":"` + joined.HostID + `","version":"v9","tunnelIp":"192.0.2.1","mtu":1500,"roles":["overlay"],"startedAt":"2026-01-01T00:00:00Z"}`)}}); err != nil {
		t.Errorf("report: %v", err)
	}
	for _, prefix := range []string{schema.IdentityPrefix, schema.JoinPrefix, schema.NeutronPrefix} {
		if _, _, err := st.List(t.Context(), prefix); !errors.Is(err, store.ErrDenied) {
			t.Errorf("a host reads %s: %v", prefix, err)
		}
	}

	list := w.hosts()
	if len(list) != 1 || !list[0].Alive || list[0].TunnelIP != "192.0.2.1" || list[0].Version != "v9" || list[0].JoinedAt == nil || list[0].ID != joined.HostID {
		t.Errorf("hosts: %+v", list)
	}

	// Removed, it is shut out at once.
	w.call("admin", 204, "DELETE", "/v1/hosts/"+joined.HostID, "", nil)
	if _, _, err := st.List(t.Context(), schema.TopologyPrefix); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a removed host reads the topology: %v", err)
	}
	if again, err := w.reach(joined); err == nil {
		_, _, err = again.List(t.Context(), schema.TopologyPrefix)
		again.Close()
		if !errors.Is(err, store.ErrDenied) {
			t.Errorf("a removed host comes back: %v", err)
		}
	}
	if list := w.hosts(); len(list) != 0 {
		t.Errorf("hosts left: %+v", list)
	}
	w.call("admin", 404, "DELETE", "/v1/hosts/"+joined.HostID, "", nil)
	kvs, _, err := w.store.List(t.Context(), "/heddle/")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if strings.Contains(kv.Key+string(kv.Value), joined.HostID) {
			t.Errorf("left behind: %s %s", kv.Key, kv.Value)
		}
	}
}

// TestPoolHostIsUp lists a host whose only agent is that of a XenAPI pool as what it is.
func TestPoolHostIsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	joined, err := Join(t.Context(), w.token(""), JoinOptions{Name: "h1", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	key := schema.XenPrefix + "state/OpaqueRef:" + joined.HostID + "/alive" // as the pool's agent has it
	report := `{"host":"OpaqueRef:` + joined.HostID + `","id":"` + joined.HostID + `","version":"v9","started":"2026-01-01T00:00:00Z","interfaces":[]}`
	if _, err := w.store.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(report)}}); err != nil {
		t.Fatal(err)
	}
	if list := w.hosts(); len(list) != 1 || !list[0].Alive || list[0].Version != "v9" || !slices.Equal(list[0].Roles, []string{"xen"}) || list[0].StartedAt == nil {
		t.Errorf("hosts: %+v", list)
	}
	if _, err := w.store.Commit(t.Context(), nil, []store.Op{{Key: key, Delete: true}}); err != nil {
		t.Fatal(err)
	}
	if list := w.hosts(); len(list) != 1 || list[0].Alive || len(list[0].Roles) > 0 {
		t.Errorf("hosts once the agent is gone: %+v", list)
	}
}

func TestTokensAreGoodOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused := func(what, token, name, why string) {
		t.Helper()
		if _, err := w.join(token, name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", what, err, why)
		}
	}
	// Many at once: one wins.
	token := w.token("")
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for i := range cap(results) {
		wg.Go(func() {
			_, err := w.join(token, fmt.Sprintf("racer%d", i))
			results <- err
		})
	}
	wg.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
		}
	}
	if won != 1 || len(w.hosts()) != 1 {
		t.Errorf("%d joined with one token; hosts %+v", won, w.hosts())
	}
	refused("used", token, "late", "used, expired or unknown")

	// For one name, for a time.
	named := w.token(`{"name":"h1"}`)
	refused("other name", named, "h2", "heddle host token h2")
	first, err := w.join(named, "")
	if err != nil || first.Name != "h1" {
		t.Fatalf("%+v, %v", first, err)
	}
	refused("name taken", w.token(""), "h1", "has joined already")
	again, err := w.join(w.token(`{"name":"h1"}`), "h1")
	if err != nil || again.HostID != first.HostID {
		t.Errorf("joined again: %+v, %v; before %+v", again, err, first)
	}
	brief := w.token(`{"expires_in":60}`)
	w.pass(time.Minute)
	refused("expired", brief, "h3", "used, expired or unknown")
	refused("bad name", w.token(""), "../h3", "Host name")

	// Taken back.
	var made tokenView
	w.call("admin", 201, "POST", "/v1/join-tokens", `{"name":"h4"}`, &made)
	var list struct {
		Tokens []tokenView `json:"join_tokens"`
	}
	w.call("admin", 200, "GET", "/v1/join-tokens", "", &list)
	found := false
	for _, v := range list.Tokens {
		found = found || v.ID == made.ID && v.Name == "h4" && v.Token == ""
	}
	if !found {
		t.Errorf("tokens: %+v", list)
	}
	w.call("admin", 204, "DELETE", "/v1/join-tokens/"+made.ID, "", nil)
	w.call("admin", 404, "DELETE", "/v1/join-tokens/"+made.ID, "", nil)
	refused("taken back", made.Token, "h4", "used, expired or unknown")
}

// TestServerIsKnown proves that a host gives its token to no other server than the one that made
// it.
func TestServerIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parsed, err := jointoken.Parse(w.token(""), jointoken.ForHost)
	if err != nil {
		t.Fatal(err)
	}
	wrong := parsed
	wrong.Pin = strings.Repeat("0", 64)
	if _, err := w.join(wrong.Encode(jointoken.ForHost), "h1"); err == nil || !strings.Contains(err.Error(), "fingerprint") {
		t.Errorf("another server: %v", err)
	}
	plain := parsed
	plain.Servers = []string{"http://192.0.2.1:1"}
	if _, err := w.join(plain.Encode(jointoken.ForHost), "h1"); err == nil || !strings.Contains(err.Error(), "plain HTTP") {
		t.Errorf("plain HTTP: %v", err)
	}
	// The first server being away is no matter.
	parsed.Servers = append([]string{"https://127.0.0.1:1"}, parsed.Servers...)
	if _, err := w.join(parsed.Encode(jointoken.ForHost), "h1"); err != nil {
		t.Error(err)
	}
}

func TestRemoveBoundHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	joined, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error {
		if err := schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: "n1"}}); err != nil {
			return err
		}
		return schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: "p1"}, NetworkID: "n1", MACAddress: packet.MAC{2}, HostID: "h1", BoundHostID: joined.HostID, InterfaceName: "tap1"})
	})
	if err != nil {
		t.Fatal(err)
	}
	var show struct{ Host operator.Host }
	w.call("admin", 200, "GET", "/v1/hosts/h1", "", &show)
	if show.Host.Ports != 1 || show.Host.Alive {
		t.Errorf("host %+v", show.Host)
	}
	w.call("admin", 409, "DELETE", "/v1/hosts/h1", "", nil)
	w.call("admin", 400, "DELETE", "/v1/hosts/h1?force=perhaps", "", nil)
	st, err := w.reach(joined)
	if err != nil {
		t.Fatalf("the refused removal took the host's rights: %v", err)
	}
	defer st.Close()
	if _, _, err := st.List(t.Context(), schema.TopologyPrefix); err != nil {
		t.Errorf("the refused removal took the host's rights: %v", err)
	}
	w.call("admin", 204, "DELETE", "/v1/hosts/h1?force=true", "", nil)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range [][2]string{{"POST", "/v1/join-tokens"}, {"GET", "/v1/join-tokens"}, {"GET", "/v1/hosts"}, {"DELETE", "/v1/hosts/x"}} {
		w.call("", 401, c[0], c[1], "", nil)
		w.call("member", 403, c[0], c[1], "", nil)
	}
	w.call("admin", 400, "POST", "/v1/join-tokens", `{"name":"no/slash"}`, nil)
	w.call("admin", 400, "POST", "/v1/join-tokens", `{"expires_in":-1}`, nil)
	w.call("admin", 400, "POST", "/v1/join-tokens", `nonsense`, nil)
	var answer struct{ Error struct{ Message string } }
	w.call("admin", 400, "POST", "/v1/join-tokens", `{"name":"h1","expires":60}`, &answer)
	if want := "Invalid input for field 'expires': unknown field; want expires_in, name."; answer.Error.Message != want {
		t.Errorf("an unknown member: %q, want %q", answer.Error.Message, want)
	}
	w.call("", 403, "POST", "/v1/join", `{"token":"guess","name":"h1"}`, nil)
	good, err := jointoken.Parse(w.token(""), jointoken.ForHost)
	if err != nil {
		t.Fatal(err)
	}
	ask, _ := json.Marshal(joinRequest{Token: good.Secret, Name: "h1", CSR: "not one"})
	w.call("", 400, "POST", "/v1/join", string(ask), nil)
	if _, err := w.join(good.Encode(jointoken.ForHost), "h1"); err != nil {
		t.Errorf("a bad request used the token up: %v", err)
	}
}

// TestTunnelAddress shows a host that is not alive by what it wrote before.
func TestTunnelAddress(t *testing.T) {
	t.Parallel()
	h := &topology.Host{ID: "h", Name: "n", Tunnels: []topology.HostTunnel{{ZoneID: "z", IP: netip.MustParseAddr("192.0.2.9")}}}
	snap := records.Over(replica.New(store.NewMemory(), replica.Options{}, append(schema.All(), Tables()...)...).Snapshot())
	if v := view(snap, h); v.TunnelIP != "192.0.2.9" || v.Alive || v.JoinedAt != nil {
		t.Errorf("view %+v", v)
	}
}

// FuzzRequests sends arbitrary bodies to the calls that take one: whatever comes is the client's
// mistake or done.
func FuzzRequests(f *testing.F) {
	w := &world{now: time.Now()}
	st, err := backend.Open(f.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: f.TempDir(), Agents: "127.0.0.1:0", Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		f.Fatal(err)
	}
	rep := replica.New(st, replica.Options{Watch: schema.Root}, append(schema.All(), Tables()...)...)
	f.Cleanup(func() { _ = st.Close() })
	apitest.Run(f, rep)
	open, guarded := http.NewServeMux(), http.NewServeMux()
	Register(open, guarded, Options{DB: records.NewDB(st, rep), Admission: st, CA: st.Authority().PEM, StorePort: 2379, Now: w.clock})
	open.Handle("/", api.RequireToken(callertest.WithRoles("admin", "member"), "", guarded))
	send := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set(api.TokenHeader, "admin")
		out := httptest.NewRecorder()
		open.ServeHTTP(out, r)
		return out
	}
	secret := func() string {
		var made tokenView
		if err := json.Unmarshal(send("/v1/join-tokens", "").Body.Bytes(), &made); err != nil {
			f.Fatal(err)
		}
		t, err := jointoken.Parse(made.Token, jointoken.ForHost)
		if err != nil {
			f.Fatal(err)
		}
		return t.Secret
	}
	good := secret()
	key, err := pendingKey(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	csr, err := newRequest(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(true, "h1", string(csr))
	f.Add(true, "h1", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
	f.Add(false, `{"name":"h","expires_in":1e9}`, "")
	f.Fuzz(func(t *testing.T, join bool, a, b string) {
		var out *httptest.ResponseRecorder
		if join {
			body, err := json.Marshal(joinRequest{Token: good, Name: a, CSR: b})
			if err != nil {
				t.Fatal(err)
			}
			out = send("/v1/join", string(body))
		} else {
			out = send("/v1/join-tokens", a)
		}
		if out.Code >= 500 {
			t.Errorf("%q %q answered %d %s", a, b, out.Code, out.Body)
		}
		if join && out.Code == 201 {
			good = secret() // used up
		}
	})
}

// A host that was cut off is named with the reason in the list, until it joins again or is removed.
func TestCutOffHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	joined, err := w.join(w.token(""), "h1")
	if err != nil {
		t.Fatal(err)
	}
	cut := func() {
		t.Helper()
		if err := w.store.CutOff(t.Context(), joined.HostID, "it has more than 16384 keys", time.Now()); err != nil {
			t.Fatal(err)
		}
		if hosts := w.hosts(); len(hosts) != 1 || hosts[0].Name != "h1" || hosts[0].CutOff != "it has more than 16384 keys" {
			t.Errorf("hosts after the cut: %+v", hosts)
		}
		if st, err := w.reach(joined); err == nil {
			st.Close()
			t.Error("its certificate is good still")
		}
	}
	cut()
	if joined, err = w.join(w.token(`{"name":"h1"}`), "h1"); err != nil {
		t.Fatal(err)
	}
	if hosts := w.hosts(); len(hosts) != 1 || hosts[0].CutOff != "" {
		t.Errorf("hosts after it joined again: %+v", hosts)
	}
	cut()
	w.call("admin", 204, "DELETE", "/v1/hosts/h1", "", nil)
	if kvs, _, err := w.store.List(t.Context(), backend.CutOffPrefix); err != nil || len(kvs) > 0 {
		t.Errorf("a removed host is still named: %v, %v", kvs, err)
	}
}

// Whoever follows the store while a host is removed or cut off never finds it reachable without the
// keys of its tunnels, as hosts of earlier versions are, whose frames are accepted without a
// secret.
func TestGoneHostIsNeverPlain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, host string) error{
		"removed": func(w *world, host string) error { w.call("admin", 204, "DELETE", "/v1/hosts/h1", "", nil); return nil },
		"cut off": func(w *world, host string) error { return w.store.CutOff(w.t.Context(), host, "test", time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			joined, err := w.join(w.token(""), "h1")
			if err != nil {
				t.Fatal(err)
			}
			// The host was upgraded: its record still has the address that the earlier version
			// wrote.
			id, tunnels := joined.HostID, []topology.HostTunnel{{ZoneID: "z", IP: netip.MustParseAddr("192.0.2.11")}}
			if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error {
				return errors.Join(schema.Hosts.Put(tx, &topology.Host{ID: id, Name: "h1", Tunnels: tunnels}),
					schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: id, Tunnels: tunnels}), schema.TunnelKeys.Put(tx, &topology.TunnelKeys{HostID: id}))
			}); err != nil {
				t.Fatal(err)
			}
			now := map[string]*topology.Host{} // by key
			kvs, rev, err := w.store.List(t.Context(), "/heddle/")
			if err != nil {
				t.Fatal(err)
			}
			keys := false
			apply := func(kv store.KV, deleted bool) {
				switch kv.Key {
				case schema.TunnelKeys.Key(id):
					keys = !deleted
				case schema.Hosts.Key(id), schema.Underlays.Key(id):
					delete(now, kv.Key)
					if deleted {
						return
					}
					h := new(topology.Host)
					if err := json.Unmarshal(kv.Value, h); err != nil {
						t.Error(err)
					}
					now[kv.Key] = h
				}
			}
			judge := func(revision int64) {
				reached := now[schema.Hosts.Key(id)]
				if u := now[schema.Underlays.Key(id)]; reached != nil && u != nil {
					reached = u
				}
				if reached != nil && len(reached.Tunnels) > 0 && !keys {
					t.Errorf("at revision %d the host is reached at %v and has no keys", revision, reached.Tunnels)
				}
			}
			for _, kv := range kvs {
				apply(kv, false)
			}
			if judge(rev); !keys || len(now) != 2 {
				t.Fatalf("before it: keys %v, records %v", keys, now)
			}
			changes, failed := w.store.Watch(t.Context(), rev, "/heddle/")
			if err := end(w, id); err != nil {
				t.Fatal(err)
			}
			last, err := w.store.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for c := range changes {
				at := int64(0)
				for _, e := range c.Events {
					if at != 0 && e.ModRevision != at {
						judge(at)
					}
					at = e.ModRevision
					apply(e.KV, e.Deleted)
				}
				judge(c.Revision)
				if c.Revision >= last {
					if u := now[schema.Underlays.Key(id)]; keys || u != nil && len(u.Tunnels) > 0 {
						t.Errorf("at the end: keys %v, reached %+v", keys, u)
					}
					return
				}
			}
			t.Fatal("the watch ended: ", failed())
		})
	}
}

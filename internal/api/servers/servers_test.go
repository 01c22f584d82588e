package servers

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/callertest"
	"heddle/internal/api/jointoken"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
)

// world is the API over a cluster of one member.
type world struct {
	t      testing.TB
	store  *backend.Etcd
	db     *records.DB
	routes http.Handler
	server *api.Server
	log    apitest.Log
	now    time.Time
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	data := t.TempDir()
	st, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: data, Agents: freeAddress(t),
		Peer: &backend.Peer{Name: "s1", Listen: freeAddress(t)}, Tick: 10 * time.Millisecond, NoFsync: true}})
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
	Register(open, guarded, Options{DB: w.db, Cluster: st, Servers: func() []string { return []string{"https://" + w.server.Addr().String()} },
		Pin: func() string { return w.server.Fingerprint() }, Files: func() map[string]string { return map[string]string{"openrc": "export"} }, Log: w.log.Logger(), Now: func() time.Time { return w.now }})
	open.Handle("/", api.RequireToken(callertest.WithRoles("admin", "member"), "", api.Routes(guarded, api.NoRoute)))
	w.routes = open
	cert, key := backend.ServerCertificate(data)
	if w.server, err = api.NewServer(api.Options{Name: "operator", Listen: "127.0.0.1:0", Handler: open, CertFile: cert, KeyFile: key, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, w.server)
	return w
}

// call makes a request as a user and returns status and body.
func (w *world) call(who, method, path, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set(api.TokenHeader, who)
	out := httptest.NewRecorder()
	w.routes.ServeHTTP(out, r)
	return out.Code, out.Body.String()
}

func (w *world) token(body string) string {
	w.t.Helper()
	var answer struct{ Token string }
	if status, text := w.call("admin", "POST", "/v1/cluster/tokens", body); status != 201 || json.Unmarshal([]byte(text), &answer) != nil {
		w.t.Fatalf("token: %d %s", status, text)
	}
	return answer.Token
}

// TestJoin: a server gets the authority and files with a token that is good once, also when its
// first answer was lost. What is refused uses no token up and adds no member.
func TestJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s2 := JoinOptions{Name: "s2", PeerURL: "https://" + freeAddress(t), DataDir: t.TempDir()}
	token := w.token(`{"name":"s2"}`)
	refused := func(token, words string, o JoinOptions) {
		t.Helper()
		o.DataDir = t.TempDir()
		if _, err := Join(t.Context(), token, o); !jointoken.Refused(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want a refusal that says %q", err, words)
		}
	}
	other := s2
	other.Name = "s3"
	refused(token, "The token is for server s2, not s3", other)
	taken := s2
	taken.Name = "s1"
	refused(w.token(""), "The cluster has a server named s1", taken)
	members, err := w.store.Members(t.Context())
	if err != nil || len(members) != 1 {
		t.Fatalf("members after refusals: %+v, %v", members, err)
	}
	place := s2
	place.PeerURL = members[0].PeerURL
	refused(token, "The cluster has server s1 at "+place.PeerURL, place)
	for _, peer := range []string{"http://192.0.2.2:2380", "https://cloud:2380", "https://0.0.0.0:2380", "https://192.0.2.2", "https://192.0.2.2:2380/x"} {
		odd := s2
		odd.PeerURL = peer
		refused(token, "want https://ADDRESS:PORT", odd)
	}
	for _, peer := range []string{"https://224.0.0.1:2380", "https://[ff02::1]:2380", "https://255.255.255.255:2380"} {
		odd := s2
		odd.PeerURL = peer
		refused(token, "want the address of one machine", odd)
	}

	for range 2 {
		list, err := Join(t.Context(), token, s2)
		if err != nil || len(list) != 2 || list[0] != "s1="+members[0].PeerURL || list[1] != "s2="+s2.PeerURL {
			t.Fatalf("joined: %v, %v", list, err)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(s2.DataDir, "openrc")); err != nil || string(raw) != "export" {
		t.Errorf("openrc: %q, %v", raw, err)
	}
	if _, err := backend.LoadAuthority(filepath.Join(s2.DataDir, "tls", "ca.crt"), filepath.Join(s2.DataDir, "tls", "ca.key")); err != nil {
		t.Error(err)
	}
	refused(token, "used, expired or unknown", s2) // by another machine
	if !Joining(s2.DataDir) || Joined(s2.DataDir) != nil || Joining(s2.DataDir) || Joined(s2.DataDir) != nil {
		t.Error("joining is not over")
	}
	if members, err = w.store.Members(t.Context()); err != nil || len(members) != 2 {
		t.Errorf("members: %+v, %v", members, err)
	}

	fourth := JoinOptions{Name: "s4", PeerURL: "https://" + freeAddress(t), DataDir: t.TempDir()}
	if _, err := Join(t.Context(), w.token(""), fourth); err == nil || jointoken.Refused(err) || !strings.Contains(err.Error(), "`heddle cluster remove "+s2.PeerURL+"`") {
		t.Errorf("a second one at once: %v", err)
	}
	if status, text := w.call("admin", "GET", "/v1/cluster/members", ""); status != 200 || !strings.Contains(text, `"role":"added"`) || !strings.Contains(text, `"role":"leader"`) {
		t.Errorf("list: %d %s", status, text)
	}
	if status, text := w.call("admin", "DELETE", "/v1/cluster/members/s9", ""); status != 404 || !strings.Contains(text, "`heddle cluster remove "+s2.PeerURL+"`") {
		t.Errorf("remove an unknown server while one has never run: %d %s", status, text)
	}
	if status, text := w.call("admin", "DELETE", "/v1/cluster/members/s2", ""); status != 200 || !strings.Contains(text, s2.PeerURL) {
		t.Errorf("remove a server that has never run, by the name that its token was used with: %d %s", status, text)
	}
	if _, err := Join(t.Context(), w.token(""), fourth); err != nil {
		t.Fatal(err)
	}
	if status, text := w.call("admin", "DELETE", "/v1/cluster/members/"+strings.ReplaceAll(fourth.PeerURL, "/", "%2F"), ""); status != 200 {
		t.Errorf("remove a server by its URL: %d %s", status, text)
	}
	if status, text := w.call("admin", "DELETE", "/v1/cluster/members/s1", ""); status != 409 || !strings.Contains(text, "is the only member of the cluster") {
		t.Errorf("remove the last one: %d %s", status, text)
	}
}

// TestFind: of two members with one name, each is found by its URL alone.
func TestFind(t *testing.T) {
	t.Parallel()
	s := &service{Options: Options{DB: newWorld(t).db}}
	members := []backend.Member{{ID: 1, Name: "s1", PeerURL: "https://192.0.2.1:2380"}, {ID: 2, Name: "s3", PeerURL: "https://192.0.2.2:2380"},
		{ID: 3, Name: "s3", PeerURL: "https://192.0.2.3:2380"}, {ID: 4, PeerURL: "https://192.0.2.4:2380"}}
	if _, err := s.find(t.Context(), members, "s3"); err == nil || !strings.Contains(err.Error(), "https://192.0.2.2:2380, https://192.0.2.3:2380") {
		t.Errorf("two members named s3: %v", err)
	}
	if _, err := s.find(t.Context(), members, ""); err == nil {
		t.Error("no name finds the member that has none")
	}
	for nameOrURL, want := range map[string]uint64{"s1": 1, members[2].PeerURL: 3, members[3].PeerURL: 4} {
		if m, err := s.find(t.Context(), members, nameOrURL); err != nil || m.ID != want {
			t.Errorf("%s: %+v, %v", nameOrURL, m, err)
		}
	}
}

// TestOnLoopback: loopback is told from addresses that other machines reach.
func TestOnLoopback(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]bool{"https://127.0.0.1:2380": true, "https://[::1]:2380": true, "https://192.0.2.1:2380": false, "https://[2001:db8::1]:2380": false} {
		if onLoopback(peer) != want {
			t.Errorf("%s: %t", peer, !want)
		}
	}
}

// TestClocksApart: a server whose clock is more than a minute off is refused, with its token kept.
// One without a token is not told this server's time.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("")
	o := JoinOptions{Name: "s2", PeerURL: "https://" + freeAddress(t), DataDir: t.TempDir()}
	real := w.now
	for off, words := range map[time.Duration]string{10 * time.Minute: "behind this server's", -10 * time.Minute: "ahead of this server's"} {
		w.now = real.Add(off)
		if _, err := Join(t.Context(), token, o); !jointoken.Refused(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	const unknown = `{"token":"x","name":"s2","peer_url":"https://192.0.2.2:2380","nonce":"0123456789abcdef","now":"2001-01-01T00:00:00Z"}`
	if status, text := w.call("", "POST", "/v1/cluster/join", unknown); status != 403 || !strings.Contains(text, "The token is used, expired or unknown") {
		t.Errorf("an unknown token: %d %s", status, text)
	}
	if status, text := w.call("", "POST", "/v1/cluster/join", strings.Replace(unknown, "0123456789abcdef", "", 1)); status != 400 || !strings.Contains(text, "nonce: want") {
		t.Errorf("no nonce: %d %s", status, text)
	}
	w.now = real
	if _, err := Join(t.Context(), token, o); err != nil {
		t.Error(err)
	}
}

// TestRefusedJoinsAreLogged: a false token and an unusable address.
func TestRefusedJoinsAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := jointoken.Token{Servers: []string{"https://" + w.server.Addr().String()}, Pin: w.server.Fingerprint(), Secret: "false"}.Encode(jointoken.ForServer)
	for _, peer := range []string{"https://192.0.2.2:2380", "https://192.0.2.2:2380", "https://0.0.0.0:2380"} {
		if _, err := Join(t.Context(), token, JoinOptions{Name: "s2", PeerURL: peer, DataDir: t.TempDir()}); !jointoken.Refused(err) {
			t.Errorf("%s: %v", peer, err)
		}
	}
	want := []string{
		`level=WARN msg="join refused" server=s2 from=127.0.0.1 reason="bad token"`,
		`level=WARN msg="join refused" server=s2 from=127.0.0.1 reason="not admitted"`,
	}
	if got := w.log.Lines("refused"); !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAccess: tokens and members are for administrators; a server without --cluster has neither.
func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	calls := [][2]string{{"POST", "/v1/cluster/tokens"}, {"GET", "/v1/cluster/members"}, {"DELETE", "/v1/cluster/members/s2"}}
	for who, want := range map[string]int{"": 401, "member": 403} {
		for _, c := range calls {
			if status, text := w.call(who, c[0], c[1], ""); status != want {
				t.Errorf("%s %s as %q: %d %s, want %d", c[0], c[1], who, status, text, want)
			}
		}
	}
	for body, want := range map[string]string{`{"nam":"s2"}`: "unknown field", `{"name":"a/b"}`: "Server name"} {
		if status, text := w.call("admin", "POST", "/v1/cluster/tokens", body); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := w.call("admin", "DELETE", "/v1/cluster/members/s2", ""); status != 404 || !strings.Contains(text, "no server named s2") {
		t.Errorf("%d %s", status, text)
	}
	open, guarded := http.NewServeMux(), http.NewServeMux()
	Register(open, guarded, Options{DB: w.db})
	open.Handle("/", api.RequireToken(callertest.WithRoles("admin", "member"), "", guarded))
	w.routes = open
	for _, c := range append(calls, [2]string{"POST", "/v1/cluster/join"}) {
		if status, text := w.call("admin", c[0], c[1], ""); status != 409 || !strings.Contains(text, "This server forms no cluster") {
			t.Errorf("%s %s without a cluster: %d %s", c[0], c[1], status, text)
		}
	}
}

// TestUnknownMembers: what a later version adds to records is kept.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	storetest.UnknownMembers{Tables: Tables()}.Test(t)
}

// FuzzSave saves what a server may answer: nothing is written outside the data directory.
func FuzzSave(f *testing.F) {
	f.Add(`{"certificate":"c","key":"k","members":["s1=u"],"files":{"openrc":"x"}}`)
	f.Add(`{"files":{"../x":"y"}}`)
	f.Add(`{"files":{"":"y",".":"z","/etc/passwd":"a"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var answer joinAnswer
		if json.Unmarshal([]byte(text), &answer) != nil {
			return
		}
		outer := t.TempDir()
		inner := filepath.Join(outer, "data")
		if err := os.Mkdir(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = JoinOptions{DataDir: inner}.save(answer) // whether it can be used or not
		if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
			t.Errorf("%q wrote beside the data directory: %v, %v", text, entries, err)
		}
	})
}

// TestJoinRetrying: a token that is refused can be replaced.
func TestJoinRetrying(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	texts := []string{"nonsense", w.token("")}
	missing := errors.New("there is no such file")
	var said strings.Builder
	next := func() (string, error) {
		switch n := strings.Count(said.String(), "cannot join the cluster yet"); n {
		case 0:
			return "", missing
		default:
			return texts[n-1], nil
		}
	}
	o := JoinOptions{Name: "s2", PeerURL: "https://" + freeAddress(t), DataDir: t.TempDir()}
	if _, err := JoinRetrying(t.Context(), next, o, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{missing.Error(), "this is not a join token"} {
		if !strings.Contains(said.String(), words) {
			t.Errorf("the log lacks %q:\n%s", words, said.String())
		}
	}
}

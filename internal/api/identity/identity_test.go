package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
)

const adminPassword = "adminpass"

// world is an identity service listening on loopback, with its administrator logged in.
type world struct {
	t     *testing.T
	s     *Service
	url   string // ends in /v3
	dir   string // clouds.yaml, openrc
	token string // of the administrator
}

// serveOver serves one server's identity over a store that others may use too.
func serveOver(t *testing.T, st store.Store, change func(*Options)) *world {
	t.Helper()
	o := Options{Store: st, Services: []Endpoint{{Type: "network", Name: "neutron", Port: 9696}}}
	if change != nil {
		change(&o)
	}
	s := New(o)
	s.passwords.hashes = credentials.NewPasswords(cheap())
	apitest.Run(t, s)
	server, err := api.NewServer(api.Options{Name: "identity", Listen: "127.0.0.1:0", Handler: s.Handler(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, server)
	w := &world{t: t, s: s, url: "http://" + server.Addr().String() + "/v3", dir: t.TempDir()}
	if err := s.Bootstrap(t.Context(), BootstrapOptions{Password: adminPassword, Dir: w.dir, URL: w.url}); err != nil {
		t.Fatal(err)
	}
	w.token = w.login("admin", adminPassword, "admin")
	return w
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return serveOver(t, memory(t), nil)
}

func memory(t *testing.T) store.Store {
	t.Helper()
	m := store.NewMemory()
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// answered is the answer to a call.
type answered struct {
	status int
	header http.Header
	body   string
}

// at digs a value out of a JSON answer: names separated by dots, numbers for elements of lists.
func (a answered) at(path string) any {
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		return nil
	}
	for _, part := range strings.Split(path, ".") {
		switch now := v.(type) {
		case map[string]any:
			v = now[part]
		case []any:
			var i int
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(now) {
				return nil
			}
			v = now[i]
		default:
			return nil
		}
	}
	return v
}

func (a answered) text(path string) string { s, _ := a.at(path).(string); return s }

func (a answered) count(path string) int { l, _ := a.at(path).([]any); return len(l) }

// call sends a request; headers come in pairs of name and value.
func (w *world) call(token, method, path, body string, headers ...string) answered {
	w.t.Helper()
	url := w.url + path
	if strings.HasPrefix(path, "!") {
		url = strings.TrimSuffix(w.url, "/v3") + path[1:]
	}
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("X-Auth-Token", token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(b)}
}

// admin makes a call as administrator that must be answered with the status.
func (w *world) admin(status int, method, path, body string, headers ...string) answered {
	w.t.Helper()
	a := w.call(w.token, method, path, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s %s answered %d %s\nwant %d", method, path, body, a.status, a.body, status)
	}
	return a
}

func passwordAuth(user, password, scope string) string {
	if scope != "" {
		scope = fmt.Sprintf(`,"scope":%s`, scope)
	}
	return fmt.Sprintf(`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":%q,"domain":{"id":"default"},"password":%q}}}%s}}`, user, password, scope)
}

func projectScope(name string) string {
	return fmt.Sprintf(`{"project":{"name":%q,"domain":{"id":"default"}}}`, name)
}

func (w *world) login(user, password, project string) string {
	w.t.Helper()
	a := w.call("", "POST", "/auth/tokens", passwordAuth(user, password, projectScope(project)))
	if a.status != 201 {
		w.t.Fatalf("login of %s on %s answered %d %s", user, project, a.status, a.body)
	}
	return a.header.Get("X-Subject-Token")
}

// user makes a user with a role on a project of his own name, and returns the ids of both.
func (w *world) user(name, password string, roles ...string) (userID, projectID string) {
	w.t.Helper()
	projectID = w.admin(201, "POST", "/projects", fmt.Sprintf(`{"project":{"name":%q}}`, name)).text("project.id")
	userID = w.admin(201, "POST", "/users", fmt.Sprintf(`{"user":{"name":%q,"password":%q}}`, name, password)).text("user.id")
	for _, r := range roles {
		w.admin(204, "PUT", "/projects/"+projectID+"/users/"+userID+"/roles/"+w.role(r), "")
	}
	return userID, projectID
}

func (w *world) role(name string) string {
	w.t.Helper()
	return w.admin(200, "GET", "/roles?name="+name, "").text("roles.0.id")
}

// works reports whether a token is still valid.
func (w *world) works(token string) bool {
	w.t.Helper()
	switch a := w.call(token, "GET", "/auth/projects", ""); a.status {
	case 200:
		return true
	case 401:
		return false
	default:
		w.t.Fatalf("checking a token answered %d %s", a.status, a.body)
		return false
	}
}

// TestAnswers holds the shapes of neutron-api §11.
func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	base := strings.TrimSuffix(w.url, "/v3")
	version := `{"id":"v3.14","links":[{"href":"` + w.url + `/","rel":"self"}],"media-types":[{"base":"application/json",` +
		`"type":"application/vnd.openstack.identity-v3+json"}],"status":"stable","updated":"2020-04-07T00:00:00Z"}`
	const unauthorized = `{"error":{"code":401,"title":"Unauthorized","message":"The request you have made requires authentication."}}`
	for _, c := range []struct {
		name, token, request, body string
		status                     int
		want                       string
	}{
		{"all versions", "", "GET !/", "", 300, `{"versions":{"values":[` + version + `]}}`},
		{"version", "", "GET ", "", 200, `{"version":` + version + `}`},
		{"version with slash", "", "GET /", "", 200, `{"version":` + version + `}`},
		{"no token", "", "GET /projects", "", 401, unauthorized},
		{"bad token", "nonsense", "GET /projects", "", 401, unauthorized},
		{"wrong password", "", "POST /auth/tokens", passwordAuth("admin", "wrong", ""), 401, unauthorized},
		{"no such user", "", "POST /auth/tokens", passwordAuth("nobody", adminPassword, ""), 401, unauthorized},
		{"no such project", "", "POST /auth/tokens", passwordAuth("admin", adminPassword, projectScope("nowhere")), 401, unauthorized},
		{"system scope", "", "POST /auth/tokens", passwordAuth("admin", adminPassword, `{"system":{"all":true}}`), 401, unauthorized},
		{"no route", w.token, "GET /nonsense", "", 404, `{"error":{"code":404,"title":"Not Found","message":"The resource could not be found."}}`},
		{"wrong verb", w.token, "PUT /projects", "", 405, `{"error":{"code":405,"title":"Method Not Allowed","message":"The method is not allowed for the requested URL."}}`},
		{"no such project by name", w.token, "GET /projects/NAME", "", 404, `{"error":{"code":404,"title":"Not Found","message":"Could not find project: NAME."}}`},
		{"twice the name", w.token, "POST /projects", `{"project":{"name":"admin"}}`, 409,
			`{"error":{"code":409,"title":"Conflict","message":"Conflict occurred attempting to store project - Duplicate entry found with name admin."}}`},
		{"list", w.token, "GET /projects?name=none", "", 200,
			`{"links":{"next":null,"previous":null,"self":"` + w.url + `/projects?name=none"},"projects":[]}`},
		{"default domain", w.token, "GET /domains?name=Default", "", 200,
			`{"domains":[{"description":"The default domain","enabled":true,"id":"default","links":{"self":"` + base + `/v3/domains/default"},` +
				`"name":"Default","options":{},"tags":[]}],"links":{"next":null,"previous":null,"self":"` + w.url + `/domains?name=Default"}}`},
		{"no name", w.token, "POST /users", `{"user":{"password":"x"}}`, 400, `{"error":{"code":400,"title":"Bad Request","message":"Expecting to find name in user. ` +
			`The server could not comply with the request since it is either malformed or otherwise incorrect. The client is assumed to be in error."}}`},
		{"enabled is a flag", w.token, "POST /users", `{"user":{"name":"x","enabled":"yes"}}`, 400,
			`{"error":{"code":400,"title":"Bad Request","message":"Invalid input for field 'enabled': true or false belongs there."}}`},
		{"role admin stays", w.token, "DELETE /roles/" + w.role("admin"), "", 403,
			`{"error":{"code":403,"title":"Forbidden","message":"Unable to change immutable role resource: ` + "`" + w.role("admin") + "`" + `: policies know the role admin by its name."}}`},
		{"default domain stays", w.token, "PATCH /domains/default", `{"domain":{"enabled":false}}`, 403,
			`{"error":{"code":403,"title":"Forbidden","message":"The default domain cannot be disabled: nobody could log in to enable it again."}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			method, path, _ := strings.Cut(c.request, " ")
			if a := w.call(c.token, method, path, c.body); a.status != c.status || a.body != c.want {
				t.Errorf("%s answered %d %s\nwant %d %s", c.request, a.status, a.body, c.status, c.want)
			}
		})
	}
}

// TestTempestDynamicCredentials does what tempest does to make and remove an account (neutron-api
// §11).
func TestTempestDynamicCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admin(200, "GET", "", "")
	domain := w.admin(200, "GET", "/domains?name=Default", "").text("domains.0.id")
	roles := w.admin(200, "GET", "/roles", "")
	project := w.admin(201, "POST", "/projects", `{"project":{"name":"tempest-1","description":"tempest-1-desc","domain_id":"`+domain+`"}}`)
	user := w.admin(201, "POST", "/users", `{"user":{"name":"tempest-1-project-member","password":"Secret+1","project_id":"`+project.text("project.id")+
		`","email":"tempest-1@example.com","domain_id":"`+domain+`"}}`)
	if user.text("user.email") != "tempest-1@example.com" || strings.Contains(user.body, "Secret") {
		t.Errorf("user is %s", user.body)
	}
	var member string
	for i := range roles.count("roles") {
		if roles.text(fmt.Sprintf("roles.%d.name", i)) == "member" {
			member = roles.text(fmt.Sprintf("roles.%d.id", i))
		}
	}
	grant := "/projects/" + project.text("project.id") + "/users/" + user.text("user.id") + "/roles"
	w.admin(204, "PUT", grant+"/"+member, "")
	w.admin(204, "HEAD", grant+"/"+member, "")
	w.admin(204, "GET", grant+"/"+member, "")
	if a := w.admin(200, "GET", grant, ""); a.count("roles") != 1 || a.text("roles.0.name") != "member" {
		t.Errorf("roles on the project: %s", a.body)
	}
	token := w.login("tempest-1-project-member", "Secret+1", "tempest-1")
	if a := w.call(token, "GET", "/users", ""); a.status != 403 || a.text("error.message") != "You are not authorized to perform the requested action: identity:list_users." {
		t.Errorf("a member lists users: %d %s", a.status, a.body)
	}
	w.admin(204, "DELETE", "/users/"+user.text("user.id"), "")
	w.admin(204, "DELETE", "/projects/"+project.text("project.id"), "")
	if w.works(token) {
		t.Error("the token of a user that is gone works")
	}
	w.admin(404, "DELETE", "/users/"+user.text("user.id"), "")
}

// TestNothingToSteal proves that who reads the store finds neither tokens nor passwords.
func TestNothingToSteal(t *testing.T) {
	t.Parallel()
	st := memory(t)
	w := serveOver(t, st, nil)
	w.user("ann", "hunter2-hunter2", "member")
	token := w.login("ann", "hunter2-hunter2", "ann")
	kvs, _, err := st.List(t.Context(), "/")
	if err != nil || len(kvs) == 0 {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		for _, secret := range []string{token, w.token, "hunter2", adminPassword} {
			if strings.Contains(kv.Key, secret) || bytes.Contains(kv.Value, []byte(secret)) {
				t.Errorf("%s holds a secret: %s", kv.Key, kv.Value)
			}
		}
		if !strings.HasPrefix(kv.Key, "/heddle/identity/") && !strings.HasPrefix(kv.Key, "/heddle/unique/") && !strings.HasPrefix(kv.Key, "/heddle/idx/") {
			t.Errorf("%s lies outside of what is identity's", kv.Key)
		}
		if strings.HasPrefix(kv.Key, w.s.directory.tokens.Key("")) && kv.Lease == 0 {
			t.Errorf("%s will lie there for ever: it has no lease", kv.Key)
		}
	}
}

func TestFailedLoginsAreSlowedDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("victim", "right", "member")
	n := 0
	for ; n <= 100; n++ {
		a := w.call("", "POST", "/auth/tokens", passwordAuth("victim", "wrong", ""))
		if a.status == 429 {
			if a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			break
		}
		if a.status != 401 {
			t.Fatalf("wrong password: %d %s", a.status, a.body)
		}
	}
	if n < 1 || n > 30 {
		t.Errorf("%d wrong passwords were checked, want at most 30", n)
	}
	w.login("admin", adminPassword, "admin") // others are not held up
}

// TestRefusedLoginsAreLogged: the log says whose login was refused from where and why; clients are
// told no more than before.
func TestRefusedLoginsAreLogged(t *testing.T) {
	t.Parallel()
	var log apitest.Log
	w := serveOver(t, memory(t), func(o *Options) { o.Log = log.Logger() })
	id, _ := w.user("ann", "right", "member")
	refuse := func(status int, body string) string {
		t.Helper()
		a := w.call("", "POST", "/auth/tokens", body)
		if a.status != status {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
		return a.body
	}
	answers := []string{
		refuse(401, passwordAuth("ann", "wrong", "")),
		refuse(401, passwordAuth("nobody\nhere", "x", "")),
		refuse(401, passwordAuth("ann", "right", projectScope("admin"))),
		refuse(401, `{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"id":"c1","secret":"x"}}}}`),
		refuse(401, `{"auth":{"identity":{"methods":["token"],"token":{"id":"x"}}}}`),
		refuse(401, strings.Replace(passwordAuth("ann", "wrong", ""), `"name":"ann","domain":{"id":"default"}`, fmt.Sprintf(`"id":%q`, id), 1)),
	}
	if slices.Sort(answers); len(slices.Compact(answers)) != 1 {
		t.Errorf("answers tell refusals apart: %q", answers)
	}
	for w.call("", "POST", "/auth/tokens", passwordAuth("ann", "wrong", "")).status == 401 {
	}
	want := []string{
		`level=WARN msg="log-in refused" account=ann from=127.0.0.1 reason="wrong password"`,
		`level=WARN msg="log-in refused" account="nobody\nhere" from=127.0.0.1 reason="unknown account"`,
		`level=WARN msg="log-in refused" account=ann from=127.0.0.1 reason="no access"`,
		`level=WARN msg="log-in refused" account="application credential c1" from=127.0.0.1 reason="unknown account"`,
		`level=WARN msg="log-in refused" account=` + id + ` from=127.0.0.1 reason="wrong password"`,
		`level=WARN msg="log-in refused" account=ann from=127.0.0.1 reason="too many attempts"`,
	}
	if got := log.Lines("refused"); !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, v := range w.s.Metrics() {
		if v.Value == 0 {
			t.Errorf("%s is not counted", v.Label("reason"))
		}
	}
}

// TestFloodOfLogins: while one address tries a password for each of hundreds of made-up names, the
// logins of another go on.
func TestFloodOfLogins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.passwords.hashes = credentials.NewPasswords(credentials.DefaultCost())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
	flood := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var busy sync.Once
	full := make(chan struct{}) // closed once the server is too busy for the flood
	for i := range 300 {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "POST", w.url+"/auth/tokens", strings.NewReader(passwordAuth(fmt.Sprint("name", i), "x", "")))
			if err != nil {
				t.Error(err)
				return
			}
			res, err := flood.Do(req)
			if err != nil {
				return // the test has ended
			}
			_ = res.Body.Close()
			if res.StatusCode == http.StatusServiceUnavailable {
				busy.Do(func() { close(full) })
			}
		})
	}
	<-full
	for range 9 {
		if a := w.call("", "POST", "/auth/tokens", passwordAuth("admin", adminPassword, "")); a.status != http.StatusCreated {
			t.Errorf("a right login from another address is answered %d %s", a.status, a.body)
		}
	}
}

// TestManyLoginsAtOnce is a test suite or a farm behind one address starting up: none of them is
// guessing.
func TestManyLoginsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 80 {
		wg.Go(func() {
			if a := w.call("", "POST", "/auth/tokens", passwordAuth("admin", adminPassword, projectScope("admin"))); a.status != 201 {
				t.Errorf("login answered %d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
}

// TestFirstStartTogether starts two servers at once over an empty store: one makes the
// administrator and has his password, the other has none.
func TestFirstStartTogether(t *testing.T) {
	t.Parallel()
	st := memory(t)
	var (
		wg       sync.WaitGroup
		services [2]*Service
		dirs     [2]string
	)
	for i := range services {
		services[i], dirs[i] = New(Options{Store: st}), t.TempDir()
		apitest.Run(t, services[i])
	}
	for i, s := range services {
		wg.Go(func() {
			if err := s.Bootstrap(t.Context(), BootstrapOptions{Dir: dirs[i], URL: "http://id.example:5000/v3"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var found []string
	for _, dir := range dirs {
		if b, err := os.ReadFile(filepath.Join(dir, "openrc")); err == nil {
			found = append(found, string(b))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d servers have the administrator's password: %q", len(found), found)
	}
	password := regexp.MustCompile(`OS_PASSWORD='(\w+)'`).FindStringSubmatch(found[0])
	if len(password) != 2 {
		t.Fatalf("openrc is %s", found[0])
	}
	snap := must[*records.Snap](t)(services[0].directory.view(t.Context()))
	admin := first(services[0].directory.users, snap, "name", inDomain(DefaultDomainID, adminName))
	if right, err := services[0].passwords.check(t.Context(), admin.PasswordHash, password[1]); err != nil || !right {
		t.Errorf("the password in the file does not let the administrator in: %v", err)
	}
}

func TestOwnPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, _ := w.user("ann", "first", "member")
	bob, _ := w.user("bob", "pw", "member")
	token := w.login("ann", "first", "ann")
	change := func(user, original, password string) int {
		return w.call(token, "POST", "/users/"+user+"/password", fmt.Sprintf(`{"user":{"original_password":%q,"password":%q}}`, original, password)).status
	}
	if got := change(ann, "wrong", "second"); got != 401 {
		t.Errorf("with a wrong original: %d", got)
	}
	if got := change(bob, "pw", "mine"); got != 403 {
		t.Errorf("another user's: %d", got)
	}
	if got := change(ann, "first", ""); got != 400 {
		t.Errorf("to nothing: %d", got)
	}
	if got := change(ann, "first", "second"); got != 204 || w.works(token) {
		t.Errorf("change: %d, old token works: %v", got, w.works(token))
	}
	token = w.login("ann", "second", "ann")
	if a := w.call(token, "GET", "/users/"+ann, ""); a.status != 200 || a.text("user.name") != "ann" {
		t.Errorf("own user: %d %s", a.status, a.body)
	}
	if a := w.call(token, "GET", "/users/"+bob, ""); a.status != 403 {
		t.Errorf("another user: %d %s", a.status, a.body)
	}
	if a := w.call(token, "GET", "/auth/projects", ""); a.count("projects") != 1 || a.text("projects.0.name") != "ann" {
		t.Errorf("own projects: %s", a.body)
	}
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	st := memory(t)
	w := serveOver(t, st, nil)
	if err := w.s.Bootstrap(t.Context(), BootstrapOptions{Dir: filepath.Join(w.dir, "not there"), URL: w.url}); err != nil {
		t.Errorf("a later start without a password: %v", err)
	}
	if !w.works(w.token) {
		t.Error("a later start ended tokens")
	}
	if err := w.s.Bootstrap(t.Context(), BootstrapOptions{Password: adminPassword, Dir: w.dir, URL: w.url}); err != nil || !w.works(w.token) {
		t.Errorf("a later start with the same password: %v", err)
	}
	// The recovery of who lost the password, was disabled, and lost the role.
	admin := w.admin(200, "GET", "/users?name=admin", "").text("users.0.id")
	project := w.admin(200, "GET", "/projects?name=admin", "").text("projects.0.id")
	w.admin(204, "DELETE", "/projects/"+project+"/users/"+admin+"/roles/"+w.role("admin"), "")
	if err := w.s.Bootstrap(t.Context(), BootstrapOptions{Password: "recovered", Dir: w.dir, URL: w.url}); err != nil {
		t.Fatal(err)
	}
	w.token = w.login("admin", "recovered", "admin")
	w.admin(200, "GET", "/users", "")
}

// cheap keeps tests that log in hundreds of times fast.
func cheap() credentials.Cost { return credentials.Cost{Memory: 64, Passes: 1, Threads: 1} }

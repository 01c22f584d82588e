package metadata

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	portA = "4b1c9a52-0000-4000-8000-00000000000a"
	portB = "77e0d1c3-0000-4000-8000-00000000000b"
)

// machine returns one with two interfaces and all that users can give.
func machine() *Machine {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return &Machine{
		Instance: &topology.Instance{
			HostID: "host", PortID: portA, DeviceID: "9d2f6f40-0000-4000-8000-000000000001", ProjectID: "acme", Name: "Web server_1", Domain: "example.org.",
			Zone: "nova", Groups: []string{"default", "web"}, Floating: []netip.Addr{addr("203.0.113.7")},
			Links: []topology.InstanceLink{{
				PortID: portA, MAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, MTU: 1450, NetworkID: "net-a",
				Subnets: []topology.InstanceSubnet{
					{Address: prefix("10.0.0.5/24"), Gateway: addr("10.0.0.1"), DNS: []netip.Addr{addr("192.0.2.53")}, DHCP: true},
					{Address: prefix("2001:db8::5/64"), Gateway: addr("2001:db8::1"), DNS: []netip.Addr{addr("2001:db8::53")}, Mode: "slaac", DHCP: true},
				},
			}, {
				PortID: portB, MAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 2}, MTU: 1500, NetworkID: "net-b",
				Subnets: []topology.InstanceSubnet{
					{Address: prefix("10.1.0.5/23"), DNS: []netip.Addr{addr("192.0.2.53"), addr("192.0.2.54")},
						Routes: []topology.Opt121Route{{DstSubnet: prefix("172.16.0.0/12"), Gateway: addr("10.1.0.9")}}},
					{Address: prefix("10.2.0.5/24")},
					{Address: prefix("2001:db8:1::5/48"), Gateway: addr("2001:db8:1::1")},
				},
			}},
		},
		InstanceSecrets: topology.InstanceSecrets{
			SSHKeys:  []string{"ssh-ed25519 AAAAC3Nz ann@example.org", "ssh-rsa AAAAB3Nz", "ssh-rsa AAAAB3N0 a/b=c"},
			UserData: []byte("#cloud-config\n"), PasswordHash: `$6$salt$"hash"\`,
		},
	}
}

func own(t *testing.T, m *Machine) *Own {
	t.Helper()
	return NewOwn(func(port string) (*Machine, error) {
		if m == nil || port != m.PortID {
			return nil, ErrUnknown
		}
		return m, nil
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// ask sends a request as the proxy hands it on.
func ask(s Source, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeMetadata(w, r, Client{Port: portA, Addr: netip.MustParseAddr("10.0.0.5")})
	return w
}

func get(at string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://169.254.169.254"+at, nil)
	r.Header.Set("User-Agent", "Cloud-Init/22.4.2")
	return r
}

// TestAnswers compares everything that a machine can read, found as clients find it: by the lists.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := own(t, machine())
	var b strings.Builder
	before := map[string]string{} // files of the version of OpenStack's tree before
	var crawl func(at string)
	crawl = func(at string) {
		w := ask(s, get(at))
		body := w.Body.String()
		if w.Code != http.StatusOK {
			t.Errorf("GET %s: %d %s", at, w.Code, body)
		}
		name := path.Base(at)
		if name == "meta_data.json" {
			body = withoutSeed(t, body)
		}
		shown := body
		if strings.HasPrefix(at, "/openstack/") && before[name] == body {
			shown = "as before"
		}
		before[name] = body
		fmt.Fprintf(&b, "GET %s\n%s\n%s\n\n", at, w.Header().Get("Content-Type"), shown)
		if !strings.HasSuffix(at, "/") {
			return
		}
		for line := range strings.Lines(body) {
			// Of EC2's versions, which are equal, one is enough.
			if sub := at + child(at, strings.TrimSuffix(line, "\n")); !strings.HasPrefix(sub, "/2") {
				crawl(sub)
			}
		}
	}
	crawl("/")
	crawl("/openstack/")
	golden := filepath.Join("testdata", "answers.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("answers differ (-want +got); with -update they are written:\n%s", diff)
	}
}

// child returns the path below a directory for a line of its list.
func child(at, line string) string {
	if number, _, named := strings.Cut(line, "="); named && strings.HasSuffix(at, "/public-keys/") {
		return number + "/"
	}
	if at == "/" || at == "/openstack/" || line == "meta-data" {
		return line + "/"
	}
	return line
}

// withoutSeed checks and leaves out the seed of meta_data.json.
func withoutSeed(t *testing.T, body string) string {
	t.Helper()
	var data map[string]any
	if err := json.Unmarshal([]byte(body), &data); err != nil {
		t.Fatal(err)
	}
	if seed, ok := data["random_seed"].(string); ok {
		if len(seed) != 684 { // 512 bytes in base64
			t.Errorf("random_seed has %d characters", len(seed))
		}
		delete(data, "random_seed")
	}
	return string(asJSON(data).body)
}

func TestLittleKnown(t *testing.T) {
	t.Parallel()
	m := &Machine{Instance: &topology.Instance{PortID: portA, ProjectID: "p", Zone: "z",
		Links: []topology.InstanceLink{{PortID: portA, Subnets: []topology.InstanceSubnet{{Address: netip.MustParsePrefix("10.0.0.5/24")}}}}}}
	s := own(t, m)
	for at, want := range map[string]string{
		"/latest/meta-data/hostname":          "host-10-0-0-5",
		"/latest/meta-data/instance-id":       ec2ID("i", portA),
		"/latest":                             "meta-data",
		"/openstack/2012-08-10/":              "meta_data.json",
		"/openstack/latest/vendor_data.json":  "{}",
		"/latest/meta-data/network/":          "interfaces/",
		"/latest//meta-data/./hostname":       "host-10-0-0-5",
		"/latest/../latest/meta-data/mac":     "00:00:00:00:00:00",
		"/2021-03-23/meta-data/local-ipv4":    "10.0.0.5",
		"/2009-04-04/meta-data/local-ipv4/":   "10.0.0.5",
		"/openstack/latest/vendor_data2.json": "{}",
	} {
		if w := ask(s, get(at)); w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("GET %s: %d %q, want %q", at, w.Code, w.Body, want)
		}
	}
	for _, at := range []string{"/latest/user-data", "/openstack/latest/user_data", "/openstack/2013-10-17/network_data.json", "/openstack/2012-08-10/vendor_data.json",
		"/1.0/meta-data", "/latest/meta-data/public-keys", "/latest/meta-data/public-ipv4", "/latest/meta-data/hostname/x", "/openstack/latest/meta_data.json/x", "/latest/api/token",
		"/openstack/2030-01-01/meta_data.json", "/etc/passwd", "/latest/meta-data/%00"} {
		if w := ask(s, get(at)); w.Code != http.StatusNotFound {
			t.Errorf("GET %s: %d %q, want 404", at, w.Code, w.Body)
		}
	}
	m.Hostname = "db.internal"
	if w := ask(s, get("/latest/meta-data/local-hostname")); w.Body.String() != "db.internal" {
		t.Errorf("hostname %q, want the one given", w.Body)
	}
}

// TestHostile: requests that no metadata client sends get an error that says so, and no metadata.
func TestHostile(t *testing.T) {
	t.Parallel()
	s := own(t, machine())
	request := func(method, at string, change func(*http.Request)) *http.Request {
		r := get(at)
		r.Method = method
		if change != nil {
			change(r)
		}
		return r
	}
	host := func(name string) *http.Request {
		return request(http.MethodGet, "/latest/user-data", func(r *http.Request) { r.Host = name })
	}
	life := func(seconds string, forwarded bool) *http.Request {
		return request(http.MethodPut, tokenPath, func(r *http.Request) {
			r.Header.Set(lifeHeader, seconds)
			if forwarded {
				r.Header.Set("X-Forwarded-For", "")
			}
		})
	}
	body := func(method, at string, length int64) *http.Request {
		return request(method, at, func(r *http.Request) { r.ContentLength = length })
	}
	for name, c := range map[string]struct {
		r    *http.Request
		want int
		text string
	}{
		"rebinding":             {host("rebind.example"), 403, `"rebind.example"`},
		"another address":       {host("10.0.0.5"), 403, "10.0.0.5"},
		"another port":          {host("169.254.169.254:81"), 403, ":81"},
		"half an IPv6 address":  {host("[fe80::a9fe:a9fe"), 403, "address"},
		"address":               {host("169.254.169.254:80"), 200, ""},
		"no host":               {host(""), 200, ""},
		"IPv6":                  {host("[fe80::a9fe:a9fe]"), 200, ""},
		"IPv6 with a zone":      {host("[fe80::a9fe:a9fe%eth0]:80"), 200, ""},
		"POST":                  {request(http.MethodPost, "/latest/meta-data/", nil), 405, "GET"},
		"DELETE":                {request(http.MethodDelete, "/openstack", nil), 405, "GET"},
		"PUT of something else": {request(http.MethodPut, "/latest/user-data", nil), 404, tokenPath},
		"token without a life":  {request(http.MethodPut, tokenPath, nil), 400, lifeHeader},
		"life of no time":       {life("0", false), 400, "21600"},
		"life too long":         {life("21601", false), 400, "21600"},
		"life in words":         {life("1h", false), 400, "21600"},
		"forwarded":             {life("60", true), 403, "X-Forwarded-For"},
		"token":                 {life("60", false), 200, ""},
		"body":                  {body(http.MethodGet, "/latest", 5), 400, "body"},
		"body of unknown size":  {body(http.MethodPut, tokenPath, -1), 400, "body"},
		"HEAD":                  {request(http.MethodHead, "/latest/user-data", nil), 200, ""},
		"bad token":             {request(http.MethodGet, "/latest", func(r *http.Request) { r.Header.Set(tokenHeader, "AAAA") }), 401, tokenPath},
	} {
		w := ask(s, c.r)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.text) || c.want != 200 && strings.Contains(w.Body.String(), "cloud-config") {
			t.Errorf("%s: %d %q, want %d and %q", name, w.Code, w.Body, c.want, c.text)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := own(t, machine())
	now := time.Unix(1_800_000_000, 0)
	s.tokens.now = func() time.Time { return now }
	put := get(tokenPath)
	put.Method = http.MethodPut
	put.Header.Set(lifeHeader, "60")
	w := ask(s, put)
	if got := w.Header().Get(lifeHeader); got != "60" {
		t.Errorf("%s %q, want 60", lifeHeader, got)
	}
	with := func(token string) int {
		r := get("/latest/meta-data/")
		r.Header.Set(tokenHeader, token)
		return ask(s, r).Code
	}
	token := w.Body.String()
	if code := with(token); code != http.StatusOK {
		t.Errorf("with the token: %d", code)
	}
	if code := with(s.tokens.token(portB, now.Add(time.Minute))); code != http.StatusUnauthorized {
		t.Errorf("with another port's token: %d, want 401", code)
	}
	if code := with(newTokens().token(portA, now.Add(time.Minute))); code != http.StatusUnauthorized {
		t.Errorf("with another agent's token: %d, want 401", code)
	}
	now = now.Add(time.Minute)
	if code := with(token); code != http.StatusUnauthorized {
		t.Errorf("with an expired token: %d, want 401", code)
	}
}

func TestUnknownMachine(t *testing.T) {
	t.Parallel()
	w := ask(own(t, nil), get("/openstack"))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %q, want 503 and when to try again", w.Code, w.Body)
	}
	broken := NewOwn(func(string) (*Machine, error) { return nil, errors.New("the key file is torn") }, slog.New(slog.DiscardHandler))
	if w := ask(broken, get("/openstack")); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "torn") {
		t.Errorf("%d %q, want 500 that keeps the reason to the log", w.Code, w.Body)
	}
}

func TestHostLabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"Web server_1": "web-server-1", "-.x.-": "x", "é€": "", "a\nb\x00c": "abc", strings.Repeat("a", 70): strings.Repeat("a", 63)} {
		if got := hostLabel(name); got != want {
			t.Errorf("hostLabel(%q) = %q, want %q", name, got, want)
		}
	}
}

// FuzzPaths: no path brings the service down, leads out of the trees, or means another thing than
// its clean form.
func FuzzPaths(f *testing.F) {
	for _, at := range []string{"/", "//", "/openstack/latest/meta_data.json/", "/latest/meta-data/public-keys/0/openssh-key", "/latest/../../etc", "/a%2f..", "\x00", "/latest/meta-data/public-keys/0=ann"} {
		f.Add(at)
	}
	m := machine()
	f.Fuzz(func(t *testing.T, at string) {
		clean := path.Clean("/" + at)
		got, ok := m.lookup(clean)
		again, okAgain := m.lookup(path.Clean(clean + "/"))
		if ok != okAgain || ok && !strings.HasSuffix(clean, "meta_data.json") && !slices.Equal(got.body, again.body) {
			t.Errorf("%q: %v %q, with a slash %v %q", at, ok, got.body, okAgain, again.body)
		}
		if ok && got.contentType == "" {
			t.Errorf("%q: an answer without a type", at)
		}
	})
}

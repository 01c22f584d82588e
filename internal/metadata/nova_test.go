package metadata

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// novaAt returns a source that asks the server at a URL.
func novaAt(t *testing.T, base string, m *Machine) *Nova {
	t.Helper()
	u, err := ParseNovaURL(base)
	if err != nil {
		t.Fatal(err)
	}
	return NewNova(func(string) (*Machine, error) {
		if m == nil {
			return nil, ErrUnknown
		}
		return m, nil
	}, u, "shared secret", slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// TestNovaIsTold compares what Nova receives of a workload that lies with what it must.
func TestNovaIsTold(t *testing.T) {
	t.Parallel()
	received := make(chan *http.Request, 1)
	nova := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Header.Set("body", string(body))
		received <- r
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "{}")
	}))
	defer nova.Close()
	s := novaAt(t, nova.URL+"/base/", machine())
	r := httptest.NewRequest(http.MethodPost, "http://169.254.169.254/openstack//latest/../latest/a%2fb%3f/?x=1", strings.NewReader("secret"))
	for name, value := range map[string]string{
		"X-Instance-ID": "other", "X_Instance_ID": "other", "X-Tenant-ID": "other", "X-Project-ID": "other", "X-Forwarded-For": "10.9.9.9", "X-Instance-ID-Signature": "00",
		"X-Metadata-Provider": "other", "Forwarded": "for=10.9.9.9", "Connection": "X-Instance-ID, Upgrade", "Upgrade": "h2c", "User-Agent": "Cloud-Init/22.4.2", "Accept": "*/*",
	} {
		r.Header[name] = []string{value}
	}
	w := ask(s, r)
	if w.Code != http.StatusTeapot || w.Body.String() != "{}" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("answer %d %q %v, want Nova's", w.Code, w.Body, w.Header())
	}
	got := <-received
	got.Header.Del("Content-Length")
	want := http.Header{
		"X-Instance-Id": {"9d2f6f40-0000-4000-8000-000000000001"}, "X-Tenant-Id": {"acme"}, "X-Project-Id": {"acme"}, "X-Forwarded-For": {"10.0.0.5"},
		// printf 9d2f6f40-0000-4000-8000-000000000001 | openssl dgst -sha256 -hmac 'shared secret'
		"X-Instance-Id-Signature": {"b441f3b1ac6cb1409f171ae4b0d8187aa427a998e3a718bdaf5102e151601f54"},
		"User-Agent":              {"Cloud-Init/22.4.2"}, "Accept": {"*/*"}, "Body": {"secret"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers at Nova (-want +got):\n%s", diff)
	}
	if at := got.URL.RequestURI(); got.Host != strings.TrimPrefix(nova.URL, "http://") || at != "/base/openstack/latest/a/b%3F/" {
		t.Errorf("Nova was asked for %s at host %s", at, got.Host)
	}
}

func TestNovaForwardedFor(t *testing.T) {
	t.Parallel()
	m := machine()
	for from, want := range map[string]string{"10.0.0.5": "10.0.0.5", "2001:db8::5": "2001:db8::5", "fe80::1%eth0": "2001:db8::5", "192.0.2.1": "10.0.0.5"} {
		if got := m.fixedAddress(netip.MustParseAddr(from)); got.String() != want {
			t.Errorf("asked from %s: forwarded for %v, want %s", from, got, want)
		}
	}
	m.Links[0].Subnets = m.Links[0].Subnets[:1]
	if got := m.fixedAddress(netip.MustParseAddr("fe80::1")); got.String() != "10.0.0.5" {
		t.Errorf("of a port without IPv6: forwarded for %v, want its address", got)
	}
}

func TestNovaFails(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + closed.Addr().String()
	closed.Close()
	nova := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer nova.Close()
	foreign := machine()
	foreign.DeviceID = ""
	large := func() *http.Request {
		return httptest.NewRequest(http.MethodPost, "http://169.254.169.254/openstack/latest/password", strings.NewReader(strings.Repeat("x", maxBody+1)))
	}
	rebound := get("/openstack")
	rebound.Host = "rebind.example"
	for name, c := range map[string]struct {
		s    *Nova
		r    *http.Request
		want int
		text string
	}{
		"away":           {novaAt(t, away, machine()), get("/openstack"), 502, "cannot be reached"},
		"no device":      {novaAt(t, nova.URL, foreign), get("/openstack"), 404, "device_id"},
		"not known yet":  {novaAt(t, nova.URL, nil), get("/openstack"), 503, "try again"},
		"large body":     {novaAt(t, nova.URL, machine()), large(), 413, "4096 bytes"},
		"another's name": {novaAt(t, nova.URL, machine()), rebound, 403, "rebind.example"},
	} {
		if w := ask(c.s, c.r); w.Code != c.want || !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s: %d %q, want %d and %q", name, w.Code, w.Body, c.want, c.text)
		}
	}
}

// TestNovaIsSlow: a workload is answered though Nova is not heard of in time.
func TestNovaIsSlow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	nova := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer nova.Close()
	defer close(release)
	s := novaAt(t, nova.URL, machine())
	s.answer = 1 // nanosecond
	if w := ask(s, get("/openstack")); w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), "has not answered") {
		t.Errorf("%d %q, want 504", w.Code, w.Body)
	}
}

func TestParseNovaURL(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"http://10.0.0.1:8775": true, "https://nova.example:8775/x": true,
		"10.0.0.1:8775": false, "nova": false, "ftp://nova": false, "http://": false, "http://u:p@nova": false, "http://nova?x": false, "http://nova#x": false, "http://no va": false,
	} {
		if _, err := ParseNovaURL(text); (err == nil) != good {
			t.Errorf("ParseNovaURL(%q): %v", text, err)
		}
	}
}

package xe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write writes a file of the test.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPriority: the command line goes before XE_EXTRA_ARGS, that before ~/.xe, and that before the
// defaults.
func TestPriority(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, home, ".xe", "# where the pool is\nserver=file\nport=1\nusername=file\nnot-ours=x\n\n")
	a, err := parse([]string{"pif-list", "server=line"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := settings(a, Environment{Home: home, ExtraArgs: "server=extra,port=2"})
	if diff := cmp.Diff(map[string]string{"server": "line", "port": "2", "username": "file"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := settings(&arguments{}, Environment{Home: t.TempDir()}); err != nil || len(got) != 0 {
		t.Errorf("without any: %v, %v", got, err)
	}
	if _, err := settings(&arguments{}, Environment{Home: "/dev/null"}); err == nil {
		t.Error("a home that is no directory is passed over")
	}
}

func TestConnection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := Environment{RootPasswordFile: write(t, dir, "root", "local\n"), AuthorityFile: "/ca"}
	two := write(t, dir, "two", "admin\r\nse cret \n")
	whole := cmp.AllowUnexported(connection{})
	for name, c := range map[string]struct {
		settings map[string]string
		want     connection
	}{
		"defaults":         {nil, connection{server: "127.0.0.1", user: "root", password: "local", authorities: "/ca"}},
		"without TLS":      {map[string]string{"nossl": "true"}, connection{server: "127.0.0.1", user: "root", password: "local", plain: true}},
		"a fingerprint":    {map[string]string{"fingerprint": "f"}, connection{server: "127.0.0.1", user: "root", password: "local", fingerprint: "f"}},
		"another user":     {map[string]string{"username": "admin"}, connection{server: "127.0.0.1", user: "admin"}},
		"another machine":  {map[string]string{"server": "192.0.2.1"}, connection{server: "192.0.2.1", user: "root"}},
		"an empty one":     {map[string]string{"password": ""}, connection{server: "127.0.0.1", user: "root"}},
		"a file":           {map[string]string{"passwordfile": two}, connection{server: "127.0.0.1", user: "admin", password: "se cret "}},
		"no TLS, and more": {map[string]string{"nossl": "true", "port": "80", "ca": "/x", "fingerprint": "f", "password": "p"}, connection{server: "127.0.0.1", port: "80", user: "root", password: "p", plain: true, authorities: "/x", fingerprint: "f"}},
	} {
		c.want.timeout = loginTimeout
		got, err := connectionOf(t.Context(), c.settings, env)
		if diff := cmp.Diff(c.want, got, whole); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	env.AskPassword = func(context.Context) (string, error) { return "typed", nil }
	for user, want := range map[string]string{"root": "local", "admin": "typed"} {
		if got, err := connectionOf(t.Context(), map[string]string{"username": user}, env); err != nil || got.password != want {
			t.Errorf("%s, who may be asked: %q, %v, want %q", user, got.password, err, want)
		}
	}
	for _, text := range []string{"", "admin", "\nsecret\n"} {
		if _, err := connectionOf(t.Context(), map[string]string{"passwordfile": write(t, dir, "bad", text)}, env); err == nil {
			t.Errorf("a password file %q is taken", text)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		connection
		want []string
	}{
		"this machine":      {connection{server: "127.0.0.1"}, []string{"http://127.0.0.1:8080", "https://127.0.0.1:8443", "https://127.0.0.1:443"}},
		"its usual port":    {connection{server: "localhost", port: "8080"}, []string{"http://localhost:8080"}},
		"another port":      {connection{server: "127.0.0.1", port: "8443"}, []string{"https://127.0.0.1:8443"}},
		"known by its mark": {connection{server: "127.0.0.1", authorities: "/x"}, []string{"https://127.0.0.1:8443", "https://127.0.0.1:443"}},
		"another machine":   {connection{server: "pool.example"}, []string{"https://pool.example:8443", "https://pool.example:443"}},
		"not in the clear":  {connection{server: "192.0.2.1", port: "8080"}, []string{"https://192.0.2.1:8080"}},
		"in the clear":      {connection{server: "192.0.2.1", plain: true}, []string{"http://192.0.2.1:8080", "http://192.0.2.1:80"}},
		"in the clear at":   {connection{server: "192.0.2.1", plain: true, port: "8123"}, []string{"http://192.0.2.1:8123"}},
		"IPv6":              {connection{server: "[2001:db8::1]", port: "443"}, []string{"https://[2001:db8::1]:443"}},
		"IPv6, bare":        {connection{server: "2001:db8::1", port: "443"}, []string{"https://[2001:db8::1]:443"}},
	} {
		if diff := cmp.Diff(c.want, c.urls()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestSilentServer: one that accepts connections and says nothing is given up on, by name.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	at := strings.TrimPrefix(s.URL, "http://127.0.0.1:")
	_, err := connection{server: "127.0.0.1", port: at, user: "root", plain: true, timeout: 50 * time.Millisecond}.dial(t.Context())
	if want := "log in at 127.0.0.1:" + at + " as root: no answer in 50ms"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

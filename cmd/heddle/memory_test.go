package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory reads a figure of a process's memory, in KiB: VmRSS now, VmHWM the most since the last
// reset.
func memory(t *testing.T, pid int, name string) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", name, raw)
	return 0
}

// addMember makes a project with a user who is member of it, and returns a client with the user's
// token.
func (c *client) addMember(t *testing.T, address, name string) *client {
	t.Helper()
	identity := *c
	identity.base = "http://" + address + ":5000/v3"
	type m = map[string]any
	make := func(kind string, body m) string {
		t.Helper()
		var made map[string]object
		if err := identity.call(t.Context(), http.MethodPost, "/"+kind+"s", m{kind: body}, &made); err != nil {
			t.Fatal(err)
		}
		return made[kind].ID
	}
	project, user := make("project", m{"name": name}), make("user", m{"name": name, "password": "of " + name})
	var found struct{ Roles []object }
	if err := identity.call(t.Context(), http.MethodGet, "/roles?name=member", nil, &found); err != nil || len(found.Roles) != 1 {
		t.Fatalf("role member: %v, %v", found.Roles, err)
	}
	if err := identity.call(t.Context(), http.MethodPut, "/projects/"+project+"/users/"+user+"/roles/"+found.Roles[0].ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	login := m{"auth": m{
		"identity": m{"methods": []string{"password"}, "password": m{"user": m{"id": user, "password": "of " + name}}},
		"scope":    m{"project": m{"id": project}},
	}}
	var token string
	answered := &http.Client{Transport: recordToken{c.http.Transport, &token}}
	asking := client{http: answered, base: identity.base}
	if err := asking.call(t.Context(), http.MethodPost, "/auth/tokens", login, nil); err != nil {
		t.Fatal(err)
	}
	return &client{http: c.http, base: c.base, token: token}
}

// recordToken keeps the token that an answer carries.
type recordToken struct {
	http.RoundTripper
	token *string
}

func (r recordToken) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.RoundTripper.RoundTrip(req)
	if err == nil {
		*r.token = res.Header.Get("X-Subject-Token")
	}
	return res, err
}

// TestMemoryOfLargeBodies: a hundred clients at once who send as much and as costly a body as they
// can do not double what the server's process takes when idle, and each is told what was wrong.
func TestMemoryOfLargeBodies(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	admin := login(t, r.ns, "127.0.0.1", data)
	member := admin.addMember(t, "127.0.0.1", "m")
	var network struct{ Network object }
	if err := member.call(t.Context(), http.MethodPost, "/v2.0/networks", map[string]any{"network": map[string]any{}}, &network); err != nil {
		t.Fatal(err)
	}

	list := func(head, item, tail string, n int) []byte {
		return []byte(head + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + tail)
	}
	const identity = "http://127.0.0.1:5000/v3/auth/tokens"
	networks := member.base + "/v2.0/networks"
	bodies := []struct {
		name, method, url string
		body              []byte
		chunked           bool
	}{
		{"52 MB of networks", "POST", networks, list(`{"networks":[`, `{}`, `]}`, 52_000_000/3), false},
		{"52 MB of networks, chunked", "POST", networks, list(`{"networks":[`, `{"name":"x"}`, `]}`, 4_000_000), true},
		{"values", "POST", networks, list(`{"network":{"name":"x","tags":[`, `{"":0}`, `]}}`, 590_000), false},
		{"values below the limit", "POST", networks, list(`{"network":{"name":"x","tags":[`, `{"":"`+strings.Repeat("y", 160)+`"}`, `]}}`, 24_000), false},
		{"DHCP options", "POST", member.base + "/v2.0/ports", list(`{"port":{"network_id":"`+network.Network.ID+`","extra_dhcp_opts":[`, `{"opt_name":"a","opt_value":"b"}`, `]}}`, 30_000), false},
		{"a long name", "POST", networks, []byte(`{"network":{"name":"` + strings.Repeat("x", 250<<10) + `"}}`), false},
		{"a list over the quota", "POST", networks, list(`{"networks":[`, `{"name":"`+strings.Repeat("x", 200)+`"}`, `]}`, 990), false},
		{"tags", "PUT", networks + "/" + network.Network.ID + "/tags", list(`{"tags":[`, `"x"`, `]}`, 60_000), false},
		{"many small values", "POST", networks, list(`{"network":{"tags":[`, `0`, `]}}`, 4000), false},
		{"log-in", "POST", identity, list(`{"auth":[`, `{"":0}`, `]}`, 36_000), false},
	}

	pid := r.cmd.Process.Pid
	idle := memory(t, pid, "VmRSS")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // VmHWM starts anew
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 100 {
		b := bodies[i%len(bodies)]
		clients.Go(func() {
			var body io.Reader = bytes.NewReader(b.body)
			if b.chunked {
				body = io.MultiReader(body)
			}
			req, err := http.NewRequestWithContext(ctx, b.method, b.url, body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-Auth-Token", member.token)
			res, err := member.http.Do(req)
			if err != nil {
				t.Errorf("%s: %v", b.name, err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			text, err := io.ReadAll(res.Body)
			switch {
			case err != nil:
				t.Errorf("%s: %v", b.name, err)
			case res.StatusCode == http.StatusServiceUnavailable: // others were faster, or the store is too slow for so many
			case res.StatusCode < 400 || res.StatusCode >= 500 || !strings.Contains(string(text), `rror":{`):
				t.Errorf("%s: %d %.200s", b.name, res.StatusCode, text)
			}
		})
	}
	clients.Wait()
	most := memory(t, pid, "VmHWM")
	t.Logf("idle %d KiB, at most %d KiB", idle, most)
	if most > 2*idle {
		t.Errorf("a hundred clients took the server from %d KiB to %d KiB", idle, most)
	}
	if err := member.call(t.Context(), http.MethodGet, "/v2.0/networks", nil, nil); err != nil {
		t.Error(err)
	}
}

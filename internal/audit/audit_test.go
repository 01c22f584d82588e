package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/audit"
)

func TestStrike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw, body string
		cut       bool
	}{
		{``, ``, false},
		{` {"port": {"name":"a", "n": 1.50, "x":[null,true, {}]}} `, `{"port":{"name":"a","n":1.50,"x":[null,true,{}]}}`, false},
		{`{"bgp_peer":{"password":"hunter2","name":"p"}}`, `{"bgp_peer":{"password":"***","name":"p"}}`, false},
		{`{"user_data":{"a":["hunter2"]},"SSH-Keys":["hunter2"],"z":1}`, `{"user_data":"***","SSH-Keys":"***","z":1}`, false},
		{`{"a":1,"password":"hunt`, `{"a":1,"password":`, true},
		{`{"pass\u0077ord":"hunter2", "n":1}`, `{"password":"***","n":1}`, false},
		{`{"x":{"k.e-y": "hunter2", "PSK":"hunter2"}}`, `{"x":{"k.e-y":"***","PSK":"***"}}`, false},
		{`{"description":"the password, and a \"key\""}`, `{"description":"the password, and a \"key\""}`, false},
		{`hunter2`, ``, true},
	} {
		body, cut := audit.Strike([]byte(c.raw))
		if body != c.body || cut != c.cut {
			t.Errorf("%s: %s, cut %v; want %s, %v", c.raw, body, cut, c.body, c.cut)
		}
	}
	long := `{"a":"` + strings.Repeat("x", audit.MaxBody) + `"}`
	if body, cut := audit.Strike([]byte(long)); !cut || len(body) > audit.MaxBody {
		t.Errorf("a long body gives %d bytes, cut %v", len(body), cut)
	}
	deep := strings.Repeat("[", 1<<20)
	if body, cut := audit.Strike([]byte(deep)); !cut || len(body) > audit.MaxBody {
		t.Errorf("a deep body gives %d bytes, cut %v", len(body), cut)
	}
}

// TestStrikeRandom: whatever the form of a body and wherever it is cut, no part of a secret is in
// the record.
func TestStrikeRandom(t *testing.T) {
	t.Parallel()
	names := []string{"password", "admin_password", "old_pwd", "user_data", "ssh_keys", "Token", "application_credential_secret", "psk"}
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int, secret bool) any
		value = func(depth int, secret bool) any {
			text := "plain"
			if secret {
				text = "hunter2"
			}
			switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case depth == 0 || kind == 0:
				return text
			case kind == 1:
				return []any{value(depth-1, secret), value(depth-1, secret)}
			case kind == 2:
				return map[string]any{rapid.SampledFrom(names).Draw(t, "name"): value(depth-1, true), "x": value(depth-1, secret)}
			}
			return map[string]any{"a": value(depth-1, secret)}
		}
		raw, err := json.Marshal(value(4, false))
		if err != nil {
			t.Fatal(err)
		}
		end := rapid.IntRange(0, len(raw)).Draw(t, "end")
		if body, _ := audit.Strike(raw[:end]); strings.Contains(body, "hunter") {
			t.Fatalf("%s gives %s", raw[:end], body)
		}
		if body, cut := audit.Strike(raw); cut || !json.Valid([]byte(body)) {
			t.Fatalf("%s gives %s, cut %v", raw, body, cut)
		}
	})
}

// BenchmarkStrike strikes the body of a request for a port, which has no secrets.
func BenchmarkStrike(b *testing.B) {
	body := []byte(`{"port": {"network_id": "0acc33cd-7d10-48a1-937e-88be575d35e7", "name": "vm1", "admin_state_up": true, "binding:host_id": "host1",
		"fixed_ips": [{"subnet_id": "0acc33cd-7d10-48a1-937e-88be575d35e7"}], "security_groups": ["0acc33cd-7d10-48a1-937e-88be575d35e7"]}}`)
	for b.Loop() {
		if _, cut := audit.Strike(body); cut {
			b.Fatal("the body is cut off")
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/v2.0/ports", "create ports"},
		{"PUT", "/v2.0/ports/1", "update ports 1"},
		{"DELETE", "/v2/lbaas/pools/1/members/2", "delete lbaas pools 1 members 2"},
		{"PUT", "/v2.0/routers/1/add_router_interface", "add_router_interface routers 1"},
		{"POST", "/", "create "},
	} {
		if got := audit.Summary(c.method, c.path); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

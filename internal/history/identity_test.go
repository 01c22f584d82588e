package history

import (
	"testing"

	"heddle/internal/api/operator"
)

func TestRequested(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, body     string
		kind, id, name, change string
		fields                 int
	}{
		{"POST", "/v3/users", `{"user":{"name":"alice","password":"***"}}`, "user", "", "alice", "created", 2},
		{"PATCH", "/v3/projects/p1", `{"project":{"enabled":false}}`, "project", "p1", "", "changed", 1},
		{"POST", "/v3/users/u1/password", `{"user":{"password":"***"}}`, "user", "u1", "", "changed", 1},
		{"DELETE", "/v3/projects/p1/tags/a", "", "project", "p1", "", "changed", 0},
		{"PUT", "/v3/projects/p1/users/u1/roles/r1", "", "role assignment", "projects p1 users u1 roles r1", "", "created", 0},
		{"DELETE", "/v3/roles/r1", "", "role", "r1", "", "deleted", 0},
		{"POST", "/v3/users/u1/application_credentials", `{"application_credential":"***"}`, "application credential", "", "", "created", 0},
		{"DELETE", "/v3/users/u1/application_credentials/c1", "", "application credential", "c1", "", "deleted", 0},
		{"POST", "/v3/auth/tokens", `{"auth":"***"}`, "", "", "", "", 0},
		{"POST", "/", "", "", "", "", "", 0},
	} {
		o, ok := requested(&operator.Author{API: "identity", Method: c.method, Path: c.path, Body: c.body})
		if ok != (c.kind != "") || ok && (o.Kind != c.kind || o.ID != c.id || o.Name != c.name || o.Change != c.change || len(o.Fields) != c.fields) {
			t.Errorf("%s %s: %+v, %v", c.method, c.path, o, ok)
		}
	}
	if _, ok := requested(&operator.Author{API: "neutron", Method: "POST", Path: "/v2.0/networks"}); ok {
		t.Error("an object of another API")
	}
}

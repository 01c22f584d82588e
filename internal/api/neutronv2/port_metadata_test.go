package neutronv2_test

import (
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/sealing"
)

// TestPortMetadata: what a user gives to a machine is answered to its project alone, without the
// password's hash.
func TestPortMetadata(t *testing.T) {
	t.Parallel()
	key, err := sealing.LoadServerKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, control.Options{SecretsKey: key})
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	port := s.create(t, "member", "ports", `{"port":{"network_id":"`+network+`"}}`)["id"].(string)
	at := "/ports/" + port + "/metadata"
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		want                    string
	}{
		{"member", "GET", at, "", 200, `{"metadata":{"ssh_keys":[],"has_password":false}}`},
		{"member", "PUT", at, `{"metadata":{"hostname":"web","password_hash":"$6$salt$hash","user_data":"I2Nsb3VkLWNvbmZpZwo="}}`, 200, `"hostname":"web"`},
		{"member", "PUT", at, `{"metadata":{}}`, 200, `"hostname":"web"`},
		{"member", "GET", at, "", 200, `{"metadata":{"hostname":"web","ssh_keys":[],"has_password":true,"user_data":"I2Nsb3VkLWNvbmZpZwo="}}`},
		{"other", "GET", at, "", 404, "Port " + port + " could not be found."},
		{"other", "PUT", at, `{"metadata":{"hostname":"x"}}`, 404, "Port " + port + " could not be found."},
		{"other", "DELETE", at, "", 404, "Port " + port + " could not be found."},
		{"admin", "GET", at, "", 200, `"hostname":"web"`},
		{"member", "PUT", at, `{}`, 400, "Unable to find 'metadata' in request body"},
		{"member", "PUT", at, `{"metadata":[]}`, 400, "Unable to find 'metadata' in request body"},
		{"member", "PUT", at, `{"metadata":{"hostname":"a b"}}`, 400, "Invalid input for hostname."},
		{"member", "PUT", at, `{"metadata":{"user_data":"` + strings.Repeat("A", 400<<10) + `"}}`, 413, ""},
		{"member", "GET", "/ports/none/metadata", "", 404, "Port none could not be found."},
		{"member", "DELETE", at, "", 204, ""},
		{"member", "GET", at, "", 200, `{"metadata":{"ssh_keys":[],"has_password":false}}`},
	} {
		s.refused(t, tt.status, tt.who, tt.method, tt.path, tt.body, tt.want)
	}
	for _, kv := range s.records(t) {
		if text := string(kv.Value); strings.Contains(text, "I2Nsb3VkLWNvbmZpZwo") || strings.Contains(text, "$salt") {
			t.Errorf("the record of a request has secrets: %s", text)
		}
	}
	without := newServer(t, control.Options{})
	network = without.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	at = "/ports/" + without.create(t, "member", "ports", `{"port":{"network_id":"`+network+`"}}`)["id"].(string) + "/metadata"
	without.refused(t, 409, "admin", "GET", at, "", "This server lacks the key")
}

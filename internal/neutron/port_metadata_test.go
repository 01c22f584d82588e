package neutron_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// publicKey is the key of a .pub file without its comment.
const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGe1R5TlZ7FXwr9dO8w3JQ0e4mDqHn6Qn2f6X9mZc1aB"

func parseMetadata(t *testing.T, text string) (func(*topology.InstanceSecrets), error) {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return neutron.ParsePortMetadata(body)
}

func TestParsePortMetadata(t *testing.T) {
	t.Parallel()
	m := topology.InstanceSecrets{}
	for _, step := range []struct {
		text string
		want topology.InstanceSecrets
	}{
		{`{"hostname":"web-1.example.org","password_hash":"$6$salt$hash./x"}`, topology.InstanceSecrets{Hostname: "web-1.example.org", PasswordHash: "$6$salt$hash./x"}},
		{`{"user_data":"H4sIAA==","ssh_keys":["` + publicKey + ` ann@example.org\n"]}`, topology.InstanceSecrets{Hostname: "web-1.example.org", PasswordHash: "$6$salt$hash./x",
			UserData: []byte{0x1f, 0x8b, 8, 0}, SSHKeys: []string{publicKey + " ann@example.org"}}},
		{`{"hostname":null,"ssh_keys":null}`, topology.InstanceSecrets{PasswordHash: "$6$salt$hash./x", UserData: []byte{0x1f, 0x8b, 8, 0}}},
		{`{"user_data":"","password_hash":null}`, topology.InstanceSecrets{UserData: []byte{}}},
	} {
		change, err := parseMetadata(t, step.text)
		if err != nil {
			t.Fatalf("%s: %v", step.text, err)
		}
		change(&m)
		if diff := cmp.Diff(step.want, m); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.text, diff)
		}
	}
	v := neutron.ViewPortMetadata(&topology.InstanceSecrets{PasswordHash: "$6$salt$hash"})
	if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "$6$") || !v.HasPassword {
		t.Errorf("view %s, %v: it has the hash, or not that there is one", text, err)
	}
}

// TestParsePortMetadataRefuses: each error names the field and what is wanted.
func TestParsePortMetadataRefuses(t *testing.T) {
	t.Parallel()
	data := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	keys := strings.Repeat(`"`+publicKey+`",`, 21)
	for text, want := range map[string]string{
		`{"hostname":"-web"}`:  "hostname. Reason: want the name of a host",
		`{"hostname":"web_1"}`: "hostname",
		`{"hostname":"a..b"}`:  "hostname",
		`{"hostname":""}`:      "hostname",
		`{"hostname":7}`:       "hostname",
		`{"hostname":"` + strings.Repeat("a.", 127) + `ab"}`:   "253 characters",
		`{"password_hash":"secret"}`:                           "password_hash. Reason: want a hash, as openssl passwd -6 makes it",
		`{"password_hash":"$6$salt$a\nb"}`:                     "password_hash",
		`{"password_hash":"$6$salt$a:b"}`:                      "password_hash",
		`{"user_data":"#cloud-config"}`:                        "user_data. Reason: want a text in base64",
		`{"user_data":{}}`:                                     "user_data",
		`{"user_data":"` + data(neutron.MaxUserData+1) + `"}`:  "65537 bytes and may have 65536: compress it",
		`{"ssh_keys":"` + publicKey + `"}`:                     "ssh_keys. Reason: want a list",
		`{"ssh_keys":["` + publicKey + `","ssh-rsa AAAA"]}`:    "key 2 is no public key",
		`{"ssh_keys":["ssh-rsa ` + publicKey[12:] + `"]}`:      "key 1",
		`{"ssh_keys":["` + publicKey + ` a\nssh-rsa AAAA b"]}`: "key 1",
		`{"ssh_keys":[7]}`:                                     "key 1",
		`{"ssh_keys":[` + strings.TrimSuffix(keys, ",") + `]}`: "21 keys and may have 20",
		`{"ssh_keys":["ssh-rsa ////////////"]}`:                "key 1",
		`{"userdata":"","hostname":"web"}`:                     "Unrecognized attribute(s) 'userdata'",
	} {
		if _, err := parseMetadata(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	if _, err := parseMetadata(t, `{"user_data":"`+data(neutron.MaxUserData)+`"}`); err != nil {
		t.Errorf("as much user data as there may be: %v", err)
	}
}

// FuzzPortMetadata: what is accepted is within its limits.
func FuzzPortMetadata(f *testing.F) {
	f.Add([]byte(`{"hostname":"web","ssh_keys":["` + publicKey + `"],"user_data":"AA==","password_hash":"$6$a$b"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var body map[string]any
		if json.Unmarshal(text, &body) != nil {
			return
		}
		change, err := neutron.ParsePortMetadata(body)
		if err != nil {
			return
		}
		var m topology.InstanceSecrets
		change(&m)
		for _, s := range append(m.SSHKeys, m.Hostname, m.PasswordHash) {
			if strings.ContainsAny(s, "\n\r\x00") {
				t.Errorf("%q has a line break", s)
			}
		}
		if len(m.UserData) > neutron.MaxUserData || len(m.SSHKeys) > 20 {
			t.Errorf("%d bytes, %d keys", len(m.UserData), len(m.SSHKeys))
		}
	})
}

package history

import (
	"strings"
	"testing"

	"heddle/internal/audit"
	"heddle/internal/store/schema"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, value string
		want       string
		kept       bool
	}{
		{schema.Ports.Key("1"), `{"name":"a"}`, `{"name":"a"}`, true},
		{schema.Ports.Key("1"), "", "", true},
		{schema.BGPPeers.Key("1"), `{"name":"tor", "password":"hunter2"}`, `{"name":"tor","password":"***"}`, true},
		{schema.PortMetadatas.Key("1"), `{"sealed":"hunter2"}`, "", false},
		{schema.XenPrefix + "objects/VM/1", `{"fields":{"other_config":{"password":"hunter2"}}}`, `{"fields":{"other_config":{"password":"***"}}}`, true},
		{audit.Prefix + "req-1", `{}`, `{}`, true},
		{audit.Prefix + "req-1", "", "", false},
		{schema.StatePrefix + "h1/alive", `{}`, `{}`, true},
		{schema.StatePrefix + "h1/ports/p1", "", "", true},
		{schema.StatePrefix + "h1/macs/n/0/m", `{}`, `{}`, false},
		{schema.CalicoPrefix + "felix/v1/host/h1/status", `{}`, "", false},
		{schema.CalicoPrefix + "v1/policy/tier/default/policy/a", `{}`, `{}`, true},
	} {
		var value []byte
		if c.value != "" {
			value = []byte(c.value)
		}
		got, kept := keep(c.key, value)
		if kept != c.kept || kept && string(got) != c.want {
			t.Errorf("%s %s: %s, %v; want %s, %v", c.key, c.value, got, kept, c.want, c.kept)
		}
	}
	for _, prefix := range journalled() {
		for _, secret := range []string{schema.IdentityPrefix, schema.SecretsPrefix, schema.JoinPrefix, schema.XenPrefix + "accounts/"} {
			if strings.HasPrefix(secret, prefix) || strings.HasPrefix(prefix, secret) {
				t.Errorf("%s is recorded by %s", secret, prefix)
			}
		}
	}
}

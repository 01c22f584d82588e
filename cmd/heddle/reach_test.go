package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestReach: heddle reach names the ports by which machines then connect, and no other.
func TestReach(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	listenTCP(t, web, 80)
	listenTCP(t, web, 81)
	s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	reach := func(args ...string) []string { return append([]string{"reach", "--data", s.data}, args...) }
	text, code := output(t, s.ctl, reach("--to", "web")...)
	if has(t, text, "services to web 10.0.0.11 on "+s.host.name+":", "  none\n"); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	succeed(t, s.ctl, "sg", "rule", "add", "closed", "--direction", "ingress", "--protocol", "tcp", "--port", "80", "--remote", "10.0.0.0/24", "--data", s.data)
	has(t, succeed(t, s.ctl, reach("--to", "web")...), "  IPv4 tcp 80\n    from client 10.0.0.12\n", "  none from 0 other ports\n")
	has(t, succeed(t, s.ctl, reach("--from", "client", "--to", "web")...), "services from client 10.0.0.12", "  IPv4 tcp 80\n")
	for address, want := range map[string]bool{"10.0.0.11:80": true, "10.0.0.11:81": false} {
		if connects(client, address) != want {
			t.Errorf("%s: connects %t", address, !want)
		}
	}
	text, code = output(t, s.ctl, reach("--to", "web", "--port", "81")...)
	if has(t, text, "tcp 81 to web "); code != 1 || strings.Contains(text, "from client") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	has(t, succeed(t, s.ctl, reach("--by", "group", "--port", "80")...), "tcp 80, pairs of machines that reach each other:\n", "  default → closed: 1 of 1\n")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	assert := func(text string) []string {
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return reach("--assert", rules)
	}
	has(t, succeed(t, s.ctl, assert("- never: {from: outside, to: {group: closed}}\n- never: {from: {port: client}, to: {group: closed}}\n  but: [{proto: tcp, port: 80}]\n")...),
		rules+":1: holds, with 1 pair\n", rules+":2: holds, with 1 pair\n")
	text, code = output(t, s.ctl, assert("- always: {from: {port: client}, to: {port: web}}\n  by: [{proto: tcp, port: 81}]\n")...)
	if has(t, text, rules+":1: broken by 1 of 1 pair\n  client 10.0.0.12 → web 10.0.0.11: tcp 81\ndenied: tcp 81 from client"); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	refuse(t, s.ctl, 1, rules+":2: ", assert("- never:\n    from: {group: missing}\n    to: outside\n")...)
	refuse(t, s.ctl, 2, rules+": ", assert("- nobody: {from: outside}\n")...)
	refuse(t, s.ctl, 1, "by: ", reach("--by", "colour", "--port", "80")...)
	refuse(t, s.ctl, 1, "port: all pairs are counted for one service", reach("--by", "group")...)
	refuse(t, s.ctl, 1, `to: no port has the id or name "missing"`, reach("--to", "missing")...)
	refuse(t, s.ctl, 2, "--port 0: want 1 to 65535", reach("--to", "web", "--port", "0")...)
	reachAtRevisions(t, s, reach)
	refuse(t, s.ctl, 2, "want at least one of --to, --from, --by", reach()...)
}

// reachAtRevisions asks for a past in which the group had its rule, after that is gone.
func reachAtRevisions(t *testing.T, s *plugSite, reach func(...string) []string) {
	t.Helper()
	var before struct{ Revision int64 }
	if err := json.Unmarshal([]byte(succeed(t, s.ctl, reach("--to", "web", "-o", "json")...)), &before); err != nil {
		t.Fatal(err)
	}
	succeed(t, s.ctl, "port", "set", "web", "--sg", "default", "--data", s.data)
	at := strconv.FormatInt(before.Revision, 10)
	has(t, succeed(t, s.ctl, reach("--to", "web")...), "  IPv4 all\n    from client 10.0.0.12\n")
	has(t, succeed(t, s.ctl, reach("--to", "web", "--at", at)...), "as of revision ", "  IPv4 tcp 80\n    from client 10.0.0.12\n")
	text, code := output(t, s.ctl, "why", "--data", s.data, "--from", "client", "--to", "web:81", "--at", at)
	if has(t, text, "as of revision ", "denied: tcp 81 "); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	refuse(t, s.ctl, 1, "at 2020-01-01T00:00:00Z: not recorded before ", reach("--to", "web", "--at", "2020-01-01T00:00:00Z")...)
	refuse(t, s.ctl, 1, "at 99999: the store is only at revision 1.", reach("--to", "web", "--at", "99999")...)
	refuse(t, s.ctl, 2, "--at: \"yesterday\"", reach("--to", "web", "--at", "yesterday")...)
	refuse(t, s.ctl, 1, "real packets are those of the present", "why", "--data", s.data, "--from", "client", "--to", "web:80", "--at", at, "--live")
}

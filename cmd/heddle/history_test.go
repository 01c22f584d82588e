package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"heddle/internal/api/operator"
)

// TestHistory: heddle history says who changed what by which call, field by field and without
// secrets, also after a restart; what was written by another way is a direct write.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := start(t, s.ctl, "serve", "--data", s.data)
	api := login(t, s.ctl, "127.0.0.1", s.data)
	run := func(args ...string) string {
		t.Helper()
		return succeed(t, s.ctl, append(args, "--data", s.data)...)
	}
	run("net", "create", "blue")
	run("subnet", "create", "blue4", "--network", "blue", "--range", "10.0.0.0/24")
	run("sg", "create", "web")
	run("port", "create", "vm1", "--network", "blue")
	run("sg", "rule", "add", "web", "--direction", "ingress", "--protocol", "tcp", "--port", "443")
	run("port", "set", "vm1", "--sg", "web")
	api.mustCreate(t, "bgp_peer", map[string]any{"name": "tor", "peer_ip": "192.0.2.1", "remote_as": 65000, "auth_type": "md5", "password": "hunter2"})

	check := func() {
		t.Helper()
		group := run("history", "web")
		has(t, group, "  admin: create security-groups\n    created security group web (", "  admin: create security-group-rules\n    changed security group web (",
			": direction=ingress ethertype=IPv4 port_range_max=443 port_range_min=443 protocol=tcp\n",
			"  admin: update ports vm1 (", "        - security_groups[]: default (", "        + security_groups[]: web (", "the journal begins at ")
		hasNot(t, group, "created port", "created network", "created subnet")
		all := run("history", "--by", "admin", "--since", "1h", "--limit", "100")
		has(t, all, "created network blue (", "created subnet blue4 (", "created port vm1 (", "created bgp peer tor (", "        + password: ***\n")
		hasNot(t, all, "hunter2", "topology")
		has(t, run("history", "--by", "someone"), "no such change since the journal begins, at ")
		revision := regexp.MustCompile(`(?m)^(\d+)  .*: create bgp-peers$`).FindStringSubmatch(all)
		if revision == nil {
			t.Fatalf("no change made the peer:\n%s", all)
		}
		one := run("history", "show", revision[1])
		has(t, one, "created bgp peer tor (", "call        neutron POST /v2.0/bgp-peers\n", "request     req-", "user        admin (", "client      127.0.0.1\n", `"password":"***"`)
		hasNot(t, one, "hunter2")
	}
	check()
	server.stop(t)
	start(t, s.ctl, "serve", "--data", s.data)
	check()

	profile := filepath.Join(t.TempDir(), "profile.yaml")
	if err := os.WriteFile(profile, []byte("kind: Profile\nmetadata: {profile: direct}\nspec: {rules: {inbound_rules: [{protocol: icmp}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("calico", "apply", "-f", profile)
	has(t, run("history", "--limit", "1"), "  direct write\n    created calico key v1/policy/profile/direct/rules\n", "+ inbound_rules[]: action=allow protocol=icmp\n", "more: --before ")
	run("port", "set", "vm1", "--sg", "default")
	has(t, run("history", "web", "--limit", "1"), "        - security_groups[]: web (", "        + security_groups[]: default (")
	run("port", "delete", "vm1")
	var h operator.History
	if err := json.Unmarshal([]byte(run("history", "vm1", "-o", "json")), &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Changes) != 4 || h.Changes[0].Author.Summary != "delete ports "+h.Changes[0].Objects[0].ID || h.Changes[0].Objects[0].Change != "deleted" || len(h.Gaps) > 0 {
		t.Errorf("the history of the port is %+v", h)
	}
	next := run("history", "vm1", "--limit", "2")
	_, place, _ := strings.Cut(next, "more: --before ")
	has(t, run("history", "vm1", "--limit", "2", "--before", strings.TrimSpace(place)), "created port vm1 (")
	refuse(t, s.ctl, 2, "--since: \"yesterday\": want a time such as 2h, 3d, ", "history", "--since", "yesterday", "--data", s.data)
	refuse(t, s.ctl, 1, "revision 1: this server has no change of it", "history", "show", "1", "--data", s.data)
	refuse(t, s.ctl, 1, `"x" is no revision: give one as heddle history prints it`, "history", "--before", "x", "--data", s.data)
}

// hasNot fails the test if a text has one of the words.
func hasNot(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("%q is in:\n%s", w, text)
		}
	}
}

// TestHistoryOfTenants: a member sees the changes of the own project, by whom of it, and nothing of
// others: not by what a query asks for, not by a revision, not in a call that is about both.
func TestHistoryOfTenants(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	start(t, s.ctl, "serve", "--data", s.data)
	api := login(t, s.ctl, "127.0.0.1", s.data)
	red, blue := api.addMember(t, "127.0.0.1", "red"), api.addMember(t, "127.0.0.1", "blue")
	own := red.mustCreate(t, "network", map[string]any{"name": "red-net"})
	other := blue.mustCreate(t, "network", map[string]any{"name": "blue-secret", "description": "blue-plans"})
	projects := map[string]string{}
	for name, network := range map[string]string{"red": own.ID, "blue": other.ID} {
		var n struct {
			Network struct {
				ProjectID string `json:"project_id"`
			}
		}
		if err := api.call(t.Context(), http.MethodGet, "/v2.0/networks/"+network, nil, &n); err != nil {
			t.Fatal(err)
		}
		projects[name] = n.Network.ProjectID
	}
	if err := api.call(t.Context(), http.MethodPost, "/v2.0/networks", map[string]any{"networks": []map[string]any{
		{"name": "red-bulk", "project_id": projects["red"]}, {"name": "blue-bulk", "project_id": projects["blue"]},
	}}, nil); err != nil {
		t.Fatal(err)
	}
	port := red.mustCreate(t, "port", map[string]any{"name": "red-port", "network_id": own.ID})
	if err := api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID, map[string]any{"port": map[string]any{"binding:host_id": "hidden-host"}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID, map[string]any{"port": map[string]any{"description": "moved", "binding:profile": map[string]any{"hidden": "profile"}}}, nil); err != nil {
		t.Fatal(err)
	}
	ask := func(c *client, path string) (string, *operator.History, error) {
		t.Helper()
		asking, raw, h := *c, json.RawMessage{}, operator.History{}
		asking.base = "http://127.0.0.1:9698/v1"
		err := asking.call(t.Context(), http.MethodGet, path, nil, &raw)
		if err == nil {
			err = json.Unmarshal(raw, &h)
		}
		return string(raw), &h, err
	}
	text, seen, err := ask(red, "/history")
	if err != nil {
		t.Fatal(err)
	}
	has(t, text, "red-net", "red-bulk", "red-port", `"user":"an operator"`, `"user":"red"`, `"summary":"create networks"`, `"after":"moved"`)
	hasNot(t, text, "blue", other.ID, projects["blue"], "hidden", `"admin"`, `"body"`, "topology", "127.0.0.1")
	for _, query := range []string{"object=blue-secret", "object=blue-plans", "object=" + other.ID, "object=" + projects["blue"], "object=hidden-host", "by=blue", "by=admin"} {
		if text, h, err := ask(red, "/history?"+query); err != nil || len(h.Changes) > 0 {
			t.Errorf("%s: %v %s", query, err, text)
		}
	}
	if _, h, err := ask(red, "/history?by=red&object=red-port"); err != nil || len(h.Changes) != 1 {
		t.Errorf("a member's own change: %+v, %v", h, err)
	}
	_, all, err := ask(api, "/history?limit=1000")
	if err != nil {
		t.Fatal(err)
	}
	mine := map[int64]bool{}
	for _, r := range seen.Changes {
		mine[r.Revision] = true
	}
	_, _, missing := ask(red, "/revisions/999999")
	for _, r := range all.Changes {
		revision := strconv.FormatInt(r.Revision, 10)
		text, _, err := ask(red, "/revisions/"+revision)
		switch {
		case mine[r.Revision] && err != nil:
			t.Errorf("revision %s is the project's: %v", revision, err)
		case !mine[r.Revision] && (err == nil || err.Error() != strings.ReplaceAll(missing.Error(), "999999", revision)):
			t.Errorf("revision %s is of others: %v %s", revision, err, text)
		}
		hasNot(t, text, "blue", other.ID, "hidden", `"admin"`, `"body"`)
	}
	if len(mine) == 0 || len(mine) == len(all.Changes) {
		t.Errorf("%d of %d changes are the project's", len(mine), len(all.Changes))
	}
	if _, _, err := ask(red, "/history?effect=true"); err == nil || !strings.Contains(err.Error(), "wants the role admin") {
		t.Errorf("the effect of changes, of others', too: %v", err)
	}
}

// TestHistoryOfIdentity: changes of users, projects, roles and application credentials are in the
// history, by whom they were made, and without secrets. Log-ins are not.
func TestHistoryOfIdentity(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	start(t, s.ctl, "serve", "--data", s.data)
	api := login(t, s.ctl, "127.0.0.1", s.data)
	member := api.addMember(t, "127.0.0.1", "alice")
	type m = map[string]any
	call := func(c *client, method, path string, body, out any) {
		t.Helper()
		asking := *c
		asking.base = "http://127.0.0.1:5000/v3"
		if err := asking.call(t.Context(), method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	var found struct{ Users []object }
	call(api, http.MethodGet, "/users?name=alice", nil, &found)
	user := "/users/" + found.Users[0].ID
	call(member, http.MethodPost, user+"/application_credentials", m{"application_credential": m{"name": "robot", "secret": "hunter2"}}, nil)
	call(member, http.MethodPost, user+"/password", m{"user": m{"original_password": "of alice", "password": "hunter3"}}, nil)
	call(api, http.MethodPatch, user, m{"user": m{"password": "hunter4", "enabled": false}}, nil)
	call(api, http.MethodDelete, user, nil, nil)

	text := succeed(t, s.ctl, "history", "--limit", "100", "--data", s.data)
	id := found.Users[0].ID
	has(t, text, "  admin: create users\n    created user alice\n", "        + password: ***\n", "  admin: create projects\n    created project alice\n", "    created role assignment projects ",
		"  alice: create users "+id+" application_credentials\n    created application credential ", "  alice: create users "+id+" password\n    changed user "+id+"\n        + original_password: ***\n",
		"  admin: update users "+id+"\n    changed user "+id+"\n        + enabled: false\n", "  admin: delete users "+id+"\n    deleted user "+id+"\n")
	hasNot(t, text, "hunter", "of alice", "auth")
	has(t, succeed(t, s.ctl, "history", "alice", "--data", s.data), "created user alice\n")
	hasNot(t, succeed(t, s.ctl, "history", "--limit", "100", "-o", "json", "--data", s.data), "hunter", "of alice")
}

// TestBackupOfJournal: a restore brings the journal back. What came before is of an epoch of its
// own, and a backup without a journal says so.
func TestBackupOfJournal(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := start(t, s.ctl, "serve", "--data", s.data)
	succeed(t, s.ctl, "net", "create", "before", "--data", s.data)
	succeed(t, s.ctl, "history", "before", "--data", s.data) // the journal has it now
	file := filepath.Join(t.TempDir(), "today.db")
	has(t, succeed(t, s.ctl, "backup", file, "--journal", "--data", s.data), "bytes in "+file+".journal: 1 segments of the journal\n", "restore with: heddle restore "+file+" --data NEW-DIRECTORY --journal\n")
	succeed(t, s.ctl, "net", "create", "lost", "--data", s.data)
	server.stop(t)

	refuse(t, s.ctl, 1, "journal is there already: move it away", "restore", file, "--journal", "--data", s.data)
	data := filepath.Join(t.TempDir(), "data")
	refuse(t, s.ctl, 1, "restore without --journal", "restore", file+".journal", "--journal", "--data", data)
	succeed(t, s.ctl, "restore", file, "--journal", "--data", data)
	start(t, s.ctl, "serve", "--data", data, "--admin-password", "restored")
	succeed(t, s.ctl, "net", "create", "after", "--data", data)
	text := succeed(t, s.ctl, "history", "--data", data, "--limit", "100")
	has(t, text, "    created network after (", "\nthe store was restored or replaced after ", "    created network before (")
	hasNot(t, text, "network lost")
	if !regexp.MustCompile(`(?m)^1\.\d+  .*: create networks$`).MatchString(text) {
		t.Errorf("no change is of the first epoch:\n%s", text)
	}
}

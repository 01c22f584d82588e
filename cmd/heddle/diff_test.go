package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"heddle/internal/api/operator"
)

// TestDiff holds what is said of changes between two machines to what they do, and checks that
// asking has done nothing.
func TestDiff(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	listenTCP(t, web, 80)
	closed := s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)

	effect := succeed(t, s.ctl, "history", "web", "--effect", "--limit", "1", "--data", s.data)
	has(t, effect, "        + security_groups[]: closed ("+closed.ID+")\n    lost:\n        IPv4 all\n", "            from client 10.0.0.12\n            to   web 10.0.0.11\n", "more: --before ")
	hasNot(t, effect, "gained", "not compared")
	has(t, succeed(t, s.ctl, "history", "closed", "--effect", "--data", s.data), "created security group closed ("+closed.ID+")\n", "    connections: as before\n")

	file := filepath.Join(t.TempDir(), "change.yaml")
	diff := func(change string, flags ...string) []string {
		if err := os.WriteFile(file, []byte(change), 0o600); err != nil {
			t.Fatal(err)
		}
		return append([]string{"diff", "--data", s.data, "--change", file}, flags...)
	}
	open := `steps:
- op: create
  type: security_group_rule
  data: {security_group_id: closed, direction: ingress, protocol: tcp, port_range_min: 80, port_range_max: 80}
- op: delete
  type: network
  data: {id: 00000000-0000-4000-8000-000000000009}
`
	text := succeed(t, s.ctl, diff(open)...)
	has(t, text, file+":5: step 2 refused: Network 00000000-0000-4000-8000-000000000009 could not be found.\n",
		"objects:\n    changed security group closed ("+closed.ID+")\n        + security_group_rules[", "lost:\n    none\n", "gained:\n    IPv4 tcp 80\n        from client 10.0.0.12\n        to   web 10.0.0.11\n        such as tcp 80 from client 10.0.0.12 to web 10.0.0.11\n")
	why := []string{"why", "--data", s.data, "--from", "client", "--to", "web:80"}
	if text, code := output(t, s.ctl, why...); code != 1 {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	has(t, succeed(t, s.ctl, append(why, "--with", file)...), "after the change in "+file+", which is not made:\n"+file+":5: step 2 refused: ", "allowed: tcp 80 from client ", "no agent answered")
	has(t, succeed(t, s.ctl, "reach", "--data", s.data, "--to", "web", "--with", file), ":5: step 2 refused: ", "  IPv4 tcp 80\n    from client 10.0.0.12\n")
	refuse(t, s.ctl, 1, "with: no host has the change", append(why, "--with", file, "--live")...)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("- never: {from: {port: client}, to: {port: web}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, s.ctl, "reach", "--data", s.data, "--assert", rules)
	if text, code := output(t, s.ctl, "reach", "--data", s.data, "--assert", rules, "--with", file); code != 1 {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if connects(client, "10.0.0.11:80") {
		t.Fatal("a question has opened a port")
	}
	if text, code := output(t, s.ctl, diff(open, "--require")...); code != 1 {
		t.Errorf("exit code %d with a step refused:\n%s", code, text)
	}
	succeed(t, s.ctl, "sg", "rule", "add", "closed", "--direction", "ingress", "--protocol", "tcp", "--port", "80", "--data", s.data)
	withinLease(t, "the change to do what was said", func() bool { return connects(client, "10.0.0.11:80") }) // once the agent has it
	has(t, succeed(t, s.ctl, diff(open)...), "gained:\n    none\n", "step 1 refused: Security group rule already exists")
	narrow := `{steps: [{op: create, type: security_group_rule, data: {security_group_id: ` + closed.ID + `, direction: ingress, protocol: tcp, port_range_min: 80, port_range_max: 80, remote_ip_prefix: 10.0.0.0/24}}]}`
	text = succeed(t, s.ctl, diff(narrow)...)
	hasNot(t, text, "cut: ")
	has(t, text, "warning: rule ingress IPv4 tcp 80 from 10.0.0.0/24 has no effect: ")

	var held net.Conn
	if err := client.Do(func() (err error) {
		held, err = net.DialTimeout("tcp4", "10.0.0.11:80", timeout)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	down := `{steps: [{op: update, type: network, data: {id: blue, admin_state_up: false}}]}`
	text, code := output(t, s.ctl, diff(down, "--require")...)
	if has(t, text, "lost:\n    IPv4 ", "        from client 10.0.0.12\n", "            the network is administratively down\n"); code != 1 {
		t.Errorf("exit code %d with connections lost:\n%s", code, text)
	}
	var a operator.DiffAnswer
	if err := json.Unmarshal([]byte(succeed(t, s.ctl, diff(down, "-o", "json")...)), &a); err != nil {
		t.Fatal(err)
	}
	isHeld := func(c operator.CutConnection) bool {
		return c.Host == s.host.name && c.Protocol == 6 && c.Source.String() == held.LocalAddr().String() && c.Destination.String() == "10.0.0.11:80"
	}
	if a.Cut == nil || a.Cut.Count == 0 || !slices.ContainsFunc(a.Cut.Examples, isHeld) || len(a.Cut.Missing) > 0 {
		t.Errorf("the connection from %s is not among those that are cut: %+v", held.LocalAddr(), a.Cut)
	}
	has(t, text, " of the last minute\n    tcp 10.0.0.12:", " → 10.0.0.11:80, by host "+s.host.name+"\n")
	if len(a.Lost) == 0 || a.Lost[0].Example.Why == nil || len(a.Lost[0].Example.Why.There.Trace.Walk) == 0 {
		t.Errorf("the answer has no trace: %+v", a)
	}
	refuse(t, s.ctl, 2, "step 1: type: \"cloud\" is no object that a change can create", diff(`{steps: [{op: create, type: cloud, data: {}}]}`)...)
	for range 2 {
		s.api.mustCreate(t, "security_group", map[string]any{"name": "twice"})
	}
	refuse(t, s.ctl, 2, `step 1: data.security_groups[1]: 2 are called "twice": give the id of one`, diff(`{steps: [{op: update, type: port, data: {id: web, security_groups: [closed, twice]}}]}`)...)
	refuse(t, s.ctl, 2, file+": steps: want a list of them", diff(`{}`)...)
	refuse(t, s.ctl, 2, "--from: ", "diff", "--from", "yesterday", "--data", s.data)
	diffTimes(t, s)
}

// diffTimes compares two revisions, between which the group got its rule.
func diffTimes(t *testing.T, s *plugSite) {
	t.Helper()
	var h operator.History
	if err := json.Unmarshal([]byte(succeed(t, s.ctl, "history", "closed", "--limit", "1", "-o", "json", "--data", s.data)), &h); err != nil {
		t.Fatal(err)
	}
	opened := h.Changes[0].Revision
	at := func(revision int64) string {
		raw, _ := json.Marshal(revision) // of a number
		return string(raw)
	}
	text := succeed(t, s.ctl, "diff", "--from", at(opened-1), "--to", at(opened), "--data", s.data)
	has(t, text, ", to revision "+at(opened)+", ", "    changed security group closed (", "gained:\n    IPv4 tcp 80\n        from client 10.0.0.12\n")
	has(t, succeed(t, s.ctl, "diff", "--from", at(opened), "--to", at(opened-1), "--data", s.data), "lost:\n    IPv4 tcp 80\n")
	has(t, succeed(t, s.ctl, "diff", "--from", at(opened-1), "--data", s.data), "gained:\n    IPv4 tcp 80\n")
}

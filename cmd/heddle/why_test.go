package main

import (
	"strings"
	"testing"
)

// TestWhy: heddle why says what packets then do, before and after the rule that it names is made by
// the command that it prints. The host's agent answers.
func TestWhy(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	for _, ns := range []string{"web", "client"} {
		at := map[string]string{"web": web.Name, "client": client.Name}[ns]
		s.plug(t, ns, "--netns", at)
	}
	listenTCP(t, web, 80)
	closed := s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	why := []string{"why", "--data", s.data, "--from", "client", "--to", "web:80"}
	has(t, succeed(t, s.ctl, why...), "allowed: tcp 80 from client 10.0.0.12 on "+s.host.name+" to web 10.0.0.11 on "+s.host.name+"\n", "there passes: arrives at port ", "back  passes: ")
	if !connects(client, "10.0.0.11:80") {
		t.Error("the default group's members do not reach each other")
	}

	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	text, code := output(t, s.ctl, why...)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	has(t, text, "denied: tcp 80 ", "there denied (no-rule): ", "nearest in group "+closed.ID+" (security group closed): it has no rule for ingress")
	if strings.Contains(text, "no agent answered") {
		t.Errorf("the agent was not asked:\n%s", text)
	}
	if connects(client, "10.0.0.11:80") {
		t.Error("a group without rules lets packets in")
	}
	_, command, found := strings.Cut(text, "\n  heddle ")
	if !found {
		t.Fatalf("no command in\n%s", text)
	}
	succeed(t, s.ctl, append(strings.Fields(command), "--data", s.data)...)
	has(t, succeed(t, s.ctl, why...), "allowed: ")
	if !connects(client, "10.0.0.11:80") {
		t.Error("the rule that heddle why named does not let packets in")
	}
	has(t, succeed(t, s.ctl, "why", "--data", s.data, "--from", "client", "--to", "web:80", "--steps"), "(chain of security group closed)", "accepted by chain")
	refuse(t, s.ctl, 1, `no port has the id or name "missing"`, "why", "--data", s.data, "--from", "client", "--to", "missing")
	refuse(t, s.ctl, 2, "--to: port 0: want 1 to 65535", "why", "--data", s.data, "--from", "client", "--to", "web:0")
}

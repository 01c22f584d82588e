package main

import (
	"net"
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
	has(t, succeed(t, s.ctl, why...), "allowed: tcp 80 from client 10.0.0.12 on "+s.host.name+" to web 10.0.0.11 on "+s.host.name+"\n", "there passes: arrives at port ", "      by security group rule ", " (default)\n", "back  passes: ")
	if !connects(client, "10.0.0.11:80") {
		t.Error("the default group's members do not reach each other")
	}

	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	text, code := output(t, s.ctl, why...)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	has(t, text, "denied: tcp 80 ", "there denied (no-rule): no rule of the security groups of port ", " (web) lets it in\n", "nearest in group "+closed.ID+" (security group closed): it has no rule for ingress\n")
	if strings.Contains(text, "no agent answered") {
		t.Errorf("the agent was not asked:\n%s", text)
	}
	if connects(client, "10.0.0.11:80") {
		t.Error("a group without rules lets packets in")
	}
	succeed(t, s.ctl, "port", "set", "web", "--description", "of no account", "--data", s.data)
	since, _ := output(t, s.ctl, append(why, "--since")...)
	has(t, since, "\ndenied since this change; before it was allowed\n", "  admin: update ports web (", "        - security_groups[]: default (", "        + security_groups[]: closed ("+closed.ID+")\n")
	hasNot(t, since, "of no account")
	since, _ = output(t, s.ctl, "why", "--data", s.data, "--from", "client", "--to", "198.51.100.7", "--since")
	has(t, since, "\ndenied since this change; before it was without an answer: port ", " is not bound to a host: ", "+ heddle:bound_host_id: ")
	refuse(t, s.ctl, 1, "since: it is about a new connection at present", append(why, "--since", "--at", "1h")...)
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

// TestWhyReply: about the answer within a connection that is there, the agent says what it knows:
// the connection, the translation of its source, and whose port that is. What it says is what
// packets then do.
func TestWhyReply(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	sh := shell{s.ctl, s.data}
	sh.run(t, "net create world --external --type vxlan")
	sh.run(t, "subnet create world4 --network world --range 203.0.113.0/24")
	sh.run(t, "router create r1 --external world")
	sh.run(t, "net create inside")
	sh.run(t, "subnet create inside4 --network inside --range 10.1.0.0/24")
	sh.run(t, "router add-subnet r1 inside4")
	sh.run(t, "port create near --network inside --ip 10.1.0.12")
	sh.run(t, "port create far --network world --ip 203.0.113.60 --port-security=false --sg none")
	near, far := s.lab.MustNamespace(t, "near"), s.lab.MustNamespace(t, "far")
	s.plug(t, "near", "--netns", near.Name)
	s.plug(t, "far", "--netns", far.Name)
	listenTCP(t, far, 80)
	reply := "why --from near:40122 --to far:80 --reply --steps"
	text, code := output(t, s.ctl, append(strings.Fields(reply), "--data", s.data)...)
	if code != 1 {
		t.Errorf("exit code %d without a connection, want 1", code)
	}
	has(t, text, "one-way: tcp 80 from near 10.1.0.12 on "+s.host.name+" to far 203.0.113.60 on "+s.host.name+"\n", "there passes: ", "back  denied (")

	var open net.Conn
	if err := near.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 1, 0, 12), Port: 40122}}
		open, err = d.DialContext(t.Context(), "tcp4", "203.0.113.60:80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	text = sh.run(t, reply)
	has(t, text, "allowed: ", "back  passes: ", "connection: reply of a known one", "NAT: source 10.1.0.12:40122 becomes ", " [a port of host ", ", used ", "(host "+s.host.name+")")
	if strings.Contains(text, "[new") || strings.Contains(text, "no agent answered") {
		t.Errorf("the agent does not know the connection:\n%s", text)
	}
	has(t, sh.run(t, "why --from near:40123 --to far:80 --steps"), "allowed: ", "[new, a port of host ", "back  passes: ")
	refuse(t, s.ctl, 1, "sourcePort: icmp has no ports", "why", "--data", s.data, "--from", "near:1", "--to", "far")
}

// TestWhyLive: the agent explains the next real first packet, or the next one that is dropped, with
// the port that its client has chosen.
func TestWhyLive(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	listenTCP(t, web, 80)
	// The command waits for packets: connections are tried until the command has ended.
	wait := func(to string, args ...string) (text string, code int) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			text, code = output(t, s.ctl, append([]string{"why", "--data", s.data, "--from", "client", "--to", to}, args...)...)
		}()
		for {
			select {
			case <-done:
				return text, code
			default:
				connects(client, "10.0.0.11:80")
			}
		}
	}
	text, code := wait("web:80", "--live", "--steps")
	if code != 0 || strings.Contains(text, "TCP 50000 → 80") {
		t.Errorf("exit code %d, or a packet that no client has sent:\n%s", code, text)
	}
	has(t, text, "allowed: ", "there passes: ", " → 80", "back  passes: ")

	s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	text, code = wait("web:80", "--dropped")
	if code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, text)
	}
	has(t, text, "denied: ", "there denied (no-rule): ", "nearest in group ", "\n  heddle sg rule add ")
	refuse(t, s.ctl, 1, "packets are waited for where a port's machine sends them", "why", "--data", s.data, "--from", "198.51.100.7", "--to", "10.0.0.11:80", "--live")
}

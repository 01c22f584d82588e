package main

import (
	"net"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// datagrams sends datagrams by one socket.
func datagrams(t *testing.T, from *netlab.Namespace, to string, times int) {
	t.Helper()
	err := from.Do(func() error {
		c, err := net.Dial("udp4", to)
		if err != nil {
			return err
		}
		defer c.Close()
		for range times {
			if _, err := c.Write([]byte("heddle")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrops: heddle drops has the packets that a security group refused, to the last one, and names
// the rules that let none pass.
func TestDrops(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	sh := shell{s.ctl, s.data}
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	sh.run(t, "sg rule add closed --direction ingress --protocol tcp --port 80")
	sh.run(t, "sg rule add closed --direction ingress --protocol tcp --port 81")
	sh.run(t, "sg rule add closed --direction ingress --ethertype IPv6") // what machines' kernels send by themselves
	sh.run(t, "sg create idle")
	sh.run(t, "port set web --sg closed")
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	listenTCP(t, web, 80)
	datagrams(t, client, "10.0.0.11:53", 40)
	until(t, "40 dropped packets", "\n40 ", func() string { return sh.run(t, "drops web --code no-rule") })
	has(t, sh.run(t, "drops web --code no-rule"), "\n40       web   ingress    no-rule  ", "  "+s.host.name+"\n", "counted by all hosts since ")
	if !connects(client, "10.0.0.11:80") {
		t.Fatal("a rule lets no connection pass")
	}
	if text := sh.run(t, "drops --code firewall"); strings.Contains(text, "web") {
		t.Errorf("drops with another code:\n%s", text)
	}
	has(t, sh.run(t, "drops --host "+s.host.name+" -o json"), `"code": "no-rule"`, `"packets": 40`)

	unused := sh.run(t, "drops --unused")
	has(t, unused, "ingress IPv4 tcp 81", "asked, never matched", "never asked")
	if strings.Contains(unused, "ingress IPv4 tcp 80 ") {
		t.Errorf("a rule that has let a connection pass is unused:\n%s", unused)
	}
	refuse(t, s.ctl, 1, `port: no port has the id or name "missing": heddle port list`, "drops", "missing", "--data", s.data)
	refuse(t, s.ctl, 1, `code "nope": want one of docs/codes.md`, "drops", "--code", "nope", "--data", s.data)
	refuse(t, s.ctl, 2, "--unused is about all rules", "drops", "web", "--unused", "--data", s.data)
}

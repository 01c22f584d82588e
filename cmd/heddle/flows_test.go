package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/topology/flow"
)

// TestFlows: heddle flows has what was let pass and what was dropped, of the past and as it comes,
// as a filter selects it; nothing is left in the store when the client leaves.
func TestFlows(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	sh := shell{s.ctl, s.data}
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	sh.run(t, "sg rule add closed --direction ingress --protocol tcp --port 80")
	sh.run(t, "port set web --sg closed")
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	listenTCP(t, web, 80)
	if !connects(client, "10.0.0.11:80") {
		t.Fatal("a rule lets no connection pass")
	}
	datagrams(t, client, "10.0.0.11:53", 40)
	records := func(args string) (all []operator.Flow) {
		t.Helper()
		for line := range strings.Lines(sh.run(t, "flows -o json "+args)) {
			var r operator.Flow
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, r)
		}
		return all
	}
	until(t, "the dropped packets", "dropped 40", func() string {
		var packets uint64
		for _, r := range records("--port web --verdict drop --proto udp --service 53") {
			if r.Host != s.host.name || r.Code != flow.CodeNoRule || r.Peer != "10.0.0.11" || r.Source != "10.0.0.12" || r.Protocol != 17 || len(r.Rules) == 0 {
				t.Fatalf("not what the filter selects: %+v", r)
			}
			if r.From == nil || r.From.Name != "client" || r.From.Network.Name != "blue" || r.To == nil || r.To.Name != "web" || r.To.Groups[0].Name != "closed" {
				t.Fatalf("the ends have other names: %+v %+v", r.From, r.To)
			}
			if !r.First {
				packets += r.Packets
			}
		}
		return fmt.Sprintf("dropped %d", packets)
	})
	has(t, sh.run(t, "flows --verdict forward --service 80"), " forward tcp 10.0.0.12:", " → 10.0.0.11:80 1 flows ")
	if text := sh.run(t, "flows --peer 192.0.2.0/24"); text != "" {
		t.Errorf("flows of addresses that have none:\n%s", text)
	}

	follow := launch(t, s.ctl, "flows", "--follow", "--verdict", "drop", "--service", "99", "--data", s.data)
	until(t, "records as they come", " drop no-rule udp 10.0.0.12:", func() string {
		datagrams(t, client, "10.0.0.11:99", 1)
		datagrams(t, client, "10.0.0.11:98", 1)
		raw, err := os.ReadFile(follow.log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), ":98 ") {
			t.Fatalf("records that the filter does not select:\n%s", raw)
		}
		return string(raw)
	})
	follow.stop(t)
	until(t, "the subscription to end", "none", func() string {
		text := sh.run(t, "store tables")
		if !strings.Contains(text, "trace") {
			return "none"
		}
		return text
	})
	refuse(t, s.ctl, 1, `verdict "no": want forward, drop or error drop`, "flows", "--verdict", "no", "--data", s.data)
	refuse(t, s.ctl, 1, `peer "no": want an address or a prefix`, "flows", "--peer", "no", "--data", s.data)
	refuse(t, s.ctl, 1, `proto "no": want tcp, udp`, "flows", "--proto", "no", "--data", s.data)
}

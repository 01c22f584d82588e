package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/topology/flow"
)

// TestFlows: heddle flows has what was let pass and what was dropped, of the past and as it comes,
// as a filter selects it, also when the agent was killed meanwhile; nothing is left in the store
// when the client leaves.
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
	has(t, sh.run(t, "flows --verdict forward --service 80"), " forward tcp 10.0.0.12:", " → 10.0.0.11:80 1 flow ")
	if text := sh.run(t, "flows --peer 192.0.2.0/24"); text != "" {
		t.Errorf("flows of addresses that have none:\n%s", text)
	}

	has(t, sh.run(t, "flows --since 1h"), " has no records before ")
	events, leave := s.followFlows(t, "code=no-rule&service=97")
	until(t, "events", "data: {", func() string {
		datagrams(t, client, "10.0.0.11:97", 1)
		raw, err := os.ReadFile(events)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	})
	leave()

	follow := launch(t, s.ctl, "flows", "--follow", "--verdict", "drop", "--service", "99", "--data", s.data)
	until(t, "records as they come", " drop no-rule udp 10.0.0.12:", func() string {
		datagrams(t, client, "10.0.0.11:99", 1)
		datagrams(t, client, "10.0.0.11:98", 1)
		text := follow.text(t)
		if strings.Contains(text, ":98 ") {
			t.Fatalf("records that the filter does not select:\n%s", text)
		}
		return text
	})
	s.agent.kill()
	files := filepath.Join(t.TempDir(), "flows")
	s.agent = start(t, s.ctl, s.host.agent("--server-data", s.data, "--flow-log", files)...)
	before := len(follow.text(t))
	until(t, "records of the agent that came after the killed one", ":99 ", func() string {
		datagrams(t, client, "10.0.0.11:99", 1)
		return follow.text(t)[before:]
	})
	follow.stop(t)
	s.agent.kill()
	s.agent = start(t, s.ctl, s.host.agent("--server-data", s.data, "--flow-log", files)...)
	has(t, sh.run(t, "flows --since 10m --service 99"), " drop no-rule udp 10.0.0.12:", " first")
	if text := sh.run(t, "flows --since 2h --until 1h"); strings.Count(text, "\n") != 1 || !strings.Contains(text, " has no records before ") {
		t.Errorf("flows of a time without any:\n%s", text)
	}
	until(t, "the subscription to end", "none", func() string {
		text := sh.run(t, "store tables")
		if !strings.Contains(text, "trace") {
			return "none"
		}
		return text
	})
	refuse(t, s.ctl, 2, "--follow shows what is to come", "flows", "--follow", "--since", "2h", "--data", s.data)
	refuse(t, s.ctl, 2, `--until: "no": want a time such as`, "flows", "--until", "no", "--data", s.data)
	refuse(t, s.ctl, 1, `verdict "no": want forward, drop or error drop`, "flows", "--verdict", "no", "--data", s.data)
	refuse(t, s.ctl, 1, `peer "no": want an address or a prefix`, "flows", "--peer", "no", "--data", s.data)
	refuse(t, s.ctl, 1, `proto "no": want tcp, udp`, "flows", "--proto", "no", "--data", s.data)
}

// followFlows follows flow logs as events, which go to a file, until leave.
func (s *plugSite) followFlows(t *testing.T, query string) (name string, leave func()) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9698/v1/flows?follow=true&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", s.api.token)
	req.Header.Set("Accept", "text/event-stream")
	res, err := s.api.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("events: %s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	name = filepath.Join(t.TempDir(), "events")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(file, res.Body) })
	return name, func() {
		_ = res.Body.Close() // ends the copy
		copying.Wait()
		_ = file.Close()
	}
}

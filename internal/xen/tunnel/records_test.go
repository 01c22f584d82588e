package tunnel

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/ovsdb"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

// object is one of a pool that changes at random: refs and what refers to them come from a few.
func object(t *rapid.T) client.Event {
	pick := func(class string) string { return fmt.Sprint(class, rapid.IntRange(1, 3).Draw(t, class)) }
	e := client.Event{Class: rapid.SampledFrom(classes).Draw(t, "class"), Operation: client.Mod}
	e.Ref = pick(e.Class)
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		e.Operation = client.Del
		return e
	}
	e.Record = model.Record{"uuid": "uuid of " + e.Ref}
	switch e.Class {
	case "tunnel":
		e.Record["access_PIF"], e.Record["transport_PIF"], e.Record["protocol"] = pick("PIF"), pick("PIF"), "gre"
	case "PIF":
		e.Record["network"], e.Record["host"], e.Record["IP"], e.Record["MTU"] = pick("network"), pick("host"), pick("IP"), int64(1500)
		e.Record["currently_attached"] = rapid.Bool().Draw(t, "attached")
		e.Record["ip_configuration_mode"] = rapid.SampledFrom([]string{"None", "Static"}).Draw(t, "mode")
	case "host":
		e.Record["metrics"] = pick("host_metrics")
	case "host_metrics":
		e.Record["live"] = rapid.Bool().Draw(t, "live")
	case "network":
		e.Record["other_config"] = map[string]string{"xo:sdn-controller:preferred-center": pick("uuid of host")}
	}
	return e
}

// TestPoolOrder takes changes in in whatever order they come, and compares with reading everything
// at once. What differs was told to concern the network, or hosts.
func TestPoolOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPool()
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			before := known(p)
			networks, hosts := p.apply([]client.Event{object(t)})
			for network, after := range known(p) {
				if !reflect.DeepEqual(before[network], after) && !networks[network] && !hosts {
					t.Fatalf("%s was %+v and is %+v, and nobody was told", network, before[network], after)
				}
			}
		}
		fresh := newPool()
		fresh.apply(everything(p.objects))
		if got, want := known(p), known(fresh); !reflect.DeepEqual(got, want) {
			t.Fatalf("networks are\n%+v, read at once\n%+v", got, want)
		}
		if got, want := p.hosts(), fresh.hosts(); !reflect.DeepEqual(got, want) {
			t.Fatalf("hosts are %+v, read at once %+v", got, want)
		}
		for _, host := range []string{"uuid of host1", "uuid of host2"} {
			for _, network := range p.tunnelsOn(host) {
				if !p.tunnelled(network) {
					t.Fatalf("%s has a tunnel on %s, which has none", host, network)
				}
			}
		}
		p.apply(p.missing(nil))
		if len(known(p)) > 0 || len(p.onPIF) > 0 || len(p.home) > 0 || len(p.tunnels) > 0 {
			t.Fatalf("all is gone, and left is %+v", p)
		}
	})
}

// known returns a pool's networks.
func known(p *pool) map[string]any {
	all := map[string]any{}
	for network := range p.networks {
		n, refs := p.network(network)
		all[network] = []any{*n, refs}
	}
	return all
}

// TestPath follows a session from its beginning to its end, over another carrier, and with nobody
// listening.
func TestPath(t *testing.T) {
	t.Parallel()
	pair := star.PairOf("h1", "h2")
	hosts := map[string]*host{"h1": newHost("h1"), "h2": newHost("h2")}
	paths := newPaths(hosts)
	peers := map[string]string{"h1": "h2", "h2": "h1"}
	state := func(network, one, two string) {
		for uuid, bfd := range map[string]string{"h1": one, "h2": two} {
			h := hosts[uuid]
			snap := &ovs.Snapshot{}
			if bfd != "none" {
				leg := map[string]string{mark.Key: mark.Value, networkID: network, peerID: peers[uuid]}
				snap.Ports = map[ovsdb.UUID]*ovs.Port{"port": {UUID: "port", ExternalIDs: leg, Interfaces: []ovsdb.UUID{"interface"}}}
				snap.Interfaces = map[ovsdb.UUID]*ovs.Interface{"interface": {UUID: "interface", OfPort: 1,
					BFD: map[string]string{"enable": "true"}, BFDStatus: map[string]string{"state": bfd}}}
			}
			h.take(snap)
			if h.obeys(1); bfd == "unknown" {
				h.known = false
			}
		}
	}
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	paths.Set("a", []star.Pair{pair}, nil)
	for i, step := range []struct {
		at       time.Duration
		network  string
		one, two string
		want     star.Health
	}{
		{0, "a", "none", "none", star.Unprobed},
		{time.Second, "a", "down", "down", star.Unprobed}, // it begins
		{2 * time.Second, "a", "init", "down", star.Unprobed},
		{3 * time.Second, "a", "up", "init", star.Unprobed},
		{3100 * time.Millisecond, "a", "up", "up", star.Up},
		{9 * time.Second, "a", "down", "up", star.Down},   // one end notices first
		{10 * time.Second, "a", "up", "unknown", star.Up}, // nobody hears the other database
		{11 * time.Second, "a", "unknown", "down", star.Down},
		{12 * time.Second, "a", "up", "up", star.Up},
		{13 * time.Second, "b", "down", "down", star.Up}, // another leg takes over
		{14 * time.Second, "b", "up", "up", star.Up},
		{15 * time.Second, "a", "down", "down", star.Up}, // and back, but this one does not come up
		{20 * time.Second, "a", "down", "down", star.Down},
		{21 * time.Second, "a", "unknown", "unknown", star.Unprobed},
	} {
		if step.network != paths.Carrier("h1", "h2") {
			paths.Set(paths.Carrier("h1", "h2"), nil, nil)
			paths.Set(step.network, []star.Pair{pair}, nil)
		}
		state(step.network, step.one, step.two)
		before, now := paths.Health("h1", "h2"), began.Add(step.at)
		paths.agenda.add(pair)
		changed := len(paths.update(now)) > 0
		if got := paths.Health("h1", "h2"); got != step.want || changed != (got != before) {
			t.Fatalf("step %d, %+v: health %d, changed %t", i, step, got, changed)
		}
		if again := paths.agenda.next(now.Add(time.Hour)); !again.After(now) {
			t.Fatalf("step %d: to be considered again at once", i)
		}
	}
}

package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// getStatus calls for the status.
func (w *world) getStatus(t *testing.T) (v statusView) {
	t.Helper()
	code, text := w.get(t, "admin", "/v1/status")
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %s: %v", code, text, err)
	}
	return v
}

func (v statusView) wantProblems(t *testing.T, want ...string) {
	t.Helper()
	if len(v.Problems) != len(want) {
		t.Fatalf("got problems %+v, want %d", v.Problems, len(want))
	}
	for i, words := range want {
		if p := v.Problems[i]; !strings.Contains(p.What, words) || p.Fix == "" {
			t.Errorf("problem %d is %+v, want %q", i, p, words)
		}
	}
}

// answerReports answers as the agent of the host would.
func (w *world) answerReports(t *testing.T, report *flow.HostReport) {
	t.Helper()
	st := w.db.Store()
	from, err := st.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	changes, _ := st.Watch(ctx, from, schema.TraceRequestsPrefix)
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for change := range changes {
			for _, e := range change.Events {
				var r flow.TraceRequest
				if e.Deleted || json.Unmarshal(e.Value, &r) != nil || !r.Report {
					continue
				}
				if _, err := w.db.Update(ctx, func(tx *records.Tx) error {
					return schema.TraceAnswers.Put(tx, &flow.TraceAnswer{ID: r.ID, HostID: r.HostID, Report: report})
				}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
}

// TestStatus: what is wrong comes first, with what to do; hosts' agents are asked.
func TestStatus(t *testing.T) {
	w := newWorld(t, 200*time.Millisecond)
	w.writeFormat(t)
	w.update(t, func(tx *records.Tx) error {
		p, err := schema.Ports.Get(tx, boundPort)
		if err != nil {
			return err
		}
		up := *p
		up.AdminStateUp, up.Name = true, "vm1"
		return errors.Join(schema.Ports.Put(tx, &up), schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}),
			schema.Servers.Put(tx, &schema.Server{ID: "s", Name: "cloud", Role: "serve", Version: "v", Reads: 1, Writes: 1}))
	})
	v := w.getStatus(t)
	v.wantProblems(t, "host h1 is down, and with it its ports: 2")
	if len(v.Servers) != 1 || v.Servers[0].Name != "cloud" || v.Ports.Bound != 1 || len(v.Ports.Down) != 1 || v.Ports.Down[0].Name != "vm1" {
		t.Errorf("got %+v", v)
	}
	w.update(t, func(tx *records.Tx) error {
		return schema.HostStates.Put(tx, &topology.HostState{HostID: host, Version: "v", Roles: []string{"overlay"}})
	})
	w.getStatus(t).wantProblems(t, "host h1 is up, but its agent does not report")

	report := &flow.HostReport{Time: time.Now().Add(time.Hour), Tunnels: 1, Failing: map[string]string{boundPort: "device busy"},
		Tables: []flow.TableFill{{Name: "flows", Used: 80, Max: 100}, {Name: "connections", Used: 79, Max: 100}}, CertificateEnd: time.Now().Add(time.Hour)}
	w.answerReports(t, report)
	v = w.getStatus(t)
	v.wantProblems(t, "host h1: its clock is 59m", "host h1: its table of flows is 80% full", "host h1: its certificate ends on", "ports that fail: 1: vm1 on h1 (device busy)")
	if h := v.Hosts[0]; !h.Answered || h.Tunnels != 1 || len(v.Ports.Down) != 0 {
		t.Errorf("got %+v", v)
	}
	if code, _ := w.get(t, "member", "/v1/status"); code != http.StatusForbidden {
		t.Errorf("a member is answered %d", code)
	}
}

// TestStatusWell: nothing is wrong, and an active port is counted.
func TestStatusWell(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	w.update(t, func(tx *records.Tx) error {
		p, err := schema.Ports.Get(tx, boundPort)
		if err != nil {
			return err
		}
		up := *p
		up.AdminStateUp = true
		return errors.Join(schema.Ports.Put(tx, &up), schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}),
			schema.HostStates.Put(tx, &topology.HostState{HostID: host, Roles: []string{"overlay"}}),
			schema.PortStates.Put(tx, &topology.PortState{PortID: boundPort, HostID: host}))
	})
	w.answerReports(t, &flow.HostReport{Time: time.Now()})
	v := w.getStatus(t)
	v.wantProblems(t)
	if v.Ports.Active != 1 || len(v.Ports.Down) != 0 {
		t.Errorf("ports: %+v", v.Ports)
	}
	w.update(t, func(tx *records.Tx) error {
		return schema.DisplacedAgents.Put(tx, &topology.DisplacedAgent{HostID: host, Instance: "i", TunnelIP: netip.MustParseAddr("192.0.2.9")})
	})
	w.getStatus(t).wantProblems(t, "host h1: two agents have its identity, as after a copy of its state directory; that at 192.0.2.9 yields")
}

// TestStatusOfRoutedHosts: a host without the overlay is up while its policy agent reports.
func TestStatusOfRoutedHosts(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	w.update(t, func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}) })
	w.getStatus(t).wantProblems(t, "host h1 is down")
	if _, err := w.db.Store().Commit(t.Context(), nil, []store.Op{{Key: "/calico/felix/v1/host/h1/status", Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	v := w.getStatus(t)
	v.wantProblems(t)
	if !v.Hosts[0].Alive {
		t.Errorf("got %+v", v.Hosts[0])
	}
	w.update(t, func(tx *records.Tx) error {
		return schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: host}) // it has the overlay, too
	})
	w.getStatus(t).wantProblems(t, "host h1 is down")
}

// TestStatusOfCutOffHost: a host that was cut off is named as such, with the reason and what to do.
func TestStatusOfCutOffHost(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	w.update(t, func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}) })
	record := `{"host_id":"` + host + `","reason":"it has more than 256 leases","at":"2026-01-01T00:00:00Z"}`
	if _, err := w.db.Store().Commit(t.Context(), nil, []store.Op{{Key: backend.CutOffPrefix + host, Value: []byte(record)}}); err != nil {
		t.Fatal(err)
	}
	v := w.getStatus(t)
	v.wantProblems(t, "host h1 was cut off from the store: it has more than 256 leases")
	for _, want := range []string{"docs/runbooks/HeddleHostCutOff.md", "heddle host token h1"} {
		if fix := v.Problems[0].Fix; !strings.Contains(fix, want) {
			t.Errorf("the fix is %q, want %s", fix, want)
		}
	}
	if v.Hosts[0].CutOff == "" {
		t.Errorf("got %+v", v.Hosts[0])
	}
}

// TestTraffic: the agent of a host is asked for its tunnels and networks, and the networks are
// named.
func TestTraffic(t *testing.T) {
	w := newWorld(t, 200*time.Millisecond)
	refused := func(code int, words, path string) {
		t.Helper()
		if got, text := w.get(t, "admin", path); got != code || !strings.Contains(text, words) {
			t.Errorf("%s is answered %d %s", path, got, text)
		}
	}
	refused(http.StatusNotFound, "could not be found", "/v1/traffic?host=nowhere")
	w.update(t, func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}) })
	refused(http.StatusConflict, "no overlay agent that is alive", "/v1/traffic?host=h1")
	w.update(t, func(tx *records.Tx) error {
		return schema.HostStates.Put(tx, &topology.HostState{HostID: host, Roles: []string{"overlay"}})
	})
	refused(http.StatusGatewayTimeout, "does not report", "/v1/traffic?host=h1")
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := schema.Ports.Get(snap, boundPort)
	if err != nil {
		t.Fatal(err)
	}
	network, err := schema.Networks.Get(snap, p.NetworkID)
	if err != nil {
		t.Fatal(err)
	}
	w.answerReports(t, &flow.HostReport{Traffic: &flow.TrafficReport{Tunnels: []flow.TunnelReport{{Name: "h2", In: flow.TunnelDirection{State: flow.TunnelUnknown}, Out: flow.TunnelDirection{State: flow.TunnelUnknown}}},
		Networks: []flow.NetworkReport{{ID: p.NetworkID, Usage: flow.Usage{Packets: 2, Bytes: 200}}, {ID: "gone"}},
		Ports:    []flow.PortReport{{ID: boundPort, Flows: 900, Upcalls: 70}, {ID: "localnet", LANOf: p.NetworkID, Flows: 1}, {ID: "gone"}}}})
	code, text := w.get(t, "admin", "/v1/traffic?host="+host)
	var v operator.Traffic
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != http.StatusOK {
		t.Fatalf("got %d %s: %v", code, text, err)
	}
	if v.Host != "h1" || len(v.Tunnels) != 1 || len(v.Networks) != 2 || v.Networks[0].Name != network.Name || v.Networks[0].Bytes != 200 || v.Networks[1].Name != "" {
		t.Errorf("got %+v", v)
	}
	if len(v.Ports) != 3 || v.Ports[0].Name != portName(p) || v.Ports[0].Flows != 900 || v.Ports[0].Upcalls != 70 || v.Ports[1].Name != "LAN of "+network.Name || v.Ports[2].Name != "" {
		t.Errorf("busy ports: %+v", v.Ports)
	}
	if code, _ := w.get(t, "member", "/v1/traffic?host=h1"); code != http.StatusForbidden {
		t.Errorf("a member is answered %d", code)
	}
}

// TestDeadTunnels: a direction that is dead is one problem, whichever end reports it, or both.
func TestDeadTunnels(t *testing.T) {
	t.Parallel()
	dead, alive, unknown := flow.TunnelDirection{State: flow.TunnelDead}, flow.TunnelDirection{State: flow.TunnelAlive}, flow.TunnelDirection{State: flow.TunnelUnknown}
	status := func(name string, tunnels ...flow.TunnelReport) hostStatus {
		return hostStatus{Name: name, Alive: true, Overlay: true, Answered: true, HostReport: &flow.HostReport{DeadTunnels: tunnels}}
	}
	v := statusView{Hosts: []hostStatus{
		status("h1", flow.TunnelReport{Name: "h2", In: alive, Out: dead}),
		status("h2", flow.TunnelReport{Name: "h1", In: dead, Out: unknown}, flow.TunnelReport{Name: "h3", In: dead, Out: unknown}),
		{Name: "h3"}}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "host h3 is down", "tunnel: what host h1 sends does not arrive at host h2", "tunnel: what host h3 sends does not arrive at host h2")
}

// TestHostsDown: a host that is down is called by its name, unless another has the same, and its
// ports are counted if it has any.
func TestHostsDown(t *testing.T) {
	t.Parallel()
	v := statusView{Hosts: []hostStatus{{ID: "1", Name: "h1", Ports: 2}, {ID: "2", Name: "h2"}, {ID: "3", Name: "h2"}}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "host h1 is down, and with it its ports: 2", "host h2 is down", "host h2 is down")
	if p := v.Problems[1]; p.What != "host h2 is down" {
		t.Errorf("got %q", p.What)
	}
	for i, called := range []string{"h1", "2", "3"} {
		if fix := v.Problems[i].Fix; !strings.HasSuffix(fix, "heddle host remove "+called) {
			t.Errorf("to do: %s, want %s removed", fix, called)
		}
	}
}

// TestFullDisks: a server's full disk is named, with what is free and needed.
func TestFullDisks(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	w.update(t, func(tx *records.Tx) error {
		return schema.Servers.Put(tx, &schema.Server{ID: "s", Name: "s2", Role: "serve", Reads: 1, Writes: 1, FullDisk: &schema.FullDisk{Dir: "/var/lib/heddle", FreeMiB: 20, NeededMiB: 248}})
	})
	v := w.getStatus(t)
	v.wantProblems(t, "server s2: the disk of its data directory, /var/lib/heddle, is full: 20 MiB are free")
	if fix := v.Problems[0].Fix; !strings.Contains(fix, "once 248 MiB are free") {
		t.Errorf("to do: %s", fix)
	}
}

// TestPortsOfAbsentHosts: ports that name a host that has not joined are a problem, except for
// subports, which follow their parent.
func TestPortsOfAbsentHosts(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	put := func(change func(*neutron.Port)) {
		t.Helper()
		w.update(t, func(tx *records.Tx) error {
			p, err := schema.Ports.Get(tx, boundPort)
			if err != nil {
				return err
			}
			changed := *p
			changed.Name, changed.HostID, changed.BoundHostID, changed.Profile = "vm1", "nosuchhost", "", map[string]any{}
			change(&changed)
			return schema.Ports.Put(tx, &changed)
		})
	}
	put(func(*neutron.Port) {})
	v := w.getStatus(t)
	v.wantProblems(t, "ports that name a host that has not joined, and so carry nothing: 1: vm1 on nosuchhost")
	put(func(p *neutron.Port) { p.SubportVLAN = 7 })
	w.getStatus(t).wantProblems(t)
	put(func(p *neutron.Port) { p.HostID = "" })
	w.getStatus(t).wantProblems(t)
}

// TestUnreachableHost: a host without its tunnel address comes before what follows from that.
func TestUnreachableHost(t *testing.T) {
	t.Parallel()
	report := &flow.HostReport{Unreachable: "no interface of this host has the tunnel address 192.0.2.1", Uncarried: []string{"physnet1", "physnet2"}}
	v := statusView{Hosts: []hostStatus{{Name: "h1", Alive: true, Overlay: true, Answered: true, HostReport: report}},
		PhysicalNetworks: []physicalNetworkView{{Name: "physnet1", Networks: []string{"world"}}}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "host h1: no other host reaches it by a tunnel: no interface of this host has the tunnel address 192.0.2.1; so it does not carry its physical networks: physnet1, physnet2",
		"physical network physnet1: no live host carries it")
	report.Uncarried, v.PhysicalNetworks = nil, nil
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "has the tunnel address 192.0.2.1")
}

// TestFaults: what several hosts report of the records of others is one problem.
func TestFaults(t *testing.T) {
	t.Parallel()
	status := func(name string, faults ...string) hostStatus {
		return hostStatus{Name: name, Alive: true, Overlay: true, Answered: true, HostReport: &flow.HostReport{Faults: faults}}
	}
	v := statusView{Hosts: []hostStatus{status("h1", "x", "y"), status("h2", "x"), status("h3", "x"), status("h4")}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "host h1 and 2 more: x", "host h1: y")
}

// TestUnaskedHosts: hosts that this server could not ask are one problem, of this server.
func TestUnaskedHosts(t *testing.T) {
	t.Parallel()
	v := statusView{Hosts: []hostStatus{{Name: "h1", Alive: true, Overlay: true, Unasked: "store: full"}, {Name: "h2", Alive: true, Overlay: true, Unasked: "store: full"}}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "this server cannot ask hosts for their reports: store: full")
}

// TestNoHistory: a server whose journal cannot be written is a problem.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	v := statusView{Journal: "no space left on device"}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "this server records no history: no space left on device")
}

// TestMissingKeys: a server without its file of the key of machines' metadata is a problem, in
// words that tell one that still has the key from one that does not.
func TestMissingKeys(t *testing.T) {
	t.Parallel()
	file := "/var/lib/heddle/secrets.key"
	v := statusView{Servers: []serverView{
		{Name: "s1"}, {Name: "s2", MissingKey: &schema.MissingKey{File: file, Loaded: true}}, {Name: "s3", MissingKey: &schema.MissingKey{File: file}}}}
	v.Problems = v.findProblems(time.Now())
	v.wantProblems(t, "server s2: "+file+", the key of machines' metadata, is missing", "server s3 works without the key of machines' metadata, "+file)
	lost := statusView{Servers: []serverView{{Name: "s4", MissingKey: &schema.MissingKey{File: file, Loaded: true, LostStore: "/var/lib/heddle/etcd"}}}}
	lost.Problems = lost.findProblems(time.Now())
	lost.wantProblems(t, "server s4: its store, /var/lib/heddle/etcd, was deleted while it runs")
	for _, p := range v.Problems {
		if !strings.Contains(p.Fix, "chown it to the server's user") {
			t.Errorf("%s: to do: %s: who copies the file as root is not told to chown it", p.What, p.Fix)
		}
	}
}

// TestClusterProblems: a member that is down, or that has copied for long or has never run for as
// long, is a problem, and so is that no other may fail. Members that are up are none.
func TestClusterProblems(t *testing.T) {
	t.Parallel()
	s1, s2, s3 := ClusterMember{Name: "s1", Alive: true}, ClusterMember{Name: "s2", Alive: true}, ClusterMember{Name: "s3", Alive: true}
	dead := ClusterMember{Name: "s9"}
	now := time.Now()
	soon, long := now.Add(-longestCatchUp/2), now.Add(-longestCatchUp)
	for _, c := range []struct {
		members []ClusterMember
		want    []string
	}{
		{[]ClusterMember{s1}, nil},
		{[]ClusterMember{s1, s2}, nil},
		{[]ClusterMember{s1, s2, s3}, nil},
		{[]ClusterMember{s1, s2, dead}, []string{"server s9 is down", "one more failure stops the cloud: 2 of 3"}},
		{[]ClusterMember{s1, s2, s3, s1, dead}, []string{"server s9 is down"}},
		{[]ClusterMember{s1, {Name: "s2", Learner: true}}, nil},
		{[]ClusterMember{s1, {Name: "s2", Learner: true, Since: soon}}, nil},
		{[]ClusterMember{s1, {PeerURL: "https://192.0.2.2:2380", Learner: true, Since: soon}}, nil},
		{[]ClusterMember{s1, {Name: "s2", Learner: true, Since: long}}, []string{"server s2 has been copying the store for 10m0s"}},
		{[]ClusterMember{s1, {PeerURL: "https://192.0.2.2:2380", Learner: true, Since: long}}, []string{"https://192.0.2.2:2380 was added and has never run"}},
	} {
		v := statusView{Cluster: c.members}
		v.Problems = v.findProblems(now)
		v.wantProblems(t, c.want...)
	}
}

// TestLatestServers: records that a server left when it was killed do not count as servers.
func TestLatestServers(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.update(t, func(tx *records.Tx) error {
		reach := schema.Reach{URLs: []string{"https://192.0.2.1:9698"}}
		return errors.Join(
			schema.Servers.Put(tx, &schema.Server{ID: "a", Name: "s1", Role: "serve", Version: "v", Reads: 1, Writes: 1, StartedAt: began.Add(time.Minute), Reach: reach}),
			schema.Servers.Put(tx, &schema.Server{ID: "b", Name: "s1", Role: "serve", Version: "v", Reads: 1, Writes: 1, StartedAt: began, Reach: reach}),
			schema.Servers.Put(tx, &schema.Server{ID: "c", Name: "s2", Role: "serve", Version: "v", Reads: 1, Writes: 1, StartedAt: began}))
	})
	v := w.getStatus(t)
	if len(v.Servers) != 2 || !v.Servers[0].Started.Equal(began.Add(time.Minute)) || v.Servers[1].Name != "s2" {
		t.Errorf("got %+v", v.Servers)
	}
}

// TestFindProblems: the limits of stores, certificates and formats.
func TestFindProblems(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := statusView{Store: storeView{Members: []StoreMember{{Name: "one"}, {Name: "two", Problem: "it is full", Fix: "delete"}}, Written: 1, Newest: 2},
		Certificates: []Certificate{{Name: "good", End: now.Add(15 * 24 * time.Hour)}, {Name: "late", End: now.Add(time.Hour)}, {Name: "gone", End: now.Add(-time.Hour)}}}
	for n := range 12 {
		v.Ports.Failing = append(v.Ports.Failing, portView{Name: string(rune('a' + n)), Host: "h"})
	}
	v.Problems = v.findProblems(now)
	v.wantProblems(t, "store: two: it is full", "written in format 1, though members know format 2", "late ends on 2026-01-02", "gone ended on 2026-01-02", "ports that fail: 12: a on h, b on h, c on h, d on h, e on h, f on h, g on h, h on h, i on h, j on h, and 2 more")
}

// TestUncarriedPhysicalNetworks: a physical network that networks are on, and that no live host
// carries, is a problem; one that a live host carries, or no network is on, is none.
func TestUncarriedPhysicalNetworks(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.writeFormat(t)
	carry := func(names ...string) {
		carried := map[string]string{}
		for _, name := range names {
			carried[name] = "eth1"
		}
		w.update(t, func(tx *records.Tx) error {
			return schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: host, PhysicalNetworks: carried})
		})
	}
	w.update(t, func(tx *records.Tx) (err error) {
		for id, n := range map[string]neutron.Network{"n1": {Standard: neutron.Standard{Name: "world"}, NetworkType: "flat", PhysicalNetwork: "physnet1"},
			"n2": {NetworkType: "vlan", PhysicalNetwork: "physnet1", SegmentationID: new(5)},
			"n3": {Standard: neutron.Standard{Name: "office"}, NetworkType: "flat", PhysicalNetwork: "physnet2"}} {
			n.ID = id
			err = errors.Join(err, schema.Networks.Put(tx, &n))
		}
		return errors.Join(err, schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}),
			schema.HostStates.Put(tx, &topology.HostState{HostID: host, Roles: []string{"policy"}}))
	})
	carry("physnet2", "idle")
	v := w.getStatus(t)
	v.wantProblems(t, "physical network physnet1: no live host carries it; what is on these networks reaches nothing outside: n2, world")
	if !strings.Contains(v.Problems[0].Fix, "--physical physnet1=INTERFACE") {
		t.Errorf("the problem says to %s", v.Problems[0].Fix)
	}
	carry("physnet1", "physnet2")
	w.getStatus(t).wantProblems(t)
	w.update(t, func(tx *records.Tx) error { return schema.HostStates.Delete(tx, host) })
	w.getStatus(t).wantProblems(t, "host h1 is down", "physical network physnet1: ", "physical network physnet2: ")
}

// TestAhead: a clock that was read while its host was asked may be right.
func TestAhead(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	to := from.Add(time.Second)
	for read, want := range map[time.Duration]int64{-2 * time.Second: -2000, 4 * time.Second: 3000} {
		if got := ahead(from.Add(read), from, to); got == nil || *got != want {
			t.Errorf("read %s after: got %v, want %d", read, got, want)
		}
	}
	if got := ahead(from.Add(500*time.Millisecond), from, to); got != nil {
		t.Errorf("may be right: got %d", *got)
	}
}

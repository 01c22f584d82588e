package schema_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// port returns a port with everything that its indexes look at.
func port(id string, change func(*neutron.Port)) *neutron.Port {
	p := &neutron.Port{
		Standard:       neutron.Standard{ID: id, ProjectID: "p", Name: "web"},
		NetworkID:      "n",
		MACAddress:     packet.MAC{2, 0, 0, 0, 0, id[0]},
		FixedIPs:       []neutron.FixedIP{{SubnetID: "s", IPAddress: netip.AddrFrom4([4]byte{192, 0, 2, id[0]})}},
		SecurityGroups: []string{"g"},
		TunnelKey:      uint32(id[0]),
		BoundHostID:    "h",
		InterfaceName:  "tap" + id,
	}
	if change != nil {
		change(p)
	}
	return p
}

// What the tables promise to the operations on Neutron resources.
func TestRules(t *testing.T) {
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	db := records.NewDB(st, rep)
	segment := 7
	_, err := db.Update(t.Context(), func(tx *records.Tx) error {
		return errors.Join(
			schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: "n", ProjectID: "p"}, NetworkType: "vxlan", SegmentationID: &segment}),
			schema.Subnets.Put(tx, &neutron.Subnet{Standard: neutron.Standard{ID: "s"}, NetworkID: "n"}),
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "g", ProjectID: "p", Name: "default"},
				Rules: []neutron.SecurityGroupRule{{Standard: neutron.Standard{ID: "r"}, RemoteGroupID: "g"}}}),
			schema.Hosts.Put(tx, &topology.Host{ID: "h", Name: "host-1"}),
			schema.Ports.Put(tx, port("a", nil)),
			schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: "x", ProjectID: "p"}}),
			schema.Ports.Put(tx, port("i", func(p *neutron.Port) { p.SecurityGroups = nil })),
			schema.RouterPorts.Put(tx, &neutron.RouterPort{PortID: "i", RouterID: "x", SubnetIDs: []string{"s"}}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(change func(*neutron.Port)) func(*records.Tx) error {
		return func(tx *records.Tx) error { return schema.Ports.Put(tx, port("b", change)) }
	}
	taken := func(table, name, value, by string) error {
		return &records.TakenError{Table: table, Name: name, Value: value, By: by}
	}
	used := func(table, id, field string, ids ...string) error {
		return &records.InUseError{Table: table, ID: id, ByTable: "port", Field: field, IDs: ids}
	}
	tests := []struct {
		name string
		f    func(*records.Tx) error
		want error
	}{
		{"another port", put(nil), nil},
		{"a network's MAC", put(func(p *neutron.Port) { p.MACAddress[5] = 'a' }), taken("port", "mac", "n/02:00:00:00:00:61", "a")},
		{"a subnet's address", put(func(p *neutron.Port) { p.FixedIPs = port("a", nil).FixedIPs }), taken("port", "ip", "s/192.0.2.97", "a")},
		{"a tunnel key", put(func(p *neutron.Port) { p.TunnelKey = 'a' }), taken("port", "tunnel_key", "97", "a")},
		{"a host's interface", put(func(p *neutron.Port) { p.InterfaceName = "tapa" }), taken("port", "interface", "h/tapa", "a")},
		{"an interface's name on another host", put(func(p *neutron.Port) { p.InterfaceName, p.BoundHostID = "tapa", "h2" }), nil},
		{"no network", put(func(p *neutron.Port) { p.NetworkID = "x" }), &records.NotFoundError{Table: "network", ID: "x"}},
		{"no subnet", put(func(p *neutron.Port) { p.FixedIPs[0].SubnetID = "x" }), &records.NotFoundError{Table: "subnet", ID: "x"}},
		{"no group", put(func(p *neutron.Port) { p.SecurityGroups = []string{"x"} }), &records.NotFoundError{Table: "security-group", ID: "x"}},
		{"a second default group", func(tx *records.Tx) error {
			return schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "g2", ProjectID: "p", Name: "default"}})
		}, taken("security-group", "default", "p", "g")},
		{"a segment", func(tx *records.Tx) error {
			return schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: "n2"}, NetworkType: "vxlan", SegmentationID: &segment})
		}, taken("network", "segment", "vxlan//7", "n")},
		{"a host's name", func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: "h2", Name: "host-1"}) },
			taken("host", "name", "host-1", "h")},
		{"a network in use", func(tx *records.Tx) error { return schema.Networks.Delete(tx, "n") }, used("network", "n", "network", "a", "i")},
		{"a subnet in use", func(tx *records.Tx) error { return schema.Subnets.Delete(tx, "s") }, used("subnet", "s", "subnet", "a", "i")},
		{"a group in use", func(tx *records.Tx) error { return schema.SecurityGroups.Delete(tx, "g") }, used("security-group", "g", "security_group", "a")},
		{"a router with a port", func(tx *records.Tx) error { return schema.Routers.Delete(tx, "x") },
			&records.InUseError{Table: "router", ID: "x", ByTable: "router-port", Field: "router", IDs: []string{"i"}}},
		{"a port of a router", func(tx *records.Tx) error { return schema.Ports.Delete(tx, "i") },
			&records.InUseError{Table: "port", ID: "i", ByTable: "router-port", Field: "port", IDs: []string{"i"}}},
		{"no router", func(tx *records.Tx) error {
			return schema.RouterPorts.Put(tx, &neutron.RouterPort{PortID: "a", RouterID: "y"})
		}, &records.NotFoundError{Table: "router", ID: "y"}},
		{"a network whose port goes first", func(tx *records.Tx) error {
			if err := errors.Join(schema.RouterPorts.Delete(tx, "i"), schema.Ports.Delete(tx, "i"), schema.Ports.Delete(tx, "a"), schema.Networks.Delete(tx, "n"), schema.SecurityGroups.Delete(tx, "g")); err != nil {
				return err
			}
			if n := schema.Subnets.Count(tx); n != 0 {
				t.Errorf("the network leaves %d subnets", n)
			}
			return nil
		}, nil},
	}
	undo := errors.New("undo")
	for _, tt := range tests {
		_, err := db.Update(t.Context(), func(tx *records.Tx) error {
			if err := tt.f(tx); err != nil {
				return err
			}
			return undo
		})
		want := tt.want
		if want == nil {
			want = undo
		}
		if err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", tt.name, err, want)
		}
	}
	snap, err := db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for index, value := range map[string]string{
		"project": "p", "name": "web", "network": "n", "subnet": "s", "security_group": "g", "bound_host": "h", "host": "", "device_id": "",
		"mac_address": "02:00:00:00:00:61", "ip_address": "192.0.2.97", "mac": schema.PortMAC("n", packet.MAC{2, 0, 0, 0, 0, 'a'}),
	} {
		want := 2
		if slices.Contains([]string{"mac_address", "ip_address", "mac", "security_group"}, index) {
			want = 1
		}
		if n := schema.Ports.CountBy(snap, index, value); n != want {
			t.Errorf("%d ports with %s %q, want %d", n, index, value, want)
		}
	}
	if n := schema.SecurityGroups.CountBy(snap, "rule", "r"); n != 1 {
		t.Errorf("%d groups with rule r, want 1", n)
	}
}

// A group that goes takes along the rules of other groups that let its members in.
func TestRemoteGroupGoes(t *testing.T) {
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	go rep.Run(t.Context())
	db := records.NewDB(st, rep)
	_, err := db.Update(t.Context(), func(tx *records.Tx) error {
		return errors.Join(
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "gone"}}),
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "stays"}, Rules: []neutron.SecurityGroupRule{
				{Standard: neutron.Standard{ID: "1"}, RemoteGroupID: "gone"}, {Standard: neutron.Standard{ID: "2"}, RemoteGroupID: "stays"}, {Standard: neutron.Standard{ID: "3"}}}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Update(t.Context(), func(tx *records.Tx) error { return schema.SecurityGroups.Delete(tx, "gone") }); err != nil {
		t.Fatal(err)
	}
	snap, err := db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := schema.SecurityGroups.Get(snap, "stays")
	if err != nil || len(g.Rules) != 2 || g.Rules[0].ID != "2" || g.Rules[1].ID != "3" {
		t.Errorf("rules left: %+v, %v; want 2 and 3", g, err)
	}
}

// Ids and keys of what hosts report belong together, so that each host writes below its own key
// alone.
func TestStateKeys(t *testing.T) {
	mac := packet.MAC{2, 0, 0, 0, 0, 1}
	for want, got := range map[string]string{
		"/heddle/secrets/h/bgp/r":                    schema.BGPPasswords.KeyOf(&topology.BgpPasswords{HostID: "h", RouterID: "r"}),
		"/heddle/secrets/h/metadata/p":               schema.Instances.KeyOf(&topology.Instance{HostID: "h", PortID: "p"}),
		"/heddle/state/h/metadata-key":               schema.MetadataKeys.KeyOf(&topology.MetadataKey{HostID: "h"}),
		"/heddle/state/h/alive":                      schema.HostStates.KeyOf(&topology.HostState{HostID: "h"}),
		"/heddle/state/h/ports/p":                    schema.PortStates.KeyOf(&topology.PortState{HostID: "h", PortID: "p"}),
		"/heddle/state/h/arrivals/p":                 schema.PortArrivals.KeyOf(&topology.PortArrival{HostID: "h", PortID: "p"}),
		"/heddle/state/h/macs/n/5/02:00:00:00:00:01": schema.LearnedMACs.KeyOf(&topology.LearnedMAC{HostID: "h", NetworkID: "n", VLAN: 5, MAC: mac}),
		"/heddle/state/h/neighbours/n/2001:db8::1":   schema.LearnedNeighbours.KeyOf(&topology.LearnedNeighbour{HostID: "h", NetworkID: "n", IP: netip.MustParseAddr("2001:db8::1")}),
		"/heddle/state/h/traces/t":                   schema.TraceAnswers.KeyOf(&flow.TraceAnswer{HostID: "h", ID: "t"}),
		"/heddle/trace/requests/h/t":                 schema.TraceRequests.KeyOf(&flow.TraceRequest{HostID: "h", ID: "t"}),
		"/heddle/topology/port/p":                    schema.Bundles.KeyOf(&schema.Bundle{Owner: topology.Owner{Kind: "port", ID: "p"}}),
	} {
		if got != want {
			t.Errorf("key %s, want %s", got, want)
		}
		owners := 0
		for _, table := range schema.All() {
			s := table.Source()
			if id, ok := s.RecordID(want); ok {
				owners++
				if id == "" {
					t.Errorf("%s has no id in table %s", want, s.Name)
				}
			}
		}
		if owners != 1 {
			t.Errorf("%s belongs to %d tables", want, owners)
		}
	}
}

// No bytes under our prefixes, as a host may write them, can do more than be left out.
func FuzzForeignRecords(f *testing.F) {
	for _, key := range []string{"/heddle/state/h/alive", "/heddle/state/h/ports/p", "/heddle/state/h/macs/n/5/02:00:00:00:00:01", "/heddle/state//", "/heddle/hosts/", "/heddle/topology/port"} {
		f.Add(key, []byte(`{"hostId":"h","portId":"p","mac":"02:00:00:00:00:01","ip":"::1"}`))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		for _, table := range schema.All() {
			s := table.Source()
			id, ok := s.RecordID(key)
			if !ok {
				continue
			}
			record, err := s.Decode(id, value)
			if err != nil {
				continue
			}
			if p, ok := record.(snapshot.Partial); ok {
				record = p.Record
			}
			for _, i := range s.Indexes {
				i.Values(record)
			}
		}
	})
}

// TestCarriers counts live hosts alone, and networks that are used alone.
func TestCarriers(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	db := records.NewDB(st, rep)
	_, err := db.Update(t.Context(), func(tx *records.Tx) (err error) {
		for _, name := range []string{"used", "left", "unplugged"} {
			err = errors.Join(err, schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: name}, NetworkType: "flat", PhysicalNetwork: name}))
		}
		for host, carried := range map[string]map[string]string{"h1": {"used": "eth1", "idle": "eth2"}, "h2": {"used": "eth1"}, "dead": {"used": "eth1", "left": "eth2"}} {
			err = errors.Join(err, schema.Hosts.Put(tx, &topology.Host{ID: host, Name: host}),
				schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: host, PhysicalNetworks: carried}))
			if host != "dead" {
				err = errors.Join(err, schema.HostStates.Put(tx, &topology.HostState{HostID: host}))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := schema.Carriers(snap), map[string]int{"used": 2, "left": 0, "unplugged": 0}; !maps.Equal(got, want) {
		t.Errorf("carriers %v, want %v", got, want)
	}
}

// TestUnknownMembers: members that a newer version has added outlive updates, unless records are
// made anew each time.
func TestUnknownMembers(t *testing.T) {
	derived := []string{
		"topology", "container-binding", "free-range", "pending-work", "bgp-passwords", "instance",
		// Reports, each of one writer:
		"underlay", "server", "host-state", "displaced-agent", "pool-host", "tunnel-keys", "metadata-key", "port-state", "port-arrival", "learned-mac", "learned-neighbour", "member-health", "vip-traffic", "container-host", "container-state",
		"learned-routes", "bgp-state", "trace-answer", "trace-request", "learned-remote", "gateway-state",
	}
	storetest.UnknownMembers{Tables: schema.All(), Derived: derived, Change: func(_ string, record any) {
		if b, ok := record.(*schema.Bundle); ok {
			b.Owner.Kind = topology.ContainerOwner // to which the sample of a container's binding refers
		}
	}}.Test(t)
}

package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/services/plan"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// site is a store with schedulers, in which tests stand for hosts.
type site struct {
	t       *testing.T
	st      store.Store
	objects *replica.Replica
	db      *records.DB
}

func newSite(t *testing.T) *site {
	st := store.NewMemory()
	s := &site{t: t, st: st, objects: replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)}
	s.db = records.NewDB(st, s.objects)
	s.run(s.objects.Run)
	return s
}

// run runs a part until stop or the end of the test.
func (s *site) run(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = part(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// server runs a server's scheduler over a replica of its own.
func (s *site) server() (scheduler *Scheduler, stop func()) {
	objects := replica.New(s.st, replica.Options{Watch: schema.Root}, schema.All()...)
	scheduler = NewScheduler(SchedulerOptions{DB: records.NewDB(s.st, objects), Store: s.st, Objects: objects, TTL: time.Second})
	s.run(objects.Run)
	return scheduler, s.run(scheduler.Run)
}

// host reports a live host that runs containers, until its lease is revoked.
func (s *site) host(id string) (lease store.Lease) { return s.limitedHost(id, 0) }

// limitedHost is host with a limit of containers.
func (s *site) limitedHost(id string, limit int) (lease store.Lease) {
	s.t.Helper()
	return s.hostOf(&topology.ContainerHost{HostID: id, Weight: 1, Limit: limit})
}

// hostOf is host with a report of its own, of a host that runs all kinds.
func (s *site) hostOf(runs *topology.ContainerHost) (lease store.Lease) {
	s.t.Helper()
	lease, err := s.st.Grant(s.t.Context(), time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	alive := &topology.HostState{HostID: runs.HostID}
	runs.Kinds = []string{topology.ContainerHAProxy, topology.ContainerBGP}
	var ops []store.Op
	for key, record := range map[string]any{schema.HostStates.KeyOf(alive): alive, schema.ContainerHosts.KeyOf(runs): runs} {
		value, err := json.Marshal(record)
		if err != nil {
			s.t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: key, Value: value, Lease: lease})
	}
	if _, err := s.st.Commit(s.t.Context(), nil, ops); err != nil {
		s.t.Fatal(err)
	}
	return lease
}

func (s *site) update(f func(tx *records.Tx) error) {
	s.t.Helper()
	if _, err := s.db.Update(s.t.Context(), f); err != nil {
		s.t.Fatal(err)
	}
}

// container adds a container whose host is to be one of a port group.
func (s *site) container(id, group string) {
	s.t.Helper()
	s.update(func(tx *records.Tx) error {
		return schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: topology.ContainerOwner, ID: id}, Bundle: topology.Bundle{
			ServiceContainers:      []topology.ServiceContainer{{ID: id, ServiceType: topology.ContainerHAProxy, PortID: id + "-port-of-it", ServiceGroupID: id + "-group"}},
			ServiceContainerGroups: []topology.ServiceContainerGroup{{ID: id + "-group", PortGroupID: group}},
			Ports:                  []topology.Port{{ID: id + "-port-of-it", RouterID: "r", TunnelKey: uint32(len(id)) + 3<<20}},
		}})
	})
}

// waitAt waits for a container and its port to be at a host.
func (s *site) waitAt(id, host string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	if err := netlab.Until(ctx, fmt.Sprintf("container %s to be at %q", id, host), func() (bool, error) {
		r := records.Over(s.objects.Snapshot())
		b, ok := schema.Bundles.Peek(r, schema.ContainerBundleID(id))
		at, bound := schema.ContainerBindings.Peek(r, id)
		if !ok || bound != (host != "") || bound && at.HostID != host {
			return false, nil
		}
		p := b.Bundle.Ports[0]
		if p.HostID != host || bound && (p.InterfaceName != topology.ContainerInterface(p.ID) || at.InterfaceName != p.InterfaceName) {
			return false, fmt.Errorf("the container is at %+v, its port at %s, %s", at, p.HostID, p.InterfaceName)
		}
		return true, nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// wantFormer checks the former hosts of a container, the last one first.
func (s *site) wantFormer(id string, hosts ...string) {
	s.t.Helper()
	b, _ := schema.Bundles.Peek(records.Over(s.objects.Snapshot()), schema.ContainerBundleID(id))
	if got := b.Bundle.ServiceContainers[0].FormerHostIDs; !slices.Equal(got, hosts) {
		s.t.Errorf("container %s has the former hosts %v, want %v", id, got, hosts)
	}
}

// TestScheduler: containers get hosts, stay, move when their host is lost, and wait when there is
// none; whichever server schedules.
func TestScheduler(t *testing.T) {
	s := newSite(t)
	first, stop := s.server()
	second, _ := s.server()
	s.container("1", "")
	a := s.host("a")
	s.waitAt("1", "a")
	b := s.host("b")
	s.container("22", "")
	s.waitAt("22", "b")
	if err := s.st.Revoke(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.waitAt("1", "b")

	s.container("333", "uplinks")
	s.waitAt("333", "b")
	s.host("c")
	s.update(func(tx *records.Tx) error {
		return schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: "port", ID: "u"}, Bundle: topology.Bundle{
			Ports: []topology.Port{{ID: "u", RouterID: "r", HostID: "c", InterfaceName: "eth7", PortGroupIDs: []string{"uplinks"}}}}})
	})
	s.waitAt("333", "c")

	stop() // of the two servers one schedules on
	if err := s.st.Revoke(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	s.waitAt("1", "c")
	s.waitAt("22", "c")
	s.wantFormer("1", "b", "a")
	s.wantFormer("22", "b")
	if moves := first.moves + second.moves; moves < 6 {
		t.Errorf("%d moves are counted, want 6 at least", moves)
	}
	s.update(func(tx *records.Tx) error { return schema.Bundles.Delete(tx, schema.ContainerBundleID("1")) })
	snap, err := s.objects.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, left := schema.ContainerBindings.Peek(records.Over(snap), "1"); left {
		t.Error("a deleted container has a host")
	}
}

// TestPasswordsFollowSpeaker: the host that runs a router's speaker is given the passwords of its
// peers, and no other is.
func TestPasswordsFollowSpeaker(t *testing.T) {
	s := newSite(t)
	s.server()
	const router, peer, container = "router", "peer", "speakers-container"
	s.update(func(tx *records.Tx) error {
		return errors.Join(
			schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: router}}),
			schema.BGPPeers.Put(tx, &neutron.BGPPeer{Standard: neutron.Standard{ID: peer}, Password: "s3cret"}),
			schema.BGPPeers.Put(tx, &neutron.BGPPeer{Standard: neutron.Standard{ID: "without"}}),
			schema.BGPSpeakers.Put(tx, &neutron.BGPSpeaker{Standard: neutron.Standard{ID: "speaker"}, RouterID: router, PeerIDs: []string{peer, "without"}}),
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: topology.ContainerOwner, ID: container}, Bundle: topology.Bundle{
				ServiceContainers: []topology.ServiceContainer{{ID: container, ServiceType: topology.ContainerBGP, PortID: "port-of-container", ConfigurationID: router}},
				Ports:             []topology.Port{{ID: "port-of-container", RouterID: router, TunnelKey: 3 << 20}}}}))
	})
	want := func(host string) {
		t.Helper()
		s.waitAt(container, host)
		given := map[string]map[string]string{}
		for p := range schema.BGPPasswords.All(records.Over(s.objects.Snapshot())) {
			given[p.HostID+"/"+p.RouterID] = p.Passwords
		}
		wanted := map[string]map[string]string{}
		if host != "" {
			wanted[host+"/"+router] = map[string]string{peer: "s3cret"}
		}
		if !reflect.DeepEqual(given, wanted) {
			t.Errorf("with the speaker at %q hosts may read %v, want %v", host, given, wanted)
		}
	}
	a := s.host("a")
	want("a")
	b := s.host("b")
	revoke := func(lease store.Lease) {
		t.Helper()
		if err := s.st.Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	revoke(a)
	want("b")
	revoke(b)
	want("")
}

// TestSchedulerWithoutHosts: a container whose last host is lost is unbound until another comes.
func TestSchedulerWithoutHosts(t *testing.T) {
	s := newSite(t)
	s.server()
	s.container("1", "")
	a := s.host("a")
	s.waitAt("1", "a")
	if err := s.st.Revoke(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.waitAt("1", "")
	s.wantFormer("1", "a")
	s.host("b")
	s.waitAt("1", "b")
	s.wantFormer("1", "a")
}

// TestFormerHosts: the latest hosts of a container count, each once, and no more than a few.
func TestFormerHosts(t *testing.T) {
	b := topology.Bundle{ServiceContainers: []topology.ServiceContainer{{ID: "1"}}, Ports: []topology.Port{{ID: "p"}}}
	for _, x := range []struct{ host, former string }{
		{"a", ""}, {"a", ""}, {"", "a"}, {"b", "a"}, {"a", "b a"}, {"c", "a b"}, {"d", "c a b"}, {"e", "d c a b"}, {"f", "e d c a"}, {"", "f e d c"},
	} {
		var to *topology.ContainerBinding
		if x.host != "" {
			to = &topology.ContainerBinding{ContainerID: "1", HostID: x.host}
		}
		now := b
		now.Ports = slices.Clone(b.Ports)
		schema.BindContainer(&now, &b, to)
		if got := strings.Join(now.ServiceContainers[0].FormerHostIDs, " "); got != x.former || now.Ports[0].HostID != x.host {
			t.Errorf("bound to %q: former hosts %q, want %q, port at %q", x.host, got, x.former, now.Ports[0].HostID)
		}
		b = now
	}
}

// TestSchedulerLimit: a container for which there was no room gets a host when another goes.
func TestSchedulerLimit(t *testing.T) {
	s := newSite(t)
	s.server()
	s.limitedHost("a", 1)
	s.container("1", "")
	s.waitAt("1", "a")
	s.container("22", "")
	s.container("333", "")
	s.update(func(tx *records.Tx) error { return schema.Bundles.Delete(tx, schema.ContainerBundleID("1")) })
	s.waitAt("22", "a")
	s.waitAt("333", "")
}

// TestReportedWeights: a host that reports a weight beyond the bound counts as one of the largest
// weight.
func TestReportedWeights(t *testing.T) {
	s := newSite(t)
	s.host("a")
	s.hostOf(&topology.ContainerHost{HostID: "b", Weight: math.MaxInt})
	if _, err := s.objects.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var containers []plan.Placed
	for i := range 10 * (plan.MaxWeight + 1) {
		containers = append(containers, plan.Placed{ID: strconv.Itoa(i), Kind: topology.ContainerBGP})
	}
	count := map[string]int{}
	for _, m := range plan.Place(liveHosts(records.Over(s.objects.Snapshot())), containers, nil) {
		count[m.To]++
	}
	if count["a"] != 10 || count["b"] != 10*plan.MaxWeight {
		t.Errorf("containers %v, want 10 and %d", count, 10*plan.MaxWeight)
	}
}

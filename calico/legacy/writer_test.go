package legacy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/calico/client"
)

func port(name string) calico.WorkloadEndpointKey {
	return calico.WorkloadEndpointKey{Host: "h", Orchestrator: "o", Workload: "w", Endpoint: name}
}

func endpoint(profiles ...string) *calico.WorkloadEndpoint {
	return &calico.WorkloadEndpoint{State: calico.Active, Name: "tap1", ProfileIDs: profiles, IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
}

func profileOf(tag string) *Profile {
	return &Profile{Tags: calico.ProfileTags{tag}, Rules: calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow, SrcTag: tag}}}}
}

const (
	portPath    = "/calico/host/h/workload/o/w/endpoint/"
	profilePath = "/calico/policy/profile/"
)

// summary returns the tree in short: "e1: web" for endpoints, "web: 2 rules tags" for profiles.
func summary(keys map[string]string) map[string]string {
	short := map[string]string{}
	for _, part := range []string{"refcount", "rules", "tags"} {
		for path, value := range keys {
			id, found, _ := strings.Cut(strings.TrimPrefix(path, profilePath), "/")
			if !strings.HasPrefix(path, profilePath) || found != part {
				continue
			}
			if part != "refcount" {
				value = part
			}
			short[id] = strings.TrimSpace(short[id] + " " + value)
		}
	}
	for path, value := range keys {
		if name, ok := strings.CutPrefix(path, portPath); ok {
			var e struct {
				Profile string `json:"profile_id"`
			}
			if json.Unmarshal([]byte(value), &e) != nil {
				e.Profile = "unreadable"
			}
			short[name] = e.Profile
		}
	}
	return short
}

func (l *lab) want(want map[string]string) {
	l.t.Helper()
	if diff := cmp.Diff(want, summary(l.keys())); diff != "" {
		l.t.Errorf("the tree: -want +got\n%s", diff)
	}
}

type tree map[string]string

// TestRaces lets another writer commit between what a Writer has read and its own commit.
func TestRaces(t *testing.T) {
	t.Parallel()
	put := func(w *Writer, name string, profile string, create bool) error {
		var p *Profile
		if create {
			p = profileOf("t")
		}
		_, err := w.PutEndpoint(context.Background(), port(name), endpoint(profile), p)
		return err
	}
	remove := func(w *Writer, name string) error {
		_, err := w.DeleteEndpoint(context.Background(), port(name))
		return err
	}
	set := func(w *Writer, id string) error { return w.SetProfile(context.Background(), id, profileOf("t")) }
	for name, race := range map[string]struct {
		setup   func(*Writer) error
		other   func(*Writer) error // commits first
		own     func(*Writer) error
		want    tree
		wantErr error
		commits int
	}{
		"two creators": {
			other:   func(w *Writer) error { return put(w, "e2", "web", true) },
			own:     func(w *Writer) error { return put(w, "e1", "web", true) },
			want:    tree{"e1": "web", "e2": "web", "web": "2 rules tags"},
			commits: 2,
		},
		"two incrementers": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return put(w, "e2", "web", false) },
			own:     func(w *Writer) error { return put(w, "e3", "web", false) },
			want:    tree{"e1": "web", "e2": "web", "e3": "web", "web": "3 rules tags"},
			commits: 2,
		},
		"increment meets delete: the profile is made again": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return remove(w, "e1") },
			own:     func(w *Writer) error { return put(w, "e2", "web", true) },
			want:    tree{"e2": "web", "web": "1 rules tags"},
			commits: 2,
		},
		"increment meets delete, with nothing to make the profile of": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return remove(w, "e1") },
			own:     func(w *Writer) error { return put(w, "e2", "web", false) },
			want:    tree{},
			wantErr: ErrNoProfile,
			commits: 1,
		},
		"delete meets increment: only counted down": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return put(w, "e2", "web", false) },
			own:     func(w *Writer) error { return remove(w, "e1") },
			want:    tree{"e2": "web", "web": "1 rules tags"},
			commits: 2,
		},
		"two deleters of one endpoint": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return remove(w, "e1") },
			own:     func(w *Writer) error { return remove(w, "e1") },
			want:    tree{},
			wantErr: client.ErrNotFound,
			commits: 1,
		},
		"two puts of one endpoint count once": {
			other:   func(w *Writer) error { return put(w, "e1", "web", true) },
			own:     func(w *Writer) error { return put(w, "e1", "web", true) },
			want:    tree{"e1": "web", "web": "1 rules tags"},
			commits: 2,
		},
		"two puts of one endpoint with two profiles": {
			other:   func(w *Writer) error { return put(w, "e1", "db", true) },
			own:     func(w *Writer) error { return put(w, "e1", "web", true) },
			want:    tree{"e1": "web", "web": "1 rules tags"},
			commits: 2,
		},
		"a move meets an increment of what it leaves": {
			setup:   func(w *Writer) error { return put(w, "e1", "web", true) },
			other:   func(w *Writer) error { return put(w, "e2", "web", false) },
			own:     func(w *Writer) error { return put(w, "e1", "db", true) },
			want:    tree{"e1": "db", "e2": "web", "web": "1 rules tags", "db": "1 rules tags"},
			commits: 2,
		},
		"a move meets the end of where it goes": {
			setup:   func(w *Writer) error { return errors.Join(put(w, "e1", "web", true), put(w, "e2", "db", true)) },
			other:   func(w *Writer) error { return remove(w, "e2") },
			own:     func(w *Writer) error { return put(w, "e1", "db", true) },
			want:    tree{"e1": "db", "db": "1 rules tags"},
			commits: 2,
		},
		"a new profile meets its first endpoint": {
			other:   func(w *Writer) error { return put(w, "e1", "web", true) },
			own:     func(w *Writer) error { return set(w, "web") },
			want:    tree{"e1": "web", "web": "1 rules tags"},
			commits: 2,
		},
		"a profile's deletion meets its first endpoint": {
			setup:   func(w *Writer) error { return set(w, "web") },
			other:   func(w *Writer) error { return put(w, "e1", "web", false) },
			own:     func(w *Writer) error { return w.DeleteProfile(context.Background(), "web") },
			want:    tree{"e1": "web", "web": "1 rules tags"},
			wantErr: ErrInUse,
			commits: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if race.setup != nil {
				if err := race.setup(NewWriter(l.client)); err != nil {
					t.Fatal(err)
				}
			}
			w, m := l.writer(func() {
				if err := race.other(NewWriter(l.client)); err != nil {
					t.Errorf("the other: %v", err)
				}
			})
			if err := race.own(w); !errors.Is(err, race.wantErr) {
				t.Errorf("error %v, want %v", err, race.wantErr)
			}
			l.want(race.want)
			if m.made != race.commits {
				t.Errorf("%d attempts to commit, want %d", m.made, race.commits)
			}
		})
	}
}

func TestCounting(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	w := NewWriter(l.client)
	put := func(name, profile string) {
		t.Helper()
		if faults, err := w.PutEndpoint(ctx, port(name), endpoint(profile), profileOf("t")); err != nil || len(faults) > 0 {
			t.Fatal(faults, err)
		}
	}
	put("e1", "web")
	put("e1", "web") // counts once
	put("e2", "web2")
	l.want(tree{"e1": "web", "e2": "web2", "web": "1 rules tags", "web2": "1 rules tags"})
	if _, err := w.DeleteEndpoint(ctx, port("e1")); err != nil {
		t.Fatal(err)
	}
	l.want(tree{"e2": "web2", "web2": "1 rules tags"}) // web does not take web2 along
	put("e2", "a/b")
	l.want(tree{"e2": "a/b", "a%2fb": "1 rules tags"})
	if faults, err := w.PutEndpoint(ctx, port("e2"), endpoint(), nil); err != nil || len(faults) > 0 {
		t.Fatal(faults, err)
	}
	l.want(tree{"e2": ""})
	if got := l.keys()[portPath+"e2"]; strings.Contains(got, "profile_id") {
		t.Errorf("an endpoint without profile is stored as %s", got)
	}
	if err := w.SetProfile(ctx, "idle", profileOf("t")); err != nil {
		t.Fatal(err)
	}
	l.want(tree{"e2": "", "idle": "0 rules tags"})
	put("e2", "idle")
	if err := w.DeleteProfile(ctx, "idle"); !errors.Is(err, ErrInUse) {
		t.Errorf("deleting a profile in use: %v", err)
	}
	if err := w.DeleteProfile(ctx, "nowhere"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("deleting no profile: %v", err)
	}
	l.want(tree{"e2": "idle", "idle": "1 rules tags"})
}

// TestFaultyCounts: endpoints go whatever is wrong with their profile's count, which is told and
// left; no endpoint is counted with a corrupt one.
func TestFaultyCounts(t *testing.T) {
	t.Parallel()
	const stored = `{"state":"active","name":"tap1","profile_id":"web"}`
	for name, c := range map[string]struct {
		count string // "" = missing
		fault error
	}{
		"missing":    {"", ErrNoCount},
		"zero":       {"0", ErrNoneCounted},
		"words":      {"three", ErrCorruptCount},
		"negative":   {"-1", ErrCorruptCount},
		"JSON text":  {`"1"`, ErrCorruptCount},
		"too large":  {"18446744073709551616", ErrCorruptCount},
		"with space": {"1 ", ErrCorruptCount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, ctx := newLab(t), t.Context()
			w := NewWriter(l.client)
			l.put(portPath+"e1", stored, portPath+"e2", stored, profilePath+"web/tags", `["t"]`)
			after := tree{"web": "tags"}
			if c.count != "" {
				l.put(profilePath+"web/refcount", c.count)
				after["web"] = strings.TrimSpace(c.count) + " tags"
			}
			for _, gone := range []func() ([]Fault, error){
				func() ([]Fault, error) { return w.DeleteEndpoint(ctx, port("e1")) },
				func() ([]Fault, error) { return w.PutEndpoint(ctx, port("e2"), endpoint(), nil) },
			} {
				faults, err := gone()
				if err != nil || len(faults) != 1 || !errors.Is(faults[0], c.fault) || faults[0].Key != (calico.ProfileRefcountKey{Profile: "web"}) {
					t.Errorf("faults %v, error %v; want the fault %v", faults, err, c.fault)
				}
			}
			after["e2"] = ""
			got := summary(l.keys())
			got["web"] = strings.Join(strings.Fields(got["web"]), " ")
			if diff := cmp.Diff(map[string]string(after), got); diff != "" {
				t.Errorf("the tree: -want +got\n%s", diff)
			}
			if c.fault != ErrCorruptCount {
				return
			}
			_, err := w.PutEndpoint(ctx, port("e3"), endpoint("web"), profileOf("t"))
			if !errors.Is(err, ErrCorruptCount) {
				t.Errorf("counting with a corrupt count: %v", err)
			}
			if err := w.SetProfile(ctx, "web", profileOf("t")); !errors.Is(err, ErrCorruptCount) {
				t.Errorf("writing a profile with a corrupt count: %v", err)
			}
			if got := l.keys(); got[profilePath+"web/refcount"] != c.count || got[portPath+"e3"] != "" {
				t.Errorf("a refused put wrote: %v", got)
			}
		})
	}
}

// TestUncountedProfiles: most programs of the time kept no count. Such a profile gets one when it
// is first written, of all the endpoints there are, so that it is not deleted too early.
func TestUncountedProfiles(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	w := NewWriter(l.client)
	l.put(portPath+"e1", `{"state":"active","name":"tap1","profile_id":"web"}`, portPath+"e2", `{"state":"active","name":"tap2","profile_id":"web"}`,
		profilePath+"web/rules", `{"inbound_rules":[],"outbound_rules":[]}`)
	if _, err := w.PutEndpoint(ctx, port("e3"), endpoint("web"), profileOf("t")); err != nil {
		t.Fatal(err)
	}
	l.want(tree{"e1": "web", "e2": "web", "e3": "web", "web": "3 rules"}) // and its rules are not touched
	if err := w.SetProfile(ctx, "web", profileOf("t")); err != nil {
		t.Fatal(err)
	}
	l.want(tree{"e1": "web", "e2": "web", "e3": "web", "web": "3 rules tags"})
}

// TestUnreadableEndpoint: its profile is not known. It can be deleted, and not
// written over.
func TestUnreadableEndpoint(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	w := NewWriter(l.client)
	l.put(portPath+"e1", "{", portPath+"e2", `{"state":"asleep","name":"tap2","profile_id":"web"}`, profilePath+"web/refcount", "1", profilePath+"web/tags", "[]")
	if _, err := w.PutEndpoint(ctx, port("e1"), endpoint("web"), nil); !errors.Is(err, ErrUnreadable) {
		t.Errorf("put: %v", err)
	}
	faults, err := w.DeleteEndpoint(ctx, port("e1"))
	if err != nil || len(faults) != 1 || !errors.Is(faults[0], ErrUnreadable) {
		t.Errorf("delete: faults %v, error %v", faults, err)
	}
	// One that is invalid otherwise is counted with whom it names.
	if faults, err := w.DeleteEndpoint(ctx, port("e2")); err != nil || len(faults) > 0 {
		t.Errorf("delete: faults %v, error %v", faults, err)
	}
	l.want(tree{})
}

func TestCollector(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	w, c := NewWriter(l.client), NewCollector(l.client)
	sweep := func(want ...string) {
		t.Helper()
		deleted, faults, err := c.Sweep(ctx)
		if err != nil || len(faults) > 0 || strings.Join(deleted, " ") != strings.Join(want, " ") {
			t.Errorf("sweep: deleted %v, want %v; faults %v, error %v", deleted, want, faults, err)
		}
	}
	for _, id := range []string{"idle", "late", "touched", "web", "web2"} {
		if err := w.SetProfile(ctx, id, profileOf("t")); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	for _, id := range []string{"web", "touched"} {
		if _, err := w.PutEndpoint(ctx, port("e"+id), endpoint(id), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.PutEndpoint(ctx, port("etouched"), endpoint("web"), nil); err != nil { // and touched goes with it
		t.Fatal(err)
	}
	if err := w.SetProfile(ctx, "touched", profileOf("t")); err != nil {
		t.Fatal(err)
	}
	// An endpoint comes between the sweep's look and its deletion.
	c.writer.etcd = &meddler{etcd: l.client, before: []func(){nil, func() {
		if _, err := w.PutEndpoint(ctx, port("elate"), endpoint("late"), nil); err != nil {
			t.Error(err)
		}
	}}}
	sweep("idle", "web2")
	l.want(tree{"elate": "late", "etouched": "web", "eweb": "web", "late": "1 rules tags", "touched": "0 rules tags", "web": "2 rules tags"})
	sweep("touched")

	// Counts that are wrong are told, and their profiles kept.
	l.put(profilePath+"bad/refcount", "none", profilePath+"used/refcount", "0", portPath+"eused", `{"state":"active","name":"tap1","profile_id":"used"}`)
	for range 2 {
		deleted, faults, err := c.Sweep(ctx)
		if err != nil || len(deleted) > 0 || len(faults) != 2 || !errors.Is(faults[0], ErrCorruptCount) || !errors.Is(faults[1], ErrInUse) {
			t.Errorf("sweep: deleted %v, faults %v, error %v", deleted, faults, err)
		}
	}
}

// TestRefusedObjects: what seed 000 has no member or word for is refused, by its name.
func TestRefusedObjects(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	w := NewWriter(l.client)
	one := uint8(1)
	net4 := netip.MustParsePrefix("10.0.0.0/8")
	refused := func(err error, want string) {
		t.Helper()
		var wrong *calico.Error
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Field, want) {
			t.Errorf("error %v, want one of the field %q", err, want)
		}
	}
	for want, edit := range map[string]func(*calico.WorkloadEndpoint){
		"labels":             func(e *calico.WorkloadEndpoint) { e.Labels = map[string]string{"a": "b"} },
		"profile_ids":        func(e *calico.WorkloadEndpoint) { e.ProfileIDs = []string{"a", "b"} },
		"fqdn":               func(e *calico.WorkloadEndpoint) { e.FQDN = "a.example" },
		"ipv4_subnet_ids":    func(e *calico.WorkloadEndpoint) { e.IPv4SubnetIDs = []string{"s"} },
		"active_instance_id": func(e *calico.WorkloadEndpoint) { e.ActiveInstanceID = "i" },
		"ipv4_nat": func(e *calico.WorkloadEndpoint) {
			e.IPv4NAT = []calico.NAT{{IntIP: netip.MustParseAddr("10.0.0.1"), ExtIP: netip.MustParseAddr("192.0.2.1")}}
		},
		"state": func(e *calico.WorkloadEndpoint) { e.State = "asleep" },
	} {
		e := endpoint("web")
		edit(e)
		_, err := w.PutEndpoint(ctx, port("e1"), e, profileOf("t"))
		refused(err, want)
	}
	for _, r := range []struct {
		want string
		rule calico.Rule
	}{
		{"ip_version", calico.Rule{IPVersion: 4}},
		{"protocol", calico.Rule{Protocol: calico.ProtocolSCTP}},
		{"protocol", calico.Rule{Protocol: 47}},
		{"!src_net", calico.Rule{NotSrcNets: []netip.Prefix{net4}}},
		{"src_selector", calico.Rule{SrcSelector: "all()"}},
		{"icmp_code", calico.Rule{Protocol: calico.ProtocolICMP, ICMPType: &one, ICMPCode: &one}},
		{"log_prefix", calico.Rule{LogPrefix: "x"}},
		{"action", calico.Rule{Action: calico.Log}},
		{"action", calico.Rule{Action: calico.NextTier}},
		{"src_nets", calico.Rule{SrcNets: []netip.Prefix{net4, netip.MustParsePrefix("192.0.2.0/24")}}},
	} {
		p := profileOf("t")
		p.Rules.InboundRules = append(p.Rules.InboundRules, r.rule)
		refused(w.SetProfile(ctx, "web", p), r.want)
		_, err := w.PutEndpoint(ctx, port("e1"), endpoint("web"), p)
		refused(err, r.want)
	}
	l.want(tree{})
}

// TestStoredForm shows what is stored, to the letter of seed 000.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	eight := uint8(8)
	mac := calico.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}
	e := &calico.WorkloadEndpoint{
		State: calico.Active, Name: "tap80", MAC: &mac, ProfileIDs: []string{"web"},
		IPv4Nets: []netip.Prefix{netip.MustParsePrefix("198.51.100.17/32")}, IPv6Nets: []netip.Prefix{netip.MustParsePrefix("2001:db8::19/128")},
		IPv4Gateway: netip.MustParseAddr("198.51.100.1"), IPv6Gateway: netip.MustParseAddr("2001:db8::1"),
	}
	p := &Profile{Tags: calico.ProfileTags{"A", "B"}, Rules: calico.ProfileRules{
		InboundRules: []calico.Rule{{
			Action: calico.Deny, Protocol: calico.ProtocolTCP, SrcTag: "A", DstTag: "B",
			SrcNets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, DstNets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
			SrcPorts: []calico.Ports{{Low: 1234, High: 1234}, {Low: 2048, High: 4000}}, DstPorts: []calico.Ports{{Low: 80, High: 80}},
		}, {Action: calico.Allow, Protocol: calico.ProtocolICMP, ICMPType: &eight}},
	}}
	if _, err := NewWriter(l.client).PutEndpoint(t.Context(), port("e1"), e, p); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		portPath + "e1": `{"state":"active","name":"tap80","mac":"fa:16:3e:00:00:01","profile_id":"web","ipv4_nets":["198.51.100.17/32"],` +
			`"ipv6_nets":["2001:db8::19/128"],"ipv4_gateway":"198.51.100.1","ipv6_gateway":"2001:db8::1"}`,
		profilePath + "web/refcount": "1",
		profilePath + "web/tags":     `["A","B"]`,
		profilePath + "web/rules": `{"inbound_rules":[{"action":"deny","protocol":"tcp","src_tag":"A","dst_tag":"B","src_net":"10.0.0.0/8","dst_net":"10.1.0.0/16",` +
			`"src_ports":[1234,"2048:4000"],"dst_ports":[80]},{"action":"allow","protocol":"icmp","icmp_type":8}],"outbound_rules":[]}`,
	}
	got := l.keys()
	for path, text := range want {
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(text), &a), json.Unmarshal([]byte(got[path]), &b)); err != nil {
			t.Errorf("%s: %v in %q", path, err, got[path])
		} else if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: -want +got\n%s", path, diff)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d keys, want %d: %v", len(got), len(want), got)
	}
}

// TestUnknownOutcome: a change whose outcome is unknown is made again, and counts
// once.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	unheard := func() *Writer { return &Writer{&dying{etcd: l.client, lives: 1}} }
	put := func(w *Writer, profile string) error {
		_, err := w.PutEndpoint(ctx, port("e1"), endpoint(profile), profileOf("t"))
		return err
	}
	for _, profile := range []string{"web", "db"} {
		if err := put(unheard(), profile); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if err := put(NewWriter(l.client), profile); err != nil {
			t.Fatal(err)
		}
		l.want(tree{"e1": profile, profile: "1 rules tags"})
	}
	if _, err := unheard().DeleteEndpoint(ctx, port("e1")); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if _, err := NewWriter(l.client).DeleteEndpoint(ctx, port("e1")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
	l.want(tree{})
}

// TestStress lets many writers put, move and delete the same endpoints, and then goes through the
// history: at every revision each count is the number of endpoints that name the profile, and a
// profile that no endpoint names is not there.
func TestStress(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const writers, changes = 6, 40
	var running sync.WaitGroup
	for n := range writers {
		running.Go(func() {
			w, random := NewWriter(l.client), rand.New(rand.NewPCG(uint64(n), 1))
			for range changes {
				name, profile := fmt.Sprintf("e%d", random.IntN(8)), fmt.Sprintf("p%d", random.IntN(3))
				var faults []Fault
				var err error
				if random.IntN(3) == 0 {
					faults, err = w.DeleteEndpoint(context.Background(), port(name))
				} else {
					faults, err = w.PutEndpoint(context.Background(), port(name), endpoint(profile), profileOf("t"))
				}
				if len(faults) > 0 || err != nil && !errors.Is(err, client.ErrNotFound) {
					t.Errorf("faults %v, error %v", faults, err)
				}
			}
		})
	}
	running.Wait()
	l.history(1, func(revision int64, keys map[string]string) {
		named := map[string]int{}
		short := summary(keys)
		for name, profile := range short {
			if name[0] == 'e' {
				named[profile]++
			}
		}
		for profile, n := range named {
			if got, want := short[profile], fmt.Sprintf("%d rules tags", n); got != want {
				t.Errorf("revision %d: profile %s is %q, want %q", revision, profile, got, want)
			}
		}
		for name := range short {
			if name[0] == 'p' && named[name] == 0 {
				t.Errorf("revision %d: profile %s is left, and nobody names it", revision, name)
			}
		}
	})
}

// history calls f with the keys as they were at each revision from one on.
func (l *lab) history(from int64, f func(int64, map[string]string)) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	now, err := l.raw.Get(ctx, "/calico/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		l.t.Fatal(err)
	}
	for revision := from; revision <= now.Header.Revision; revision++ {
		r, err := l.raw.Get(ctx, "/calico/", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			l.t.Fatal(err)
		}
		keys := map[string]string{}
		for _, kv := range r.Kvs {
			keys[string(kv.Key)] = string(kv.Value)
		}
		f(revision, keys)
	}
}

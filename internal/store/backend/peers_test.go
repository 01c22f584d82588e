package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"heddle/internal/store"
)

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// peerStore describes a member of a cluster on loopback.
func peerStore(t *testing.T, name string) Embedded {
	t.Helper()
	return Embedded{DataDir: t.TempDir(), Agents: freeAddress(t), Peer: &Peer{Name: name, Listen: freeAddress(t)}, Tick: 50 * time.Millisecond, NoFsync: true}
}

// openPeer opens a member.
func openPeer(t *testing.T, o Embedded) *Etcd {
	t.Helper()
	s, err := Open(t.Context(), Options{Embedded: &o, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// admit lets a member join by another.
func admit(t *testing.T, by *Etcd, o *Embedded) {
	t.Helper()
	for range 2 { // the answer to the first may be lost
		var err error
		if o.Peer.Join, err = by.AddMember(t.Context(), o.Peer.Name, o.Peer.URL()); err != nil {
			t.Fatal(err)
		}
	}
	authority, err := by.AuthorityFiles(t.Context())
	if err == nil {
		err = SaveAuthority(o.DataDir, authority)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitLearner waits until a member knows since when another is a learner, or that it is none.
func awaitLearner(t *testing.T, s *Etcd, peerURL string, want bool) {
	t.Helper()
	for {
		members, err := s.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
		if i < 0 {
			t.Fatalf("no member at %s: %+v", peerURL, members)
		}
		if since := s.LearnerSince(members[i].ID); since.IsZero() != want {
			return
		}
	}
}

// TestPeers: a store without peers becomes the first member with its data, another joins, and both
// serve what either writes. A host removed by one member loses its connections to the other, and no
// host passes for a member. A member that moves is found at its new address; one that is removed
// ends.
func TestPeers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o1, o2 := peerStore(t, "s1"), peerStore(t, "s2")
	alone := o1
	alone.Peer = nil
	first := openTest(t, alone)
	mustCommit(t, first, put("/heddle/before", "1"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s1 := openPeer(t, o1)
	admit(t, s1, &o2)
	awaitLearner(t, s1, o2.Peer.URL(), true)
	s2 := openPeer(t, o2)
	awaitLearner(t, s1, o2.Peer.URL(), false)
	if kv, err := s2.Get(ctx, "/heddle/before"); err != nil || string(kv.Value) != "1" {
		t.Errorf("what was there before: %s, %v", kv.Value, err)
	}
	members, err := s2.Members(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 2 || members[0].Name != "s1" || members[1].Name != "s2" || members[1].Learner || members[1].StoreURL != "https://"+o2.Agents {
		t.Errorf("members %+v", members)
	}
	if _, own := s2.Leader(); own != members[1].ID {
		t.Errorf("s2 is %x, want %x", own, members[1].ID)
	}

	rev := mustCommit(t, s1, put("/heddle/topology/port/1", "a"))
	agent, err := connect(t, s2, joined(t, s1, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	changes, failed := agent.Watch(ctx, rev-1, "/heddle/topology/")
	collect(t, changes, failed, rev)
	mustCommit(t, s1, put(joinedHosts+"h1", "{}"))
	if err := s1.RemoveHost(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	for range changes {
	}
	if failed() == nil {
		t.Error("the watch of a removed host at the other member goes on")
	}

	peer := o2.peerTLS()
	ofPeer, err := peer.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(config *tls.Config) (bool, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		return removedAt(ctx, client, o1.Peer.URL(), s1.member.etcd.Server.Cluster().ID(), types.ID(members[1].ID))
	}
	if removed, err := ask(ofPeer); err != nil || removed {
		t.Errorf("a member asks another whether it was removed: %t, %v", removed, err)
	}
	if _, err := ask(joined(t, s1, "h2")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a host speaks to a member as one: %v", err)
	}

	if err := s2.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, Options{Embedded: &Embedded{DataDir: o2.DataDir, Existing: true}}); err == nil || !strings.Contains(err.Error(), "one of the 2 members of a cluster (s1, s2)") {
		t.Errorf("opened without the cluster: %v", err)
	}
	taken := o2
	taken.Peer = &Peer{Name: "s1", Listen: freeAddress(t)}
	if _, err := Open(ctx, Options{Embedded: &taken}); err == nil || !strings.Contains(err.Error(), "name s1: another server of the cluster, at "+o1.Peer.URL()) {
		t.Errorf("at another address with another's name: %v", err)
	}
	o2.Peer.Listen = freeAddress(t)
	s2 = openPeer(t, o2)
	if members, err = s1.Members(ctx); err != nil || members[1].PeerURL != o2.Peer.URL() {
		t.Errorf("moved: %+v, %v", members, err)
	}

	ended := make(chan error, 1)
	go func() { ended <- s2.Serve(ctx) }()
	for err := ErrQuorum; err != nil; { // both have to be connected for some seconds
		if err = s1.RemoveMember(ctx, members[1].ID); err != nil && !errors.Is(err, ErrQuorum) {
			t.Fatal(err)
		}
	}
	if err := <-ended; !errors.Is(err, ErrRemoved) {
		t.Errorf("removed: %v", err)
	}
	if removed, err := ask(ofPeer); err != nil || !removed {
		t.Errorf("a removed member asks another whether it was removed: %t, %v", removed, err)
	}
	s2.Close()
	if past := ReadPast(o2.DataDir); past.Store || past.Removed == "" {
		t.Errorf("what is left of the removed store: %+v", past)
	}
	for err := store.ErrUnavailable; err != nil; { // the other may have been the leader
		if _, err = s1.Commit(ctx, nil, []store.Op{put("/heddle/after", "1")}); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if got, want := LocalEndpoints(o2.DataDir), []string{"unixs://" + o2.tlsSocket(), "https://" + o1.Agents}; !slices.Equal(got, want) {
		t.Errorf("agents of the removed server's machine use %q, want %q", got, want)
	}
	near, err := OpenLocal(ctx, o2.DataDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	if err := os.Mkdir(o2.etcdDir(), 0o700); err != nil { // it begins with another store
		t.Fatal(err)
	}
	if got := LocalEndpoints(o2.DataDir); len(got) != 1 {
		t.Errorf("agents use another cluster beside the store: %q", got)
	}
}

// TestClosesWithoutMajority: the opening of a member whose cluster has no majority can be given up.
func TestClosesWithoutMajority(t *testing.T) {
	t.Parallel()
	o1, o2 := peerStore(t, "s1"), peerStore(t, "s2")
	s1 := openPeer(t, o1)
	admit(t, s1, &o2)
	s2 := openPeer(t, o2)
	if err := errors.Join(s1.Close(), s2.Close()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ended, Options{Embedded: &o2, Log: testLog(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("opened without the other member: %v", err)
	}
}

// TestCheckMember: a member whose log is lost, or that takes the name of another, does not start,
// and the error says what to do. It may change its address or take a name that no other has.
func TestCheckMember(t *testing.T) {
	t.Parallel()
	o := peerStore(t, "s1")
	if err := os.MkdirAll(filepath.Join(o.etcdDir(), "member", "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	s1, s2 := Member{Name: "s1", PeerURL: o.Peer.URL()}, Member{Name: "s2", PeerURL: "https://192.0.2.2:2380"}
	if err := o.writePeers([]Member{s1, s2}); err != nil { // as an earlier version did
		t.Fatal(err)
	}
	refused := func(words ...string) {
		t.Helper()
		_, err := Open(t.Context(), Options{Embedded: &o})
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %q", err, w)
			}
		}
	}
	refused("has lost its log", "`heddle cluster remove s1`", "`heddle cluster token s1`", "move "+o.etcdDir()+" away")
	if err := os.WriteFile(filepath.Join(o.etcdDir(), "member", "wal", "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Peer.Name = "s2"
	refused("name s2: another server of the cluster, at https://192.0.2.2:2380, has it", "its former name, s1")
	o.Peer.Name = "s3"
	if err := o.checkMember(); err != nil {
		t.Errorf("another name: %v", err)
	}
	o.Peer.Name, o.Peer.Listen = "s1", "192.0.2.1:2380"
	if err := o.checkMember(); err != nil {
		t.Errorf("another address: %v", err)
	}

	s1.Own = true
	if err := o.writePeers([]Member{s1, s2}); err != nil {
		t.Fatal(err)
	}
	if err := o.checkMember(); err != nil {
		t.Errorf("another address: %v", err)
	}
	o.Peer.Name = "s3"
	if err := o.checkMember(); err != nil {
		t.Errorf("another name and address: %v", err)
	}
	o.Peer.Name = "s2"
	refused("name s2: another server of the cluster, at https://192.0.2.2:2380, has it", "its former name, s1",
		"if the other has moved", "`heddle cluster remove "+s1.PeerURL+"`", "`heddle cluster token s2`", "move "+o.etcdDir()+" away")
	o.Peer.Name, o.Peer.Listen = "s1", "192.0.2.2:2380"
	refused("address 192.0.2.2:2380 for members: another server of the cluster, s2, has it", "this one was at "+s1.PeerURL, "if the other has moved", "`heddle cluster token s1`")
}

// TestLearnersSince: a learner is one since it was first seen, until it votes.
func TestLearnersSince(t *testing.T) {
	t.Parallel()
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	s := &Etcd{member: &member{}}
	if got := s.LearnerSince(1); !got.IsZero() {
		t.Errorf("never seen: %v", got)
	}
	s.member.learners.note([]Member{{ID: 1, Learner: true}, {ID: 2}}, first)
	s.member.learners.note([]Member{{ID: 1, Learner: true}, {ID: 2, Learner: true}}, later)
	if one, two := s.LearnerSince(1), s.LearnerSince(2); !one.Equal(first) || !two.Equal(later) {
		t.Errorf("since %v and %v, want %v and %v", one, two, first, later)
	}
	s.member.learners.note([]Member{{ID: 1}, {ID: 2, Learner: true}}, later)
	if got := s.LearnerSince(1); !got.IsZero() {
		t.Errorf("it votes: %v", got)
	}
}

// TestPeerRefusals: what no member of a cluster can be called or reached by is refused.
func TestPeerRefusals(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Embedded){
		`name "a/b" of a server`:             func(o *Embedded) { o.Peer.Name = "a/b" },
		`address ":2380" for members`:        func(o *Embedded) { o.Peer.Listen = ":2380" },
		`address "cloud:2379" for agents`:    func(o *Embedded) { o.Agents = "cloud:2379" },
		`address "0.0.0.0:2379" for agents`:  func(o *Embedded) { o.Agents = "0.0.0.0:2379" },
		`address "[::]:2380" for members`:    func(o *Embedded) { o.Peer.Listen = "[::]:2380" },
		`address "" for agents: want an IP`:  func(o *Embedded) { o.Agents = "" },
		`address "192.0.2.1" for members: w`: func(o *Embedded) { o.Peer.Listen = "192.0.2.1" },
	} {
		o := peerStore(t, "s1")
		change(&o)
		if _, err := Open(t.Context(), Options{Embedded: &o}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := os.Stat(filepath.Join(o.DataDir, "etcd")); err == nil {
			t.Errorf("%s: it left a store", want)
		}
	}
}

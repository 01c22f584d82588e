package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// joinMoment is a moment of a server's joining at which it is killed.
type joinMoment struct {
	name    string
	reached func(t *testing.T, joins, by *serverMachine) bool
}

// logged reports whether a server has logged words about another.
func (m *serverMachine) logged(t *testing.T, words, other string) bool {
	t.Helper()
	for line := range strings.Lines(m.run.text(t)) {
		if strings.Contains(line, words) && strings.Contains(line, other) {
			return true
		}
	}
	return false
}

// joinMoments are in the order in which a server that joins passes them.
func joinMoments() []joinMoment {
	hasVote := func(t *testing.T, joins, by *serverMachine) bool {
		return by.logged(t, "a member of the cluster has caught up and votes", "member="+joins.name)
	}
	return []joinMoment{
		{"admitted", func(t *testing.T, joins, by *serverMachine) bool {
			return by.logged(t, "admitted a server to the cluster", "server="+joins.name)
		}},
		{"with a log", func(t *testing.T, joins, by *serverMachine) bool {
			_, err := os.Stat(filepath.Join(joins.data, "etcd", "member", "wal"))
			return err == nil
		}},
		{"catching up", func(t *testing.T, joins, by *serverMachine) bool {
			return joins.logged(t, "joined the cluster; catching up", joins.name) || hasVote(t, joins, by)
		}},
		{"with a vote", hasVote},
	}
}

// killAt lets a machine join by a token of another server, and kills it at a moment.
func (m *serverMachine) killAt(t *testing.T, moment joinMoment, by *serverMachine) {
	t.Helper()
	writeFile(t, m.token, by.serverToken(t, m.name))
	m.run = launch(t, m.ns, m.member()...)
	within(t, m.name+" to be "+moment.name, func() bool { return moment.reached(t, m, by) })
	m.kill()
}

// TestServerIsKilledWhileItJoins: the second and the third server of a cluster are killed at
// moments of their joining and started again. They finish it, though the cluster may have no
// majority without them.
func TestServerIsKilledWhileItJoins(t *testing.T) {
	t.Parallel()
	for _, moment := range joinMoments() {
		t.Run(strings.ReplaceAll(moment.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			s := newClusterSite(t, 3)
			s1, s2, s3 := s.servers[0], s.servers[1], s.servers[2]
			s1.start(t, s1.alone("--cluster")...)
			s2.killAt(t, moment, s1)
			s2.finishesJoining(t)
			s1.waitMembers(t, "s1", "s2")
			by := s.leader(t, s1) // it gives the vote
			s3.killAt(t, moment, by)
			s3.finishesJoining(t)
			s1.waitMembers(t, "s1", "s2", "s3")
			login(t, s1.ns, "127.0.0.1", s1.data).mustCreate(t, "network", map[string]any{"name": "after"})
		})
	}
}

// finishesJoining starts a server that was killed while it joined, and waits until it has a vote.
func (m *serverMachine) finishesJoining(t *testing.T) {
	t.Helper()
	m.start(t, m.member()...)
	for _, file := range []string{m.token, filepath.Join(m.data, "cluster-join")} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s has joined and %s is still there", m.name, file)
		}
	}
}

// TestServerIsRemovedWhileItJoins: a server is killed when its store has just been made, and
// removed before it starts again. It finds that out, though its store knows no other member, and
// then joins by the token that it has.
func TestServerIsRemovedWhileItJoins(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 3)
	s1, s2, s3 := s.servers[0], s.servers[1], s.servers[2]
	s1.start(t, s1.alone("--cluster")...)
	s2.join(t, s1)
	s3.killAt(t, joinMoments()[1], s1)
	withinLease(t, "s3 to be removed", func() bool { // the others have to be connected for some seconds
		_, code := output(t, s1.ns, "cluster", "remove", "https://192.0.2.3:2380", "--data", s1.data)
		return code == 0
	})
	s3.run = launch(t, s3.ns, s3.member()...)
	s3.run.waitLog(t, "this server's store was removed from the cluster")
	s3.run.waitEnd(t)
	s3.finishesJoining(t)
	s1.waitMembers(t, "s1", "s2", "s3")
}

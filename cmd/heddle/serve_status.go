package main

import (
	"context"
	"fmt"
	"time"

	"heddle/internal/api/console"
	"heddle/internal/api/hosts"
	"heddle/internal/store/backend"
)

// storeMembers returns the store's members, with what is wrong with each.
func (s *server) storeMembers(ctx context.Context) ([]console.StoreMember, error) {
	space, err := s.store.Space(ctx)
	if err != nil {
		return nil, err
	}
	_, needed, diskFull := s.store.FullDisk()
	diskFull = diskFull && !s.config.cluster.on // whose servers report their disks, each its own
	members := []console.StoreMember{}
	for _, m := range space {
		member := console.StoreMember{Name: m.Member, Leader: m.Leader, Size: m.Size, Quota: m.Quota}
		switch {
		case diskFull:
			member.Problem, member.Fix = "its disk is full, and it accepts no writes", fmt.Sprintf("make room on the disk of the server's data directory, %s; it accepts writes again by itself once %d MiB are free", s.config.data, needed>>20)
		case m.NoSpace:
			member.Problem, member.Fix = "it refuses all writes for lack of space", "heddle store reclaim; docs/guides/operating.md has the rest"
		case m.Full():
			member.Problem, member.Fix = "it is full: only deletions and log-ins are accepted", "delete what is not needed, then: heddle store reclaim"
		case m.NearlyFull():
			member.Problem, member.Fix = fmt.Sprintf("it is nearly full: %d of %d MiB", m.Size>>20, m.Quota>>20), "heddle store reclaim, or raise its quota"
		}
		members = append(members, member)
	}
	return members, nil
}

// clusterMembers returns the members of the cluster that the embedded store is in.
func (s *server) clusterMembers(ctx context.Context) ([]console.ClusterMember, error) {
	members, err := s.store.Members(ctx)
	var all []console.ClusterMember
	for _, m := range members {
		all = append(all, console.ClusterMember{Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner, Since: s.store.LearnerSince(m.ID)})
	}
	return all, err
}

// certificates returns the certificates of the APIs and of the store's authority, as far as they
// can be read.
func (s *server) certificates() (all []console.Certificate) {
	c := s.config
	add := func(file string, one console.Certificate) {
		if end, err := certificateEnd(file); err == nil {
			one.End = end
			all = append(all, one)
		}
	}
	if c.tlsCert != "" {
		add(c.tlsCert, console.Certificate{Name: "the APIs (" + c.tlsCert + ")"})
	}
	if c.agents != "" {
		own, _ := backend.ServerCertificate(c.data)
		add(own, console.Certificate{Name: "the store's server", Renewed: true})
		add(backend.AuthorityFile(c.data), console.Certificate{Name: "the store's authority", Authority: true})
	}
	if c.etcd.CertFile != "" {
		add(c.etcd.CertFile, console.Certificate{Name: "this server towards the store (" + c.etcd.CertFile + ")"})
	}
	if c.hostsCACert != "" {
		add(c.hostsCACert, console.Certificate{Name: "the authority of hosts (" + c.hostsCACert + ")", Authority: true})
	}
	return all
}

// certificateEnd returns the end of this host's certificate; the zero time if it has none.
func (c *agentConfig) certificateEnd() time.Time {
	joined, err := hosts.Load(c.state)
	if err != nil {
		return time.Time{}
	}
	end, err := certificateEnd(joined.CertFile)
	if err != nil {
		return time.Time{} // the agent's log says so when it tries to renew it
	}
	return end
}

package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/task"
)

// Peer makes an embedded store a member of a cluster of such stores. Its data stay when it becomes
// the first one, and when all others have been removed.
//
//	first   ─ Open ─▶ a cluster of one
//	another ─ AddMember by the first ─▶ Open with Join ─▶ learner ─ has caught up ─▶ member
type Peer struct {
	Name   string // of the member, unique in the cluster
	Listen string // IP:port by which other members reach this one
	// Join lists all members, this one included, for one that has no data yet: NAME=URL. Without it
	// such a member makes a cluster of its own.
	Join []string
}

// URL returns the URL by which other members reach this one.
func (p *Peer) URL() string { return "https://" + p.Listen }

// CheckName returns an error unless a member can have the name.
func (p *Peer) CheckName() error {
	if !hostID.MatchString(p.Name) {
		return fmt.Errorf("name %q of a server: want letters, digits, dots, dashes and underscores, at most 63, and a letter or digit first", p.Name)
	}
	return nil
}

// Member is a member of a cluster of embedded stores.
type Member struct {
	ID       uint64 `json:"-"`
	Name     string `json:"name"` // "" = it was added and has never run
	PeerURL  string `json:"peer_url"`
	StoreURL string `json:"store_url"` // by which hosts reach it
	Learner  bool   `json:"learner"`   // it is still catching up, and has no vote
	// Own marks the member whose store it is in the list that this keeps for its next start.
	Own bool `json:"own,omitempty"`
}

var (
	// ErrRemoved: this store was removed from its cluster.
	ErrRemoved = errors.New("this server's store was removed from the cluster")
	// ErrQuorum: the change would leave the cluster without a majority.
	ErrQuorum = errors.New("the cluster would be left without a majority of its members")
	// ErrJoining: another member is joining.
	ErrJoining = errors.New("another server is joining the cluster")
)

const (
	// peerName is the name in members' certificates: hosts have certificates of the same authority.
	peerName = "heddle-member"
	// peersFile, beside the database, lists the members for those who do not open the store.
	peersFile = "members.json"
	// membersEvery is the interval between looks at the members.
	membersEvery = time.Second
	// peerTimeout bounds a question to another member.
	peerTimeout = 3 * time.Second
	// quorumNotice is the interval between log lines while a start waits for other members.
	quorumNotice = 10 * time.Second
	// removedSuffix is added to the directory of a store that was removed from its cluster.
	removedSuffix = ".removed"
)

func (o Embedded) peerCert() string { return filepath.Join(o.tlsDir(), "peer.crt") }
func (o Embedded) peerKey() string  { return filepath.Join(o.tlsDir(), "peer.key") }

// peerTLS returns how members recognize each other.
func (o Embedded) peerTLS() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: o.peerCert(), KeyFile: o.peerKey(), TrustedCAFile: o.caCert(), ClientCertAuth: true, AllowedCNs: []string{peerName},
		SkipClientSANVerify: true, // a member may connect from any of its addresses
	}
}

// configurePeer sets up etcd as a member of a cluster.
func (o Embedded) configurePeer(c *embed.Config) {
	peer := url.URL{Scheme: "https", Host: o.Peer.Listen}
	c.Name = o.Peer.Name
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.PeerTLSInfo = o.peerTLS()
	c.AdvertiseClientUrls = []url.URL{{Scheme: "https", Host: o.Agents}}
	c.InitialCluster = o.Peer.Name + "=" + o.Peer.URL()
	if len(o.Peer.Join) > 0 {
		c.InitialCluster, c.ClusterState = strings.Join(o.Peer.Join, ","), embed.ClusterStateFlagExisting
	}
	c.SnapshotCatchUpEntries = logEntries
}

// checkPeer returns an error unless the members can be reached by the settings.
func (o Embedded) checkPeer() error {
	if o.Peer == nil {
		return nil
	}
	if err := o.Peer.CheckName(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for what, address := range map[string]string{"members": o.Peer.Listen, "agents": o.Agents} {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
			return fmt.Errorf("store: address %q for %s: want an IP address and port at which other machines reach this one", address, what)
		}
	}
	return nil
}

// checkAlone returns an error if a store that is opened without its cluster is one of several
// members: it would have no majority.
func (o Embedded) checkAlone() error {
	members := ReadPast(o.DataDir).Members
	if len(members) < 2 || o.Alone || o.Peer != nil {
		return nil
	}
	return fmt.Errorf("the store in %s is one of the %d members of a cluster (%s): start heddle serve with --cluster; to move it elsewhere, remove the other servers first: heddle cluster remove NAME; "+
		"only if the others are lost for good, heddle cluster reset --data %s makes it a cluster of its own", o.DataDir, len(members), strings.Join(members, ", "), o.DataDir)
}

// checkMember returns an error if a store that was a member before cannot be the same one now: its
// log is lost, or it has the name or address of another member.
func (o Embedded) checkMember() error {
	members := o.readPeers()
	if o.Peer == nil || o.Alone || len(members) < 2 || o.beginsToJoin() {
		return nil
	}
	if !o.hasLog() {
		return fmt.Errorf("the store in %s has lost its log, %s, and cannot go on as a member of the cluster: on another server run `heddle cluster remove %s` and `heddle cluster token %s`, "+
			"move %s away, and put the token into the file of --join-file", o.DataDir, o.logDir(), o.Peer.Name, o.Peer.Name, o.etcdDir())
	}
	return o.checkUnique(members)
}

// logDir returns the directory of etcd's log.
func (o Embedded) logDir() string { return filepath.Join(o.etcdDir(), "member", "wal") }

// hasLog reports whether the store has a log, by which etcd knows which member of which cluster it
// is. It has one from its first start.
func (o Embedded) hasLog() bool {
	files, err := filepath.Glob(filepath.Join(o.logDir(), "*.wal"))
	return err != nil || len(files) > 0
}

// checkUnique returns an error if this member has taken another's name or address since it noted
// the members.
func (o Embedded) checkUnique(members []Member) error {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Own })
	if i < 0 { // an earlier version noted them
		i = slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == o.Peer.URL() })
	}
	if i < 0 {
		return nil
	}
	own := members[i]
	for _, other := range slices.Concat(members[:i], members[i+1:]) {
		switch {
		case other.Name == o.Peer.Name && own.Name != o.Peer.Name:
			return fmt.Errorf("name %s: another server of the cluster, at %s, has it: give this one its former name, %s, or one that no other has%s",
				o.Peer.Name, other.PeerURL, own.Name, o.orJoinAnew(own))
		case other.PeerURL == o.Peer.URL() && own.PeerURL != o.Peer.URL():
			return fmt.Errorf("address %s for members: another server of the cluster, %s, has it: correct --peer-listen, or --agents-listen; this one was at %s%s",
				o.Peer.Listen, other.Name, own.PeerURL, o.orJoinAnew(own))
		}
	}
	return nil
}

// orJoinAnew returns how to go on if the other server has moved since this one noted the members,
// which it cannot ask before it runs.
func (o Embedded) orJoinAnew(own Member) string {
	return fmt.Sprintf("; if the other has moved while this one was down, which `heddle cluster list` on a running server shows: there run `heddle cluster remove %s` and `heddle cluster token %s`, "+
		"move %s away, and put the token into the file of --join-file", own.PeerURL, o.Peer.Name, o.etcdDir())
}

// describe returns the names and URLs of members for the log.
func describe(members []Member) string {
	var words []string
	for _, m := range members {
		words = append(words, cmp.Or(m.Name, "a server that has never run")+" at "+m.PeerURL)
	}
	return strings.Join(words, ", ")
}

// readPeers returns the members as this one has known them last, or nil.
func (o Embedded) readPeers() []Member { return membersIn(o.etcdDir()) }

// membersIn returns the members that a store's directory lists, or nil.
func membersIn(dir string) (members []Member) {
	raw, err := os.ReadFile(filepath.Join(dir, peersFile))
	if err != nil || json.Unmarshal(raw, &members) != nil {
		return nil
	}
	return members
}

// otherMembers returns the members that a server which was removed from their cluster, and has no
// store since, has known last.
func (o Embedded) otherMembers() []Member {
	if _, err := os.Stat(o.etcdDir()); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return slices.DeleteFunc(membersIn(o.etcdDir()+removedSuffix), func(m Member) bool { return m.Own })
}

// beginsToJoin reports whether the store has been admitted to a cluster and has no data yet.
func (o Embedded) beginsToJoin() bool {
	return o.Peer != nil && len(o.Peer.Join) > 0 && !o.hasLog()
}

// recordJoin notes the members that have admitted this one before it starts as a member: it may be
// killed before it hears of them from the others.
func (o Embedded) recordJoin() error {
	var members []Member
	for _, one := range o.Peer.Join {
		name, peerURL, _ := strings.Cut(one, "=")
		members = append(members, Member{Name: name, PeerURL: peerURL, Own: peerURL == o.Peer.URL()})
	}
	if err := os.MkdirAll(o.etcdDir(), 0o700); err != nil {
		return err
	}
	return o.writePeers(members)
}

// memberStores returns the URLs by which hosts reach the members that vote; nil without a cluster.
// Of a server that was removed they are the others'.
func (o Embedded) memberStores() (urls []string) {
	members := o.readPeers()
	if len(members) < 2 {
		members = o.otherMembers()
	}
	for _, m := range members {
		if !m.Learner && strings.HasPrefix(m.StoreURL, "https://") {
			urls = append(urls, m.StoreURL)
		}
	}
	return urls
}

// Past is a description of what a data directory has of a store.
type Past struct {
	Store   bool     // it has one, or the beginning of one
	Log     bool     // its store has started before, alone or as a member of a cluster
	Members []string // names of the members of its cluster, as it has known them last
	Removed string   // the directory of a store that was removed from its cluster, or ""
}

// ReadPast returns what a data directory has of a store that no server need have open.
func ReadPast(dataDir string) (p Past) {
	o := Embedded{DataDir: dataDir}
	_, err := os.Stat(o.etcdDir())
	p.Store, p.Log = err == nil, o.hasLog()
	for _, m := range o.readPeers() {
		p.Members = append(p.Members, cmp.Or(m.Name, m.PeerURL))
	}
	if _, err := os.Stat(o.etcdDir() + removedSuffix); err == nil {
		p.Removed = o.etcdDir() + removedSuffix
	}
	return p
}

// Members returns the members of the cluster that an embedded store is in.
func (s *Etcd) Members(ctx context.Context) (all []Member, err error) {
	r, err := s.client.MemberList(s.as(ctx))
	if err != nil {
		return nil, explain(ctx, "list members", err)
	}
	for _, m := range r.Members {
		all = append(all, newMember(m.ID, m.Name, m.IsLearner, m.PeerURLs, m.ClientURLs))
	}
	slices.SortFunc(all, compareMembers)
	return all, nil
}

func newMember(id uint64, name string, learner bool, peerURLs, storeURLs []string) Member {
	m := Member{ID: id, Name: name, Learner: learner}
	if len(peerURLs) > 0 {
		m.PeerURL = peerURLs[0]
	}
	if len(storeURLs) > 0 {
		m.StoreURL = storeURLs[0]
	}
	return m
}

func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// Leader returns the id of the leading member as this one knows it, and its own.
func (s *Etcd) Leader() (leader, own uint64) {
	if s.member == nil {
		return 0, 0
	}
	return uint64(s.member.etcd.Server.Leader()), uint64(s.member.etcd.Server.MemberID())
}

// AddMember admits a member, which then opens its store with what is returned as [Peer.Join]. One
// that was admitted at the same URL before need not be admitted again.
func (s *Etcd) AddMember(ctx context.Context, name, peerURL string) (join []string, err error) {
	members, err := s.Members(ctx)
	if err != nil {
		return nil, err
	}
	known := slices.ContainsFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
	if !known {
		if _, err := s.client.MemberAddAsLearner(s.as(ctx), []string{peerURL}); err != nil {
			return nil, explainMembers(ctx, "add member "+name, err)
		}
	}
	for _, m := range members {
		if m.PeerURL != peerURL {
			join = append(join, cmp.Or(m.Name, "unknown")+"="+m.PeerURL)
		}
	}
	return append(join, name+"="+peerURL), nil
}

// RemoveMember removes a member for good. Its server ends.
func (s *Etcd) RemoveMember(ctx context.Context, id uint64) error {
	_, err := s.client.MemberRemove(s.as(ctx), id)
	return explainMembers(ctx, "remove member", err)
}

// explainMembers is explain for changes of the members.
func explainMembers(ctx context.Context, what string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrMemberNotEnoughStarted):
		return fmt.Errorf("%s: %w: not enough of the others have been connected for the last five seconds", what, ErrQuorum)
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return fmt.Errorf("%s: %w", what, ErrJoining)
	case errors.Is(err, rpctypes.ErrMemberNotFound):
		return fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	return explain(ctx, what, err)
}

// join waits until this member has a vote, and corrects its address if it has another one now.
func (m *member) join(ctx context.Context, s *Etcd) error {
	o, log := m.options, m.log
	m.background(func(ctx context.Context) { m.keepMembers(ctx, s) })
	m.background(func(ctx context.Context) { m.cutRemovedHosts(ctx, s) })
	own := uint64(m.etcd.Server.MemberID())
	for said := false; ; {
		members, err := s.Members(ctx)
		i := slices.IndexFunc(members, func(m Member) bool { return m.ID == own })
		switch {
		case errors.Is(err, store.ErrUnavailable) || err == nil && i < 0: // it has not heard of itself yet
		case err != nil:
			return err
		case members[i].PeerURL != o.Peer.URL():
			if _, err := s.client.MemberUpdate(s.as(ctx), own, []string{o.Peer.URL()}); err != nil {
				return explainMembers(ctx, "change the address of member "+o.Peer.Name, err)
			}
			log.Info("this member of the cluster has another address", "member", o.Peer.Name, "before", members[i].PeerURL, "now", o.Peer.URL())
			continue
		case !members[i].Learner:
			return nil
		case !said:
			log.Info("joined the cluster; catching up", "member", o.Peer.Name)
			said = true
		}
		select {
		case <-m.etcd.Server.StopNotify():
			return m.stopped(ctx, errEnded)
		case <-time.After(membersEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keepMembers gives a vote to learners that have caught up while this member leads, and notes who
// the members are, until ctx ends.
func (m *member) keepMembers(ctx context.Context, s *Etcd) {
	for ; ctx.Err() == nil; task.Pause(ctx, membersEvery) {
		members := m.knownMembers()
		m.recordMembers(members)
		m.learners.note(members, time.Now())
		leader, own := s.Leader()
		for _, one := range members {
			if leader != own || !one.Learner || one.Name == "" {
				continue
			}
			_, err := s.client.MemberPromote(s.as(ctx), one.ID)
			if err == nil {
				m.log.Info("a member of the cluster has caught up and votes", "member", one.Name)
			} else if !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) && ctx.Err() == nil {
				m.log.Warn("cannot give a vote to a member of the cluster; will try again", "member", one.Name, "err", err)
			}
		}
	}
}

// learners has when this member first saw each learner. It is safe for concurrent use.
type learners struct {
	mu    sync.Mutex
	since map[uint64]time.Time
}

// note takes in the members as they are now.
func (l *learners) note(members []Member, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.since
	l.since = map[uint64]time.Time{}
	for _, m := range members {
		if !m.Learner {
			continue
		}
		l.since[m.ID] = now
		if first, ok := before[m.ID]; ok {
			l.since[m.ID] = first
		}
	}
}

// LearnerSince returns when this member first saw another as a learner, as far as it has run since;
// the zero Time if it has not yet, or the other is none.
func (s *Etcd) LearnerSince(id uint64) time.Time {
	if s.member == nil {
		return time.Time{}
	}
	l := &s.member.learners
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since[id]
}

// knownMembers returns the members as this one knows them, without asking the others.
func (m *member) knownMembers() (all []Member) {
	for _, one := range m.etcd.Server.Cluster().Members() {
		known := newMember(uint64(one.ID), one.Name, one.IsLearner, one.PeerURLs, one.ClientURLs)
		known.Own = one.ID == m.etcd.Server.MemberID()
		all = append(all, known)
	}
	slices.SortFunc(all, compareMembers)
	return all
}

// recordMembers notes who the members are, for a start that may come without the others.
func (m *member) recordMembers(members []Member) {
	if slices.Equal(members, m.known) {
		return
	}
	if err := m.options.writePeers(members); err != nil {
		m.log.Warn("cannot record the members of the cluster", "err", err)
		return
	}
	m.known = members
}

func (o Embedded) writePeers(members []Member) error {
	raw, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(o.etcdDir(), peersFile), raw)
}

// cutRemovedHosts cuts connections when a host is removed by another member: etcd authenticates a
// watch only when it begins.
func (m *member) cutRemovedHosts(ctx context.Context, s *Etcd) {
	f := follow.New(follow.Options{Store: s, Prefixes: []string{joinedHosts}})
	_ = f.Run(ctx, func(_ context.Context, u follow.Update) { // it ends with ctx alone
		if slices.ContainsFunc(u.Events, func(e store.Event) bool { return e.Deleted }) {
			m.front.cut()
		}
	})
}

// awaitReady returns when the server has a leader.
func (m *member) awaitReady(ctx context.Context) error {
	notice := time.NewTicker(quorumNotice)
	defer notice.Stop()
	for {
		select {
		case <-m.etcd.Server.ReadyNotify():
			return nil
		case <-m.etcd.Server.StopNotify():
			return m.stopped(ctx, errEnded)
		case err := <-m.etcd.Err():
			return m.stopped(ctx, err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-notice.C:
			if m.options.Peer == nil {
				continue
			}
			if m.removedByPeers(ctx) { // etcd itself does not ask before it has heard of a peer
				return m.leave()
			}
			m.log.Warn("waiting for a majority of the cluster's members", "members", describe(m.options.readPeers()))
		}
	}
}

var errEnded = errors.New("etcd has ended; the log above has its reason")

// stopped returns why etcd has ended by itself: err, unless the store was removed from its cluster.
func (m *member) stopped(ctx context.Context, err error) error {
	o := m.options
	if o.Peer != nil && (m.etcd.Server.IsIDRemoved(uint64(m.etcd.Server.MemberID())) || m.removedByPeers(ctx)) {
		return m.leave()
	}
	return err
}

// leave has the store put aside when it is closed, since it was removed from its cluster, and
// returns that as an error.
func (m *member) leave() error {
	m.removed = m.options.etcdDir()
	return fmt.Errorf("%w: its data are kept in %s; to let it join again, start it with a token of `heddle cluster token %s`", ErrRemoved, m.removed+removedSuffix, m.options.Peer.Name)
}

// putAside renames the directory of a store that was removed from its cluster, so that it can join
// again without data.
func (m *member) putAside() {
	aside := m.removed + removedSuffix
	if err := errors.Join(os.RemoveAll(aside), os.Rename(m.removed, aside)); err != nil {
		m.log.Error("cannot put the removed store aside; move its directory away before it joins again", "directory", m.removed, "err", err)
	}
}

// removedByPeers reports whether another member knows that this one was removed. One that does not
// list it is no proof: it may lag behind.
func (m *member) removedByPeers(ctx context.Context) bool {
	info := m.options.peerTLS()
	config, err := info.ClientConfig()
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: peerTimeout}
	cluster, own := m.etcd.Server.Cluster().ID(), m.etcd.Server.MemberID()
	for _, peer := range m.options.readPeers() {
		if peer.PeerURL == m.options.Peer.URL() {
			continue
		}
		if removed, err := removedAt(ctx, client, peer.PeerURL, cluster, own); err == nil && removed {
			return true
		}
	}
	return false
}

// removedAt asks a member for a stream of messages as another, but without its ID: the answer is
// Gone if that was removed, and an error of the request otherwise.
func removedAt(ctx context.Context, client *http.Client, peerURL string, cluster, id types.ID) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, peerURL+rafthttp.RaftStreamPrefix+"/message/"+id.String(), nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("X-Server-Version", version.Version)
	req.Header.Set("X-Min-Cluster-Version", version.MinClusterVersion)
	req.Header.Set("X-Etcd-Cluster-ID", cluster.String())
	res, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusGone, nil
}

// Serve returns nil when ctx ends, or why an embedded store has ended by itself before.
func (s *Etcd) Serve(ctx context.Context) error {
	if s.member == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.member.etcd.Server.StopNotify():
		return s.member.stopped(ctx, errEnded)
	}
}

// ResetCluster makes the store in dataDir, which no server has open, the only member of its
// cluster. The others must never run again.
func ResetCluster(ctx context.Context, dataDir string, log *slog.Logger) error {
	s, err := Open(ctx, Options{Embedded: &Embedded{DataDir: dataDir, Existing: true, Alone: true}, Log: log})
	if err != nil {
		return err
	}
	members, err := s.Members(ctx)
	if err == nil {
		err = s.member.options.writePeers(members)
	}
	return errors.Join(err, s.Close())
}

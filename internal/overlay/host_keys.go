package overlay

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/overlay/hostkey"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// hostKeys keeps what this host shares with each other host of its zones: it publishes this host's
// keys, derives from the others', enters the tunnels' secrets in the datapath, and seals and opens
// state messages.
type hostKeys struct {
	host    string
	dp      *datapath.Datapath
	ring    *hostkey.Ring
	pairs   *hostkey.Pairs
	windows *datapath.Table // what has come of each host; outlives the agent, see openWindows
	senders *senders
	crypt   *encryption // nil: this host does not encrypt
	log     *slog.Logger
	publish func(*topology.TunnelKeys)
	clock   func() time.Time
	kick    task.Notice // wakes Run
	// hostName returns the name of a host, for logs.
	hostName func(id string) string

	changing sync.Mutex // held while peers are derived and entered
	mu       sync.RWMutex
	hosts    map[string]*otherHost // that share a zone with this one
}

// otherHost is one that this host exchanges frames with.
type otherHost struct {
	addrs  []netip.Addr
	record *topology.TunnelKeys // nil: it publishes none
	// created is the revision that made the record.
	created int64
	alive   bool
	pair    *hostkey.Pair // nil: what it publishes cannot be used
	plain   bool          // and that was logged
	out     bool          // some of its addresses are not entered; guarded by changing

	mu     sync.Mutex
	window hostkey.Window
}

const (
	// windowsKept bounds the hosts whose repeated messages are detected.
	windowsKept = 4096
	windowKey   = 16 // bytes: the host's id, or zeros for the boot number
	// stepEvery is the interval of checks for a due rotation.
	stepEvery = 15 * time.Second
)

// openKeys loads this host's keys and what it has received. dir is where they are kept.
func openKeys(dir, host string, dp *datapath.Datapath, log *slog.Logger, clock func() time.Time) (*hostKeys, error) {
	ring, err := hostkey.Load(dir, clock())
	if err != nil {
		return nil, err
	}
	k := &hostKeys{host: host, dp: dp, ring: ring, log: log, clock: clock, senders: newSenders(dp), kick: task.NewNotice(), hosts: map[string]*otherHost{}}
	boot, err := k.openWindows()
	if err != nil {
		return nil, err
	}
	k.pairs = hostkey.NewPairs(ring, host, boot)
	return k, nil
}

// openWindows opens the kernel's table of received messages. It holds the boot number too, which is
// part of the keys of messages to this host: none sealed for an earlier table is accepted.
func (k *hostKeys) openWindows() (boot uint64, err error) {
	if k.windows, err = k.dp.Table("received", windowKey, hostkey.WindowSize, windowsKept); err != nil {
		return 0, err
	}
	value, err := k.windows.Get(make([]byte, windowKey))
	if err != nil {
		return 0, err
	}
	if value != nil {
		return binary.BigEndian.Uint64(value), nil
	}
	value = make([]byte, hostkey.WindowSize)
	if _, err := rand.Read(value[:8]); err != nil {
		return 0, err
	}
	value[0] |= 1 // never 0
	return binary.BigEndian.Uint64(value), k.windows.Put(make([]byte, windowKey), value)
}

func (k *hostKeys) windowOf(host string) (w hostkey.Window) {
	id, err := uuid.Parse(host)
	if err != nil {
		return w
	}
	value, err := k.windows.Get(id[:])
	if err == nil && value != nil {
		w, err = hostkey.ParseWindow(value)
	}
	if err != nil {
		k.log.Warn("cannot read the received messages of a host", "host", k.hostName(host), "id", host, "err", err)
	}
	return w
}

// begin is called with the first snapshot, before any host is entered.
func (k *hostKeys) begin(s *snapshot.Snapshot, registered bool) {
	if registered && s.Get(schema.TunnelKeys.Name(), k.host) == nil {
		if err := k.ring.OpenForUpgrade(); err != nil {
			k.log.Error("cannot begin with tunnel keys as an upgraded host does: frames are lost until the other hosts know them", "err", err)
		}
	}
	k.publish(k.public())
}

func (k *hostKeys) public() *topology.TunnelKeys {
	keys := k.pairs.Public()
	keys.Hellos = true
	if k.crypt != nil {
		keys.Wireguard, keys.WireguardNext = k.crypt.public()
	}
	return keys
}

// published reports whether the store has what this host publishes.
func (k *hostKeys) published(s *snapshot.Snapshot) bool {
	e := s.Get(schema.TunnelKeys.Name(), k.host)
	return e != nil && reflect.DeepEqual(e.Record, k.public())
}

// setHosts replaces the hosts that share a zone with this one. Frames of others are rejected.
func (k *hostKeys) setHosts(s *snapshot.Snapshot, addrs map[string][]netip.Addr) {
	k.changing.Lock()
	defer k.changing.Unlock()
	wanted := map[netip.Addr]bool{}
	var fresh []string
	k.mu.Lock()
	for host, now := range addrs {
		for _, a := range now {
			wanted[a] = true
		}
		h := k.hosts[host]
		if h == nil {
			h = &otherHost{window: k.windowOf(host)}
			h.record, h.created = recordOf(s, host)
			k.hosts[host] = h
			fresh = append(fresh, host)
		} else if !slices.Equal(h.addrs, now) {
			fresh = append(fresh, host)
		}
		h.addrs = now
		h.alive = s.Get(schema.HostStates.Name(), host) != nil
	}
	var gone []string
	for host := range k.hosts {
		if addrs[host] == nil {
			gone = append(gone, host)
			delete(k.hosts, host)
		}
	}
	k.mu.Unlock()
	if k.crypt != nil {
		k.crypt.forget(gone)
	}
	for a := range k.dp.Peers() {
		if !wanted[a] {
			if err := k.dp.RemovePeer(a); err != nil {
				k.log.Error("cannot stop accepting frames of a host that has gone", "address", a, "err", err)
			}
		}
	}
	for _, host := range gone {
		if id, err := uuid.Parse(host); err == nil {
			if err := k.windows.Delete(id[:]); err != nil {
				k.log.Warn("cannot remove the received messages of a host", "host", k.hostName(host), "id", host, "err", err)
			}
		}
	}
	k.enterOut() // there may be room now
	k.derive(fresh)
	k.senders.setHosts(addrs)
}

// recordOf returns what a host has published, nil for nothing, and the revision that made the
// record.
func recordOf(s *snapshot.Snapshot, host string) (record *topology.TunnelKeys, created int64) {
	if e := s.Get(schema.TunnelKeys.Name(), host); e != nil {
		return e.Record.(*topology.TunnelKeys), e.Create
	}
	return nil, 0
}

// setRecords takes in what some hosts have published, or that they are alive or not.
func (k *hostKeys) setRecords(s *snapshot.Snapshot, hosts []string) {
	k.changing.Lock()
	defer k.changing.Unlock()
	var changed []string
	k.mu.Lock()
	for _, host := range hosts {
		h := k.hosts[host]
		if h == nil {
			continue
		}
		h.alive = s.Get(schema.HostStates.Name(), host) != nil
		before := h.record
		if h.record, h.created = recordOf(s, host); !reflect.DeepEqual(before, h.record) {
			changed = append(changed, host)
		}
	}
	k.mu.Unlock()
	k.derive(changed)
}

// beginSession has other hosts take this host's messages again, after they have had later ones from
// another agent with its keys.
func (k *hostKeys) beginSession() {
	if err := k.ring.BeginSession(k.clock()); err != nil {
		k.log.Error("cannot begin a session; other hosts may refuse this host's messages until its agent is restarted", "err", err)
		return
	}
	k.deriveAll()
}

// deriveAll derives for all hosts, when this host's own keys have changed.
func (k *hostKeys) deriveAll() {
	k.changing.Lock()
	defer k.changing.Unlock()
	k.mu.RLock()
	all := slices.Collect(maps.Keys(k.hosts))
	k.mu.RUnlock()
	k.derive(all)
}

// derive derives what is shared with some hosts, on all cores, and enters it. It needs changing.
func (k *hostKeys) derive(hosts []string) {
	if len(hosts) == 0 {
		return
	}
	if k.crypt != nil {
		k.crypt.learn(k.records(hosts))
		defer k.crypt.wake()
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, host := range hosts {
		g.Go(func() error {
			k.mu.RLock()
			h := k.hosts[host]
			record, before := h.record, h.pair
			k.mu.RUnlock()
			pair, err := k.pairs.Derive(host, record, before)
			if err != nil {
				k.log.Error("not accepting frames of a host whose tunnel keys cannot be used", "host", k.hostName(host), "id", host, "err", err)
			}
			k.mu.Lock()
			h.pair = pair
			warn := record == nil && !h.plain
			h.plain = record == nil
			addrs := h.addrs
			k.mu.Unlock()
			if warn {
				k.log.Warn("frames of a host are accepted without a secret: its agent is of an earlier version; upgrade it, or remove the host", "host", k.hostName(host), "id", host)
			}
			k.enter(host, h, addrs, pair)
			if before == nil && pair != nil {
				k.senders.entered(host)
			}
			return nil
		})
	}
	_ = g.Wait() // none of them fails
}

// records returns what some hosts have published.
func (k *hostKeys) records(hosts []string) (all []hostRecord) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, host := range hosts {
		h := k.hosts[host]
		all = append(all, hostRecord{host, h.addrs, h.record, h.created})
	}
	return all
}

// enter accepts frames of a host at its addresses, or none if nothing is shared with it.
func (k *hostKeys) enter(host string, h *otherHost, addrs []netip.Addr, pair *hostkey.Pair) {
	wasOut := h.out
	h.out = false
	for _, a := range addrs {
		var err error
		if pair == nil {
			err = k.dp.RemovePeer(a)
		} else {
			p := datapath.Peer{Send: pair.Send, Accept: pair.Accept, Ways: datapath.Plain}
			if k.crypt != nil {
				p.Ways, p.Wireguard = k.crypt.ways(host)
			}
			err = k.dp.SetPeer(a, p)
		}
		if err != nil {
			h.out = true
			if !wasOut {
				k.log.Error("cannot enter a host, will try again", "host", k.hostName(host), "id", host, "address", a, "err", err)
			}
		}
	}
	if wasOut && !h.out {
		k.senders.entered(host)
	}
}

// enterOut tries to enter the hosts again that could not be. It needs changing.
func (k *hostKeys) enterOut() {
	k.reenter(func(_ string, h *otherHost) bool { return h.out })
}

// reenterHosts enters hosts to which frames travel in another way than before.
func (k *hostKeys) reenterHosts(hosts []string) {
	k.changing.Lock()
	defer k.changing.Unlock()
	k.reenter(func(host string, _ *otherHost) bool { return slices.Contains(hosts, host) })
}

// reenter enters hosts as they are. It needs changing.
func (k *hostKeys) reenter(selected func(string, *otherHost) bool) {
	k.mu.RLock()
	hosts := maps.Clone(k.hosts)
	k.mu.RUnlock()
	for host, h := range hosts {
		if selected(host, h) {
			k.enter(host, h, h.addrs, h.pair)
		}
	}
}

// Run rotates this host's keys until ctx ends. snapshot is what is known of the store.
func (k *hostKeys) Run(ctx context.Context, snapshot func() *snapshot.Snapshot) error {
	tick := time.Tick(stepEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-k.kick:
		}
		if err := k.step(ctx, snapshot()); err != nil {
			k.log.Error("cannot rotate tunnel keys, will try again", "err", err)
		}
		k.changing.Lock()
		k.enterOut()
		k.changing.Unlock()
	}
}

// step does what is due of a rotation. Keys are accepted before they are published.
func (k *hostKeys) step(ctx context.Context, s *snapshot.Snapshot) error {
	k.mu.RLock()
	allAlive := true
	for _, h := range k.hosts {
		allAlive = allAlive && h.alive
	}
	k.mu.RUnlock()
	change, err := k.ring.Step(k.clock(), k.published(s), allAlive)
	if err != nil || change == hostkey.None {
		return err
	}
	k.log.Debug("tunnel keys rotate", "step", change)
	k.deriveAll()
	if k.crypt != nil && change == hostkey.Switched {
		// Before it is published: the others shake hands with the new key at once.
		if err := k.crypt.setPrivate(ctx); err != nil {
			k.log.Error("cannot change the key of the WireGuard device, will try again", "err", err)
		}
	}
	k.publish(k.public())
	return nil
}

// plainHosts counts the hosts that are accepted without secrets.
func (k *hostKeys) plainHosts() (n int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, h := range k.hosts {
		if h.pair != nil && h.pair.Plain {
			n++
		}
	}
	return n
}

// helloHosts returns the hosts that take hellos and share a key with this one, each with whether
// the store has its agent as alive.
func (k *hostKeys) helloHosts() map[string]bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	hosts := map[string]bool{}
	for host, h := range k.hosts {
		if h.record != nil && h.record.Hellos && h.pair != nil && h.pair.Sealed() {
			hosts[host] = h.alive
		}
	}
	return hosts
}

func (k *hostKeys) find(host string) (*otherHost, *hostkey.Pair) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	h := k.hosts[host]
	if h == nil {
		return nil, nil
	}
	return h, h.pair
}

var errNoPair = errors.New("the host's tunnel keys are not known")

// seal writes the messages that send state to a host.
func (k *hostKeys) seal(host string, s flowstate.State) ([][]byte, error) {
	_, pair := k.find(host)
	if pair == nil {
		return nil, fmt.Errorf("state message to host %s: %w", host, errNoPair)
	}
	if !pair.Sealed() {
		return s.Messages(k.host)
	}
	bodies, err := s.Bodies()
	var messages [][]byte
	for _, body := range bodies {
		head, err := pair.Next()
		if err != nil {
			return messages, err
		}
		written := flowstate.Envelope(head).Append(make([]byte, 0, flowstate.EnvelopeSize+len(body)+hostkey.Overhead))
		messages = append(messages, pair.Seal(written, head, written, body))
	}
	return messages, err
}

// open returns what a host's message holds, or why it is rejected.
func (k *hostKeys) open(host string, message []byte) (s flowstate.State, reason dropReason, err error) {
	h, pair := k.find(host)
	if pair == nil {
		return s, dropForged, errNoPair
	}
	if flowstate.IsPlain(message) {
		if !pair.Plain {
			return s, dropForged, errors.New("it is not sealed")
		}
		m, err := flowstate.ParseMessage(message)
		if err == nil && m.Sender != host {
			err = errors.New("it names another sender: " + m.Sender)
		}
		return m.State, dropStateMessage, err
	}
	e, written, sealed, err := flowstate.ParseEnvelope(message)
	if err != nil {
		return s, dropStateMessage, err
	}
	body, err := pair.Open(hostkey.Head(e), written, sealed)
	if err != nil {
		return s, dropForged, err
	}
	if !k.isNew(host, h, pair, hostkey.Head(e)) {
		return s, dropReplayed, errors.New("it has come before")
	}
	s, err = flowstate.ParseBody(body)
	return s, dropStateMessage, err
}

// isNew records a message, also for later agents, and reports whether it is not a repetition.
func (k *hostKeys) isNew(host string, h *otherHost, pair *hostkey.Pair, head hostkey.Head) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.window.Key != head.SenderKey && !pair.Uses(h.window.Key) {
		h.window = hostkey.Window{} // a reinstalled machine; its sessions may be lower
	}
	if !h.window.Accept(head) {
		return false
	}
	id, err := uuid.Parse(host)
	if err == nil {
		err = k.windows.Put(id[:], h.window.Append(nil))
	}
	if err != nil {
		k.log.Warn("a host's message could be repeated after a restart of this agent", "host", k.hostName(host), "id", host, "err", err)
	}
	return true
}

// wallClock is a clock that tests can set.
type wallClock struct{ ahead atomic.Int64 }

func (c *wallClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

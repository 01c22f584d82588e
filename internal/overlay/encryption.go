package overlay

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/hostkey"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/task"
)

// Encryption selects which of this host's tunnelled frames are encrypted.
type Encryption string

const (
	// NoEncryption sends in the clear.
	NoEncryption Encryption = "off"
	// Encrypt encrypts between this host and those that encrypt as well.
	Encrypt Encryption = "on"
	// RequireEncryption has no tunnels with hosts that do not encrypt.
	RequireEncryption Encryption = "require"
)

// ParseEncryption reads "off", "on" or "require". A YAML file says true for on, and false for off.
func ParseEncryption(s string) (Encryption, error) {
	switch s {
	case "off", "false":
		return NoEncryption, nil
	case "on", "true":
		return Encrypt, nil
	case "require":
		return RequireEncryption, nil
	}
	return "", fmt.Errorf("%q: want off, on or require", s)
}

// encryption keeps the WireGuard device, with the other hosts as its peers.
//
// Frames to a host that has published a key go by the device from the first one on. Only where they
// have travelled in the clear so far, because one of the two hosts has just enabled encryption, do
// they go on so until the handshake, to lose none. Nothing ever falls back.
type encryption struct {
	required bool
	device   *wireguard.Device
	dp       *datapath.Datapath
	ring     *hostkey.Ring
	reenter  func(hosts []string) // has the datapath accept frames of these hosts as ways says now
	moved    func()               // the way to a host is another one
	mtu      func() int           // of the device, 0 while it is not known
	clock    func() time.Time
	log      *slog.Logger
	kick     task.Notice

	working sync.Mutex // held while the device is configured
	entered map[wireguard.Key]wireguard.Peer
	private wireguard.Key

	mu     sync.Mutex
	link   int // index of the device, 0: there is none
	hosts  map[string]*encryptedHost
	named  map[netip.Addr]string // hosts by address
	owners keyOwners
	logged string // in the log
}

// encryptedHost is one that encrypts.
type encryptedHost struct {
	addrs     []netip.Addr
	published publishedKeys
	refused   string // why its keys cannot be used, as logged
	rejected  string // why the device does not take it as a peer, as logged

	key      wireguard.Key  // zero: what the host has published cannot be used
	next     *wireguard.Key // that the host is about to change to
	changed  bool           // it has: its greeting came before its word in the store
	sending  bool           // frames to it are encrypted
	plain    bool           // frames of it may come in the clear
	since    time.Time      // when sending began, or its key was known
	greeting bool           // until hands are shaken
	greet    time.Time      // from when on this host asks for that
}

const (
	// encryptEvery is the interval of checks for the device and for awaited handshakes.
	encryptEvery = time.Second
	// greetDelay is the time for which a host waits for the other to begin a handshake. Two that
	// begin at once may end with a session each that the other lacks, for up to 15 s.
	greetDelay = 2 * time.Second
	// switchTimeout bounds how long a new key waits for handshakes before it is published.
	switchTimeout = 100 * time.Millisecond
	// deadDevice is the index of no interface: frames for it are dropped.
	deadDevice = 1<<31 - 1
)

var (
	errNoDevice     = errors.New("the WireGuard device is not there")
	errNotEncrypted = errors.New("the host does not encrypt, and encryption is required here")
)

// wireguardName returns the name of a datapath's device. It must be unique on the machine: the
// socket that configures the device is outside of the namespace.
func wireguardName(datapath string) string {
	if name := "wg-" + datapath; len(name) < unix.IFNAMSIZ {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(datapath))
	return fmt.Sprintf("wg-%08x", h.Sum32())
}

// openEncryption finds the device that an earlier agent may have left.
func openEncryption(o Options, n *hostnet.Linux, dp *datapath.Datapath, clock func() time.Time) *encryption {
	e := &encryption{required: o.Encryption == RequireEncryption, dp: dp, clock: clock, log: o.Log,
		kick: task.NewNotice(), hosts: map[string]*encryptedHost{}, named: map[netip.Addr]string{}, owners: keyOwners{self: o.HostID, of: map[wireguard.Key]string{}}}
	e.device = wireguard.New(wireguard.Options{Name: wireguardName(o.Datapath), Net: n, Command: wireguardProcess, Died: e.wake, Log: o.Log})
	if l, err := e.device.Find(); err == nil {
		e.link = l.Index
		e.owners.adopt(e.device)
	}
	return e
}

func (e *encryption) wake() { e.kick.Give() }

func (e *encryption) public() (current, next []byte) {
	current, next = e.ring.Wireguard()
	return publicOf(current), publicOf(next)
}

func publicOf(private []byte) []byte {
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil { // nil: there is none; the ring holds no others
		return nil
	}
	return key.PublicKey().Bytes()
}

// greetAgain has hands shaken, by this host at once or only once the other one has had the time to.
func (h *encryptedHost) greetAgain(later bool) {
	h.greeting, h.greet = true, time.Time{}
	if later {
		h.greet = time.Now().Add(greetDelay)
	}
}

// waits reports whether the host with that key begins handshakes, not this one.
func (e *encryption) waits(key wireguard.Key) bool {
	own, _ := e.public()
	return bytes.Compare(key[:], own) < 0
}

// ways returns how frames may come from a host, and by which device the vxlan device sends to it.
func (e *encryption) ways(host string) (datapath.Ways, uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hosts[host]
	switch {
	case h == nil && e.required:
		return 0, deadDevice
	case h == nil:
		return datapath.Plain, 0
	}
	ways, by := datapath.Encrypted, uint32(0)
	if h.plain {
		ways |= datapath.Plain
	}
	if h.sending {
		by = deadDevice
		if e.link != 0 {
			by = uint32(e.link)
		}
	}
	return ways, by
}

// to returns the index of the device by which frames to an address go, 0 for in the clear.
func (e *encryption) to(remote netip.Addr) (link int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hosts[e.named[remote]]
	switch {
	case h == nil && e.required:
		return 0, errNotEncrypted
	case h == nil || !h.sending:
		return 0, nil
	case e.link == 0:
		return 0, errNoDevice
	}
	return e.link, nil
}

func (e *encryption) count() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.hosts {
		if h.sending {
			n++
		}
	}
	return n
}

// Run keeps the device until ctx ends, once begin is closed: when the underlay is looked up. ready
// is called once, after the first pass.
func (e *encryption) Run(ctx context.Context, begin <-chan struct{}, ready func()) error {
	if !await(ctx, begin) {
		return nil
	}
	tick := time.Tick(encryptEvery)
	for first := true; ; first = false {
		e.report(e.pass())
		if first {
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-e.kick:
		}
	}
}

// report logs what keeps frames from being encrypted, and when that is over.
func (e *encryption) report(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := textOf(err)
	switch {
	case now == e.logged:
		return
	case err != nil:
		e.log.Error("cannot encrypt, will try again; frames to hosts that encrypt are dropped, but sent in the clear for a minute at most where they were before", "err", err)
	default:
		e.log.Info("encryption resumed")
	}
	e.logged = now
}

// pass puts the device in place as it should be. Whether that succeeds or not, the time ends for
// which frames may travel in the clear.
func (e *encryption) pass() error {
	e.working.Lock()
	defer e.working.Unlock()
	err := e.configure()
	if unread := e.greeted(); err == nil {
		err = unread
	}
	return err
}

// configure has the device there, with this host's key and the other hosts as peers.
func (e *encryption) configure() error {
	if err := e.ensure(); err != nil {
		return err
	}
	if err := e.enterPrivate(); err != nil {
		return err
	}
	return e.enterPeers()
}

// ensure has the device there and its frames taken in.
func (e *encryption) ensure() error {
	mtu := e.mtu()
	if mtu == 0 {
		return nil // the underlay is not there, either
	}
	l, err := e.device.Ensure(mtu)
	if err == nil {
		err = e.dp.AttachWireguard(l.Name)
	}
	e.mu.Lock()
	was := e.link
	e.link = l.Index
	if err != nil {
		e.link = 0
	}
	now := e.link
	var all []string
	if was != now {
		for host, h := range e.hosts {
			h.greetAgain(e.waits(h.key))
			all = append(all, host)
		}
	}
	e.mu.Unlock()
	if was != now {
		e.reenter(all)
		e.moved()
	}
	if e.entered == nil || was != now {
		e.entered, e.private = nil, wireguard.Key{}
		if err == nil {
			err = e.read()
		}
	}
	return err
}

func (e *encryption) read() error {
	s, err := e.device.State()
	if err != nil {
		return err
	}
	e.private, e.entered = s.Private, map[wireguard.Key]wireguard.Peer{}
	for key, p := range s.Peers {
		e.entered[key] = p.Peer
	}
	return nil
}

// setPrivate gives the device the key by which this host sends now, and shakes hands by it with all
// others. Frames from them are lost until then: they use the old key until the store has the new
// one.
func (e *encryption) setPrivate(ctx context.Context) error {
	e.working.Lock()
	defer e.working.Unlock()
	if e.entered == nil {
		return errNoDevice
	}
	begun := time.Now()
	if err := e.enterPrivate(); err != nil {
		return err
	}
	e.mu.Lock()
	for _, h := range e.hosts {
		h.greetAgain(false)
	}
	e.mu.Unlock()
	if err := e.enterPeers(); err != nil {
		return err
	}
	// WireGuard does not say when a handshake is complete.
	for time.Since(begun) < switchTimeout && ctx.Err() == nil {
		s, err := e.device.State()
		if err != nil {
			return err
		}
		waiting := false
		for _, p := range s.Peers {
			waiting = waiting || p.Carries && p.Handshake.Before(begun)
		}
		if !waiting {
			break
		}
		task.Pause(ctx, time.Millisecond)
	}
	return nil
}

func (e *encryption) enterPrivate() error {
	current, _ := e.ring.Wireguard()
	if e.entered == nil || e.private == wireguard.Key(current) {
		return nil
	}
	if err := e.device.SetPrivate(wireguard.Key(current)); err != nil {
		return err
	}
	e.private = wireguard.Key(current)
	return nil
}

// enterPeers has the device take the hosts as peers. It fails if the device does; which peers the
// device rejects is noted with their hosts.
func (e *encryption) enterPeers() error {
	if e.entered == nil {
		return nil
	}
	wanted := map[wireguard.Key]wireguard.Peer{}
	now := time.Now()
	e.mu.Lock()
	for _, h := range e.hosts {
		if h.key == (wireguard.Key{}) {
			continue
		}
		wanted[h.key] = wireguard.Peer{Key: h.key, Address: h.addrs[0], Carries: !h.changed, Greet: h.greeting && !h.changed && !now.Before(h.greet)}
		if h.next != nil {
			wanted[*h.next] = wireguard.Peer{Key: *h.next, Address: h.addrs[0], Carries: h.changed}
		}
	}
	e.mu.Unlock()
	var set []wireguard.Peer
	var gone []wireguard.Key
	for key, p := range wanted {
		if e.entered[key] != p {
			set = append(set, p)
		}
	}
	for key := range e.entered {
		if _, there := wanted[key]; !there {
			gone = append(gone, key)
		}
	}
	if len(set)+len(gone) > 0 {
		if err := e.device.SetPeers(set, gone); err != nil {
			return e.enterEach(set, gone)
		}
	}
	e.entered = wanted
	e.noteRejected(nil)
	return nil
}

// enterEach enters peers one by one, when the device does not take all of them together: what one
// host has published must not keep the others out.
func (e *encryption) enterEach(set []wireguard.Peer, gone []wireguard.Key) error {
	if err := e.device.SetPeers(nil, gone); err != nil {
		return err // it is the device
	}
	rejected := map[wireguard.Key]error{}
	for _, p := range set {
		if err := e.device.SetPeers([]wireguard.Peer{p}, nil); err != nil {
			rejected[p.Key] = err
		}
	}
	e.noteRejected(rejected)
	return e.read()
}

// noteRejected notes which hosts' peers the device rejects, and logs what has changed.
func (e *encryption) noteRejected(rejected map[wireguard.Key]error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for host, h := range e.hosts {
		err := rejected[h.key]
		if h.next != nil && err == nil {
			err = rejected[*h.next]
		}
		was := h.rejected
		h.rejected = textOf(err)
		switch {
		case h.rejected == was:
		case err != nil:
			e.log.Error("the WireGuard device does not take a host, will try again: "+framesDropped, "host", host, "addresses", h.addrs, "err", err)
		default:
			e.log.Info("the WireGuard device takes a host again", "host", host)
		}
	}
}

// greeted goes on with hosts with whom hands were shaken, or have been waited for.
func (e *encryption) greeted() error {
	e.mu.Lock()
	waiting := false
	for _, h := range e.hosts {
		waiting = waiting || !h.sending || h.plain || h.greeting || h.next != nil
	}
	e.mu.Unlock()
	if !waiting {
		return nil
	}
	var s wireguard.State // no hands are shaken without the device, and time passes all the same
	var err error
	if e.entered != nil {
		s, err = e.device.State()
	}
	var changed []string
	now := e.clock()
	e.mu.Lock()
	for host, h := range e.hosts {
		if e.advance(h, s, now) {
			changed = append(changed, host)
		}
	}
	e.mu.Unlock()
	if len(changed) > 0 {
		e.reenter(changed)
		e.moved()
		e.wake()
	}
	return err
}

// advance notes a handshake with a host, and reports whether frames now travel otherwise.
func (e *encryption) advance(h *encryptedHost, s wireguard.State, now time.Time) (changed bool) {
	shaken := !s.Peers[h.key].Handshake.IsZero()
	if h.next != nil && !h.changed && !s.Peers[*h.next].Handshake.IsZero() {
		h.changed = true
		e.wake()
	}
	if shaken && h.greeting {
		h.greeting = false
		e.wake()
	}
	settled := now.Sub(h.since) >= hostkey.Settle
	switch {
	case !h.sending && (shaken || settled):
		h.sending, h.since = true, now
		return true
	case h.sending && h.plain && settled:
		h.plain = false
		return true
	}
	return false
}

// wireguardProcess runs the device in a process of this program, with an empty environment.
func wireguardProcess(name string) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: []string{"heddle", WireguardCommand, name}, Env: []string{}, Dir: "/"}
}

// WireguardCommand is the argument that starts this program as the process of a WireGuard device;
// the interface's name follows. See [wireguard.Serve].
const WireguardCommand = "wireguard-device"

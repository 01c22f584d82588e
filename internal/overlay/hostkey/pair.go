package hostkey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/topology"
)

// Labels keep apart what is derived for different uses.
const (
	secretLabel  = "heddle tunnel secret 1"
	messageLabel = "heddle state message 1"
)

// self is this host in derivations.
type self struct {
	id      string
	boot    uint64
	session uint64
	keys    []*ecdh.PrivateKey // newest first
	send    *ecdh.PrivateKey   // nil: without secrets
	open    bool
}

// Pairs derives what this host shares with others.
type Pairs struct {
	ring *Ring
	id   string
	boot uint64
	made time.Time
}

// NewPairs derives for the host with that id, which publishes boot as TunnelKeys.Boot.
func NewPairs(ring *Ring, id string, boot uint64) *Pairs {
	return &Pairs{ring: ring, id: id, boot: boot, made: time.Now()}
}

// Public returns what the host is to publish.
func (p *Pairs) Public() *topology.TunnelKeys {
	k := p.ring.Public()
	k.HostID, k.Boot = p.id, p.boot
	return k
}

func (p *Pairs) self() self {
	r := p.ring
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := self{id: p.id, boot: p.boot, session: r.state.Session, keys: slices.Clone(r.private), open: r.state.Open}
	switch {
	case r.state.Switched:
		s.send = r.private[0]
	case !r.state.Open:
		s.send = r.private[len(r.private)-1]
	}
	return s
}

// Pair holds what this host shares with one other. Its methods may be called from any goroutine.
type Pair struct {
	// Send is the secret in frames to the other host, 0 for none; Accept are those from it.
	Send   uint32
	Accept []uint32
	// Plain allows messages without authentication from the other host, which has no keys or has
	// only begun to use them.
	Plain bool

	self    self
	peer    string
	boot    uint64 // of the other host
	shared  map[keyPair][]byte
	sending *sending // nil: messages go without authentication
	counter *atomic.Uint64

	mu       sync.Mutex
	received opener
}

// keyPair names a key of this host and one of the other, by their public halves.
type keyPair struct{ own, other [32]byte }

// keyID distinguishes the keys of one host.
func keyID(public []byte) uint32 {
	sum := sha256.Sum256(public)
	return binary.BigEndian.Uint32(sum[:])
}

// Derive derives what this host shares with a peer that has published k, nil for nothing. before is
// the last result for that peer, or nil: unchanged parts are not computed again.
func (p *Pairs) Derive(peer string, k *topology.TunnelKeys, before *Pair) (*Pair, error) {
	me := p.self()
	x := &Pair{self: me, peer: peer, shared: map[keyPair][]byte{}}
	if before != nil {
		x.counter = before.counter
	} else { // the host may have been known before: no counter comes twice in one session
		x.counter = new(atomic.Uint64)
		x.counter.Store(uint64(time.Since(p.made)))
	}
	if k == nil {
		x.Plain, x.Accept = true, []uint32{0}
		return x, nil
	}
	if n := len(k.Keys); n == 0 || n > maxKeys || k.Open && n > 1 {
		return nil, fmt.Errorf("host %s publishes %d tunnel keys: want 1 to %d, and 1 of a host that is being upgraded", peer, n, maxKeys)
	}
	x.boot, x.Plain = k.Boot, k.Open || me.open
	for _, raw := range k.Keys {
		other, err := ecdh.X25519().NewPublicKey(raw)
		if err != nil {
			return nil, fmt.Errorf("host %s publishes a bad tunnel key: %w", peer, err)
		}
		for _, own := range me.keys {
			shared, err := agree(own, other, before)
			if err != nil {
				return nil, fmt.Errorf("host %s publishes a bad tunnel key: %w", peer, err)
			}
			x.shared[keyPair{[32]byte(own.PublicKey().Bytes()), [32]byte(raw)}] = shared
			secret, err := secretOf(shared, peer, raw, me.id, own.PublicKey().Bytes())
			if err != nil {
				return nil, err
			}
			x.Accept = append(x.Accept, secret)
		}
	}
	if x.Plain {
		x.Accept = append(x.Accept, 0)
	}
	if me.send == nil {
		return x, nil
	}
	own := me.send.PublicKey().Bytes()
	shared := x.shared[keyPair{[32]byte(own), [32]byte(k.Keys[0])}]
	var err error
	if x.Send, err = secretOf(shared, me.id, own, peer, k.Keys[0]); err != nil {
		return nil, err
	}
	x.sending = &sending{shared: shared, own: own, other: k.Keys[0]}
	return x, nil
}

// agree is the secret that two keys share, taken from before if it is there.
func agree(own *ecdh.PrivateKey, other *ecdh.PublicKey, before *Pair) ([]byte, error) {
	if before != nil {
		if s, ok := before.shared[keyPair{[32]byte(own.PublicKey().Bytes()), [32]byte(other.Bytes())}]; ok {
			return s, nil
		}
	}
	return own.ECDH(other)
}

// info encodes a purpose: the two hosts in the direction of the traffic, with their keys.
func info(label, from string, fromKey []byte, to string, toKey []byte, more ...uint64) string {
	var b []byte
	for _, field := range [][]byte{[]byte(label), []byte(from), fromKey, []byte(to), toKey} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(field)))
		b = append(b, field...)
	}
	for _, n := range more {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return string(b)
}

// secretOf is the secret in frames from one host to another. It is never 0.
func secretOf(shared []byte, from string, fromKey []byte, to string, toKey []byte) (uint32, error) {
	b, err := hkdf.Key(sha256.New, shared, nil, info(secretLabel, from, fromKey, to, toKey), 4)
	if err != nil {
		return 0, err
	}
	return max(binary.BigEndian.Uint32(b), 1), nil
}

// Head is the head of a sealed message: the keys, the run of the sender's agent, the message in it.
type Head struct {
	SenderKey, ReceiverKey uint32
	Session, Counter       uint64
}

// Overhead is by how many bytes a sealed message is longer.
const Overhead = 16

// sending holds the means to seal messages to the other host.
type sending struct {
	shared     []byte
	own, other []byte // public keys

	once sync.Once
	head Head // but for the counter
	aead cipher.AEAD
	err  error
}

// Sealed reports whether messages to the other host are authenticated.
func (p *Pair) Sealed() bool { return p.sending != nil }

// Next returns the head of the next message to the other host.
func (p *Pair) Next() (Head, error) {
	s := p.sending
	if s == nil {
		return Head{}, errors.New("seal: the other host knows no keys")
	}
	s.once.Do(func() {
		s.head = Head{SenderKey: keyID(s.own), ReceiverKey: keyID(s.other), Session: p.self.session}
		s.aead, s.err = messageAEAD(s.shared, p.self.id, s.own, p.peer, s.other, p.boot, p.self.session)
	})
	h := s.head
	h.Counter = p.counter.Add(1)
	return h, s.err
}

// Seal appends the sealed message to b. h is from Next, used once; written is its encoding.
func (p *Pair) Seal(b []byte, h Head, written, message []byte) []byte {
	return p.sending.aead.Seal(b, nonce(h.Counter), message, written)
}

// opener opens messages of one session.
type opener struct {
	senderKey, receiverKey uint32
	session                uint64
	aead                   cipher.AEAD
}

// ErrForged reports a message that was not sealed by its supposed sender.
var ErrForged = errors.New("the message is not the other host's")

// Open returns the message sealed with that head, which may have come before.
func (p *Pair) Open(h Head, written, sealed []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.received
	if o.aead == nil || o.senderKey != h.SenderKey || o.receiverKey != h.ReceiverKey || o.session != h.Session {
		aead, err := p.receiving(h)
		if err != nil {
			return nil, err
		}
		o = opener{h.SenderKey, h.ReceiverKey, h.Session, aead}
	}
	message, err := o.aead.Open(nil, nonce(h.Counter), sealed, written)
	if err != nil {
		return nil, ErrForged
	}
	p.received = o
	return message, nil
}

// Uses reports whether messages of the other host may be sealed by its key with that id.
func (p *Pair) Uses(senderKey uint32) bool {
	for pair := range p.shared {
		if keyID(pair.other[:]) == senderKey {
			return true
		}
	}
	return false
}

// receiving finds the keys that a head names.
func (p *Pair) receiving(h Head) (cipher.AEAD, error) {
	for pair, shared := range p.shared {
		if keyID(pair.other[:]) == h.SenderKey && keyID(pair.own[:]) == h.ReceiverKey {
			return messageAEAD(shared, p.peer, pair.other[:], p.self.id, pair.own[:], p.self.boot, h.Session)
		}
	}
	return nil, fmt.Errorf("%w: it names keys %08x and %08x, which are not in use", ErrForged, h.SenderKey, h.ReceiverKey)
}

// messageAEAD seals messages in one session of the sender. boot is the receiver's.
func messageAEAD(shared []byte, from string, fromKey []byte, to string, toKey []byte, boot, session uint64) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, shared, nil, info(messageLabel, from, fromKey, to, toKey, boot, session), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func nonce(counter uint64) []byte {
	var n [12]byte
	binary.BigEndian.PutUint64(n[4:], counter)
	return n[:]
}

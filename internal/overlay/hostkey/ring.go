// Package hostkey holds the X25519 keys of a host and derives what it shares with each other host:
// the secrets in tunnelled frames, and the keys of state messages (docs/decisions/0008).
//
// The private halves stay in the host's state directory; the public ones are in the store, in a
// record that only the host itself can write. Two hosts derive the same from each other's public
// keys, so the store holds no secret, and one record per host is enough.
//
// A host rotates its key ([Ring.Step]): it accepts a new key before it publishes it, sends by it
// once the other hosts have had time to read it, and drops the old one after the same time again.
// No frame is lost.
package hostkey

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heddle/internal/topology"
)

// Times of a rotation.
const (
	// Life is the time for which a host sends by one key.
	Life = 24 * time.Hour
	// Settle is the time in which other hosts, if alive, read what this one publishes.
	Settle = time.Minute
	// MaxWait is the time for which a host that is not alive delays a rotation: cut off from the
	// store, it goes on with the keys it has.
	MaxWait = 7 * 24 * time.Hour
)

// maxKeys is the number of keys of one host in use at once.
const maxKeys = 2

// FileName is the name of the file with the keys in the state directory.
const FileName = "tunnel-keys.json"

// Ring holds the keys of this host. Its methods may be called from any goroutine.
type Ring struct {
	path    string
	unsaved error // see Unsaved

	mu          sync.RWMutex
	state       ringState
	private     []*ecdh.PrivateKey // of state.Keys
	publishedAt time.Time          // when the store first had what is to be published; zero: it has not
}

// ringState is the file.
type ringState struct {
	Keys []storedKey `json:"keys"` // newest first
	// Switched is set once the host sends by the newest key.
	Switched bool `json:"switched"`
	// Open allows frames and messages without secrets, from this host and to it.
	Open bool `json:"open,omitempty"`
	// Session is the number of the last run of the agent: later runs have higher ones.
	Session uint64 `json:"session"`
}

type storedKey struct {
	Private []byte `json:"private"`
	// Wireguard is the private key of the WireGuard device, rotated with the other. One key for
	// both protocols would be as strong as the weaker one.
	Wireguard []byte    `json:"wireguard"`
	Made      time.Time `json:"made"`
}

func newWireguard() ([]byte, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return private.Bytes(), nil
}

// Load reads the keys in a state directory, or makes the first one, and begins a session. If the
// session cannot be written, as on a full disk, see [Ring.Unsaved].
func Load(dir string, now time.Time) (*Ring, error) {
	r := &Ring{path: filepath.Join(dir, FileName)}
	raw, err := os.ReadFile(r.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.state.Switched = true
		err = r.add(now)
	case err == nil:
		err = r.parse(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("tunnel keys: %w", err)
	}
	stored, clock := r.state.Session, uint64(max(now.UnixNano(), 0))
	r.state.Session = max(stored+1, clock)
	if err := r.save(); err != nil {
		// The clock orders sessions too, unless it was set back: then a session would come again.
		if raw == nil || clock <= stored {
			return nil, fmt.Errorf("tunnel keys: %w", err)
		}
		r.unsaved = err
	}
	return r, nil
}

// Unsaved returns why Load could not write the session that it began; nil: it did.
func (r *Ring) Unsaved() error { return r.unsaved }

func (r *Ring) parse(raw []byte) error {
	if err := json.Unmarshal(raw, &r.state); err != nil {
		return fmt.Errorf("%s: %w: remove the file to have new keys made", r.path, err)
	}
	if n := len(r.state.Keys); n == 0 || n > maxKeys {
		return fmt.Errorf("%s: holds %d keys, want 1 to %d: remove the file to have new keys made", r.path, n, maxKeys)
	}
	for i := range r.state.Keys {
		k := &r.state.Keys[i]
		if k.Wireguard == nil { // a file of an earlier version
			var err error
			if k.Wireguard, err = newWireguard(); err != nil {
				return err
			}
		}
		if _, err := ecdh.X25519().NewPrivateKey(k.Wireguard); err != nil {
			return fmt.Errorf("%s: %w: remove the file to have new keys made", r.path, err)
		}
		private, err := ecdh.X25519().NewPrivateKey(k.Private)
		if err != nil {
			return fmt.Errorf("%s: %w: remove the file to have new keys made", r.path, err)
		}
		r.private = append(r.private, private)
	}
	return nil
}

func (r *Ring) add(now time.Time) error {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	wireguard, err := newWireguard()
	if err != nil {
		return err
	}
	r.private = slices.Insert(r.private, 0, private)
	r.state.Keys = slices.Insert(r.state.Keys, 0, storedKey{Private: private.Bytes(), Wireguard: wireguard, Made: now.UTC()})
	return nil
}

// save writes the file in one step: a crash leaves the old one or the new one.
func (r *Ring) save() error {
	raw, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), FileName+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Public returns what the host is to publish. Boot is the caller's.
func (r *Ring) Public() *topology.TunnelKeys {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k := &topology.TunnelKeys{Open: r.state.Open}
	for _, p := range r.private {
		k.Keys = append(k.Keys, p.PublicKey().Bytes())
	}
	return k
}

// Wireguard returns the private key of the WireGuard device, and the one that replaces it when the
// rotation in progress switches, or nil.
func (r *Ring) Wireguard() (current, next []byte) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	newest, oldest := r.state.Keys[0].Wireguard, r.state.Keys[len(r.state.Keys)-1].Wireguard
	if r.state.Switched || len(r.state.Keys) == 1 {
		return newest, nil
	}
	return oldest, newest
}

// Session is the number of this host's session; earlier ones had lower numbers.
func (r *Ring) Session() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.state.Session
}

// BeginSession begins a later session: another agent may have sent by this host's keys meanwhile,
// in a session that began after this one.
func (r *Ring) BeginSession(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change(func() error {
		r.state.Session = max(r.state.Session+1, uint64(max(now.UnixNano(), 0)))
		return nil
	})
}

// OpenForUpgrade records that this host has sent without secrets so far, until the rotation to its
// first key is over.
func (r *Ring) OpenForUpgrade() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change(func() error {
		r.state.Keys, r.private = r.state.Keys[:1:1], r.private[:1:1]
		r.state.Open, r.state.Switched = true, false
		return nil
	})
}

// change applies f to the state and saves it. If either fails nothing changes.
func (r *Ring) change(f func() error) error {
	state, private := r.state, slices.Clone(r.private)
	state.Keys = slices.Clone(state.Keys)
	err := f()
	if err == nil {
		err = r.save()
	}
	if err != nil {
		r.state, r.private = state, private
		return fmt.Errorf("tunnel keys: %w", err)
	}
	return nil
}

// Change is the result of a step.
type Change int

// Changes of a rotation, in their order.
const (
	None     Change = iota
	Made            // a key was made: receive by it, then publish it
	Switched        // send by the newest key now
	Dropped         // the old key is gone: publish that
)

// Step does what is due of a rotation. published: the store has what Public returns. allAlive: all
// other hosts of the virtual network are alive, and so read it.
func (r *Ring) Step(now time.Time, published, allAlive bool) (Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !published {
		r.publishedAt = time.Time{}
		return None, nil
	}
	if r.publishedAt.IsZero() {
		r.publishedAt = now
	}
	wait := Settle
	if !allAlive {
		wait = MaxWait
	}
	changing := len(r.state.Keys) > 1 || r.state.Open
	var change Change
	var apply func() error
	switch {
	case changing && now.Sub(r.publishedAt) < wait, !changing && now.Sub(r.state.Keys[0].Made) < Life:
		return None, nil
	case changing && !r.state.Switched:
		change, apply = Switched, func() error {
			r.state.Switched = true
			return nil
		}
	case changing:
		change, apply = Dropped, func() error {
			r.state.Keys, r.private, r.state.Open = r.state.Keys[:1:1], r.private[:1:1], false
			return nil
		}
	default:
		change, apply = Made, func() error {
			r.state.Switched = false
			return r.add(now)
		}
	}
	if err := r.change(apply); err != nil {
		return None, err
	}
	r.publishedAt = now
	if change != Switched { // there is something to publish
		r.publishedAt = time.Time{}
	}
	return change, nil
}

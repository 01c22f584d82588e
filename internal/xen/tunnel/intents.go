package tunnel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/xen/star"
)

// Keys of the controllers' store.
const (
	prefix         = schema.XenPrefix + "controller/"
	leaderKey      = prefix + "leader"
	identityKey    = prefix + "identity" // tells this store's terms from another's
	lastKeyKey     = prefix + "last-key" // the key that was given last
	networksPrefix = prefix + "networks/"
)

// intent is what is decided about a network.
type intent struct {
	star.Intent
	// Hosts are those that may have a leg with the key: the key is not free before each of them is known to have none.
	Hosts []string `json:"hosts"`
	// Newcomers are those of Hosts that have joined since the center was chosen, until they are considered as center too.
	Newcomers []string `json:"newcomers,omitempty"`
}

// intents are those of all networks, by UUID, as they are in the store.
type intents struct {
	leader   leadership
	identity string
	last     uint32 // key given last
	all      map[string]intent
	used     map[uint32]string // network by key

	writes map[string]intent // not yet in the store
}

// loadIntents reads what was decided before.
func loadIntents(ctx context.Context, l leadership) (*intents, error) {
	kvs, _, err := l.store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	s := &intents{leader: l, all: map[string]intent{}, used: map[uint32]string{}, writes: map[string]intent{}}
	for _, kv := range kvs {
		switch network, is := strings.CutPrefix(kv.Key, networksPrefix); {
		case is:
			var in intent
			if err := json.Unmarshal(kv.Value, &in); err != nil {
				return nil, fmt.Errorf("%s: %w", kv.Key, err)
			}
			s.all[network] = in
			s.used[in.Key] = network
		case kv.Key == lastKeyKey:
			n, err := strconv.ParseUint(string(kv.Value), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kv.Key, err)
			}
			s.last = uint32(n)
		case kv.Key == identityKey:
			s.identity = string(kv.Value)
		}
	}
	if s.identity == "" {
		s.identity = rand.Text()
		if err := l.commit(ctx, []store.Op{{Key: identityKey, Value: []byte(s.identity)}}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// get is what is decided about a network.
func (s *intents) get(network string) (intent, bool) {
	if in, ok := s.writes[network]; ok {
		return in, true
	}
	in, ok := s.all[network]
	return in, ok
}

// key is a free one, 0 when there is none. It is given with the next write.
func (s *intents) key(network string) uint32 {
	key, ok := star.NextKey(s.last, func(k uint32) bool { return s.used[k] != "" })
	if !ok {
		return 0
	}
	s.last, s.used[key] = key, network
	return key
}

// set decides; flush makes it last.
func (s *intents) set(network string, in intent) { s.writes[network] = in }

// pending says whether a decision is not in the store yet.
func (s *intents) pending(network string) bool { _, is := s.writes[network]; return is }

// maxWrites bounds the networks written in one commit.
const maxWrites = 100

// flush writes what was decided. What could not be written is taken back, for it is to be decided by what is true once it
// can be; but something is written then in any case, since nobody knows what the store has taken.
func (s *intents) flush(ctx context.Context) error {
	err := s.write(ctx)
	for network, in := range s.writes {
		back := s.all[network]
		back.Key, back.Hosts, back.Newcomers = in.Key, in.Hosts, in.Newcomers // a key is given once, and who may have a leg is never forgotten
		s.writes[network] = back
	}
	return err
}

func (s *intents) write(ctx context.Context) error {
	networks := make([]string, 0, len(s.writes))
	for network := range s.writes {
		networks = append(networks, network)
	}
	slices.Sort(networks)
	for some := range slices.Chunk(networks, maxWrites) {
		ops := []store.Op{{Key: lastKeyKey, Value: strconv.AppendUint(nil, uint64(s.last), 10)}}
		for _, network := range some {
			raw, err := json.Marshal(s.writes[network])
			if err != nil {
				return err
			}
			ops = append(ops, store.Op{Key: networksPrefix + network, Value: raw})
		}
		if err := s.leader.commit(ctx, ops); err != nil {
			return err
		}
		for _, network := range some {
			s.all[network] = s.writes[network]
			delete(s.writes, network)
		}
	}
	return nil
}

// drop forgets a network whose key is free again.
func (s *intents) drop(ctx context.Context, network string) error {
	if err := s.leader.commit(ctx, []store.Op{{Key: networksPrefix + network, Delete: true}}); err != nil {
		return err
	}
	delete(s.used, s.all[network].Key)
	delete(s.all, network)
	delete(s.writes, network)
	return nil
}

// deposed says that an error of flush and drop ends the leadership.
func deposed(err error) bool { return errors.Is(err, errDeposed) || errors.Is(err, store.ErrDenied) }

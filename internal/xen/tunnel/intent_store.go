package tunnel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// Keys of the controllers' store.
const (
	prefix         = schema.XenPrefix + "controller/"
	leaderKey      = prefix + "leader"
	identityKey    = prefix + "identity" // distinguishes this store's terms from another's
	lastKeyKey     = prefix + "last-key" // the key that was given last
	networksPrefix = prefix + "networks/"
)

// maxWrites bounds the networks written in one commit.
const maxWrites = 100

// intentStore keeps intents in the store, while this controller leads.
type intentStore struct {
	*intents
	leader   leadership
	identity string // of the store
}

// loadIntents reads what was decided before.
func loadIntents(ctx context.Context, l leadership) (*intentStore, error) {
	kvs, _, err := l.store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	s := &intentStore{intents: &intents{all: map[string]intent{}, used: map[uint32]string{}, writes: map[string]intent{}}, leader: l}
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

// flush writes what was decided. What could not be written is taken back.
func (s *intentStore) flush(ctx context.Context) error {
	defer s.takeBack()
	for some := range slices.Chunk(slices.Sorted(maps.Keys(s.writes)), maxWrites) {
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

// drop deletes the intent of a network whose key is free again.
func (s *intentStore) drop(ctx context.Context, network string) error {
	if err := s.leader.commit(ctx, []store.Op{{Key: networksPrefix + network, Delete: true}}); err != nil {
		return err
	}
	delete(s.used, s.all[network].Key)
	delete(s.all, network)
	delete(s.writes, network)
	return nil
}

// deposed reports whether an error of flush or drop ends the leadership.
func deposed(err error) bool { return errors.Is(err, errDeposed) || errors.Is(err, store.ErrDenied) }

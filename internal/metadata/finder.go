package metadata

import (
	"encoding/json"
	"fmt"

	"heddle/internal/sealing"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// NewFinder returns a Finder in a host's copy of the store. key is the host's, for which servers
// seal the secrets of its machines.
func NewFinder(objects *replica.Replica, host string, key *sealing.HostKey) Finder {
	return func(port string) (*Machine, error) {
		i, ok := schema.Instances.Peek(records.Over(objects.Snapshot()), host+"/"+port)
		if !ok {
			return nil, ErrUnknown
		}
		m := &Machine{Instance: i}
		if i.Secrets == nil {
			return m, nil
		}
		if i.Secrets.Key != sealing.Fingerprint(key.Public()) {
			return nil, ErrUnknown // the servers are to read this host's key first
		}
		secret, err := key.Open(schema.Instances.ID(i), i.Secrets.Box)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(secret, &m.InstanceSecrets); err != nil {
			return nil, fmt.Errorf("secrets of port %s: %w", port, err)
		}
		return m, nil
	}
}

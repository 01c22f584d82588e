package control

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Users give hostnames, keys, passwords' hashes and user data to their machines, by port. All of it
// is one secret, sealed with the servers' key (docs/decisions/0046). Only the port's own project
// sees or changes it, since user data is run by the machine as root.

// PortMetadata returns what users gave to the machine behind a port.
func (s *Service) PortMetadata(ctx context.Context, c neutron.Caller, port string) (*neutron.PortMetadataView, error) {
	return transact(ctx, s, c, func(o *operation) (*neutron.PortMetadataView, error) {
		if err := o.checkMetadataAccess(port); err != nil {
			return nil, err
		}
		m, err := o.metadataOf(port)
		if err != nil {
			return nil, err
		}
		return neutron.ViewPortMetadata(m), nil
	})
}

// ChangePortMetadata changes it.
func (s *Service) ChangePortMetadata(ctx context.Context, c neutron.Caller, port string, change func(*topology.InstanceSecrets)) (*neutron.PortMetadataView, error) {
	return transact(ctx, s, c, func(o *operation) (*neutron.PortMetadataView, error) {
		if err := o.checkMetadataChange(port); err != nil {
			return nil, err
		}
		m, err := o.metadataOf(port)
		if err != nil {
			return nil, err
		}
		before := *m
		if change(m); reflect.DeepEqual(*m, before) {
			return neutron.ViewPortMetadata(m), nil
		}
		secret, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		key := s.opts.SecretsKey
		return neutron.ViewPortMetadata(m), schema.PortMetadatas.Put(o.tx, &schema.PortMetadata{PortID: port, KeyID: key.ID(), Sealed: key.Seal(port, secret)})
	})
}

// DeletePortMetadata removes it, for which no key is needed. It is no error if there is none.
func (s *Service) DeletePortMetadata(ctx context.Context, c neutron.Caller, port string) error {
	return perform(ctx, s, c, func(o *operation) error {
		if err := o.checkMetadataChange(port); err != nil {
			return err
		}
		stored, err := find(schema.PortMetadatas, o.tx, port)
		if stored == nil || err != nil {
			return err
		}
		return schema.PortMetadatas.Delete(o.tx, port)
	})
}

// checkMetadataAccess returns an error unless the caller may see a port's metadata.
func (o *operation) checkMetadataAccess(port string) error {
	_, owner, err := o.ports.inTransaction(o, port)
	if err != nil {
		return err
	}
	return neutron.AuthorizePortUse(o.caller, owner)
}

// checkMetadataChange returns an error unless the caller may change it.
func (o *operation) checkMetadataChange(port string) error {
	if err := o.checkMetadataAccess(port); err != nil {
		return err
	}
	_, owner, err := o.ports.inTransaction(o, port)
	if err != nil {
		return err
	}
	return neutron.AuthorizeAction(o.caller, neutron.Ports, "update_port_metadata", owner)
}

// metadataOf opens what is stored for a port, nothing if there is none. A transaction guards it.
func (o *operation) metadataOf(port string) (*topology.InstanceSecrets, error) {
	if o.opts.SecretsKey == nil {
		return nil, errNoSecretsKey()
	}
	stored, err := find(schema.PortMetadatas, o.tx, port)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return &topology.InstanceSecrets{}, o.checkSecretsKey()
	}
	if stored.KeyID != o.opts.SecretsKey.ID() {
		return nil, o.otherKey(stored.KeyID)
	}
	return o.openMetadata(stored)
}

// checkSecretsKey refuses to seal with another key than the other servers do: they could not read
// it.
func (o *operation) checkSecretsKey() error {
	for _, id := range schema.PortMetadatas.IndexValues(o.tx, "key") {
		if id != o.opts.SecretsKey.ID() {
			return o.otherKey(id)
		}
	}
	return nil
}

// openMetadata decrypts what a port has.
func (s *Service) openMetadata(stored *schema.PortMetadata) (*topology.InstanceSecrets, error) {
	if s.opts.SecretsKey == nil {
		return nil, errNoSecretsKey()
	}
	if stored.KeyID != s.opts.SecretsKey.ID() {
		return nil, fmt.Errorf("metadata of port %s is sealed with another key, %s", stored.PortID, stored.KeyID)
	}
	secret, err := s.opts.SecretsKey.Open(stored.PortID, stored.Sealed)
	if err != nil {
		return nil, err
	}
	m := new(topology.InstanceSecrets)
	if err := json.Unmarshal(secret, m); err != nil {
		return nil, fmt.Errorf("metadata of port %s: %w", stored.PortID, err)
	}
	return m, nil
}

func errNoSecretsKey() error {
	return conflict("PortMetadataUnavailable", "This server lacks the key that keeps the metadata of machines secret: copy the file secrets.key from the "+
		"data directory of another server, or from a backup, into this one's, chown it to the user that this server runs as, and start it again.")
}

// mostPortsNamed bounds the ports that an error names.
const mostPortsNamed = 5

// otherKey is the error about what is sealed with a key that this server lacks.
func (o *operation) otherKey(id string) error {
	var ports []string
	for m := range schema.PortMetadatas.By(o.tx, "key", id) {
		if ports = append(ports, m.PortID); len(ports) > mostPortsNamed {
			ports[mostPortsNamed] = "…"
			break
		}
	}
	return conflict("PortMetadataKeyDiffers", "Metadata of machines is sealed with the key %s, and this server has %s. Ports with the former: %s. "+
		"Give all servers the same file secrets.key, and keep the one that you replace: what was sealed with it cannot be read without it. "+
		"If the key is lost, heddle metadata unset --port PORT gives up what such a port has.", id, o.opts.SecretsKey.ID(), strings.Join(ports, ", "))
}

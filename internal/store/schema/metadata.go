package schema

import (
	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// PortMetadata holds the hostname, keys and user data that a user gave to the machine behind a
// port.
type PortMetadata struct {
	PortID string `json:"port_id"`
	KeyID  string `json:"key_id"` // of the servers' key with which it is sealed
	Sealed []byte `json:"sealed"` // topology.InstanceSecrets
}

// PortMetadatas go with their ports. No host may read them here.
var PortMetadatas = records.NewTable("port-metadata", NeutronPrefix+"port-metadata/", func(m *PortMetadata) string { return m.PortID },
	records.Ref("port", Ports, func(m *PortMetadata) []string { return []string{m.PortID} }, records.Cascade()),
	records.Index("key", func(m *PortMetadata) []string { return []string{m.KeyID} }))

// Instances are "<host>/<port>": each is for a host that serves the port, which reads those of its
// own alone.
var Instances = records.NewDerivedTable("instance", SecretsPrefix+"*/metadata/",
	func(i *topology.Instance) string { return i.HostID + "/" + i.PortID },
	records.Index("port", func(i *topology.Instance) []string { return []string{i.PortID} }),
	records.Index("host", func(i *topology.Instance) []string { return []string{i.HostID} }))

// MetadataKeys are under no lease: they count until the host publishes others or is removed.
var MetadataKeys = records.NewDerivedTable("metadata-key", StatePrefix+"*"+MetadataKeyTail,
	func(k *topology.MetadataKey) string { return k.HostID })

package history

import (
	"strings"

	"heddle/internal/audit"
	"heddle/internal/store/schema"
)

// journalled returns the prefixes of the keys whose past is recorded: what clients have made, what
// hosts get of it, the records of requests, and which hosts and ports were up. Users, tokens and
// what servers give to single hosts are not among them.
func journalled() []string {
	return []string{
		schema.NeutronPrefix, schema.TopologyPrefix, schema.HostsPrefix, schema.UnderlayPrefix, schema.TunnelZonesPrefix, schema.StatePrefix,
		schema.ContainersPrefix, audit.Prefix, xenObjects, schema.CalicoPrefix,
	}
}

const (
	portMetadata = schema.NeutronPrefix + "port-metadata/"
	xenObjects   = schema.XenPrefix + "objects/"
	// calicoHosts begins the keys that hosts' policy agents write.
	calicoHosts = schema.CalicoPrefix + "felix/v1/host/"
)

// keep returns what is recorded of a key's value, without secrets, and whether anything is. A nil
// value is that of a deleted key.
func keep(key string, value []byte) ([]byte, bool) {
	has := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	switch {
	case has(portMetadata) || has(calicoHosts):
		return nil, false
	case has(schema.StatePrefix):
		return value, strings.HasSuffix(key, "/alive") || strings.Contains(key, "/ports/")
	case value == nil:
		return nil, !has(audit.Prefix) // whose deletion changes nothing
	case has(schema.BGPPeers.Key("")) || has(xenObjects):
		struck, err := audit.StrikeAll(value)
		return struck, err == nil
	}
	return value, true
}

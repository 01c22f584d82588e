package schema

import (
	"heddle/calico"
	"heddle/internal/store/snapshot"
)

// CalicoObject is a value of Calico's data model as it is stored.
type CalicoObject struct {
	Path  string
	Value []byte
}

// CalicoTable is the name of the table of [CalicoObjects] in snapshots.
const CalicoTable = "calico-object"

// CalicoObjects returns the table of what policy on routed hosts follows from, by path. What hosts
// report, assignments of addresses and what others need is not among it.
func CalicoObjects() snapshot.Source {
	return snapshot.Source{Name: CalicoTable, Prefix: CalicoPrefix, ID: calicoObjectID,
		Key:    func(id string) string { return id },
		Decode: func(id string, value []byte) (any, error) { return &CalicoObject{id, value}, nil }}
}

func calicoObjectID(path string) (string, bool) {
	key, _ := calico.ParseKey(path)
	switch k := key.(type) {
	case calico.WorkloadEndpointKey, calico.HostEndpointKey, calico.ProfileRulesKey, calico.ProfileTagsKey, calico.ProfileLabelsKey,
		calico.PolicyKey, calico.TierKey, calico.GlobalConfigKey, calico.HostConfigKey, calico.PoolKey, calico.HostIPKey:
		return path, true
	case calico.BGPNodeConfigKey:
		return path, k.Name == "ip_addr_v4"
	}
	return "", false
}

package offline

import (
	"strings"
	"testing"

	"heddle/calico"
)

// TestKeysOfEveryKind spells a key of every kind from what is printed of it.
func TestKeysOfEveryKind(t *testing.T) {
	for _, path := range []string{
		"/calico/host/h/workload/o/w/endpoint/e", "/calico/v1/host/h/workload/o/w/endpoint/e", "/calico/felix/v1/host/h/workload/o/w/endpoint/e",
		"/calico/v1/host/h/endpoint/e%2f%25", "/calico/felix/v1/host/h/endpoint/e", "/calico/policy/profile/p/rules", "/calico/v1/policy/profile/p/rules",
		"/calico/policy/profile/p/tags", "/calico/v1/policy/profile/p/labels", "/calico/policy/profile/p/refcount", "/calico/v1/policy/tier/t/policy/p",
		"/calico/v1/policy/tier/t/metadata", "/calico/v1/host/h/bird_ip", "/calico/v1/host/h/metadata", "/calico/v1/host/h/orchestrator_refs",
		"/calico/ipam/v2/host/h", "/calico/felix/v1/host/h/status", "/calico/felix/v1/host/h/last_reported_status", "/calico/v1/config/a/b",
		"/calico/v1/host/h/config/c", "/calico/bgp/v1/global/custom_filters/v6/f", "/calico/bgp/v1/host/h/as_num", "/calico/v1/ipam/v4/pool/10.0.0.0-8",
		"/calico/ipam/v2/assignment/ipv6/block/fd80::-122", "/calico/ipam/v2/host/h/ipv4/block/10.0.0.0-26", "/calico/bgp/v1/global/peer_v4/192.0.2.1",
		"/calico/bgp/v1/host/h/peer_v6/2001:db8::1", "/calico/ipam/v2/handle/x", "/calico/dhcp/v1/subnet/s", "/calico/v1/Ready", "/calico/ipam/v2/config",
		"/calico/openstack/v1/neutron_election",
	} {
		var described, spelled strings.Builder
		if err := Keys([]string{path}, &described); err != nil {
			t.Fatal(err)
		}
		if err := KeyPaths(strings.NewReader(described.String()), &spelled); err != nil || spelled.String() != path+"\n" {
			t.Errorf("%s is described as %s and spelled as %s, %v", path, described.String(), spelled.String(), err)
		}
		key, _ := calico.ParseKey(path)
		if legacy := strings.Contains(described.String(), `"legacy": true`); legacy == strings.Contains(path, "v1") && !strings.Contains(path, "ipam/v2") {
			t.Errorf("%s is described as %s, of kind %s; want the legacy tree told apart", path, described.String(), key.Kind())
		}
	}
}

func FuzzKeyPaths(f *testing.F) {
	f.Add(`{"kind": "IPPool", "ids": {"cidr": "fd80::/64", "version": 6}}`)
	f.Add(`{"kind": "WorkloadEndpoint", "ids": {"host": "h", "orchestrator": "o", "workload": "w/%", "endpoint": "e"}, "legacy": true}`)
	f.Fuzz(func(t *testing.T, line string) {
		var paths strings.Builder
		if KeyPaths(strings.NewReader(line), &paths) != nil {
			return
		}
		for path := range strings.Lines(paths.String()) {
			if calico.KindOf(strings.TrimSuffix(path, "\n")) == "" {
				t.Errorf("%s gives %q, which is no key", line, path)
			}
		}
	})
}

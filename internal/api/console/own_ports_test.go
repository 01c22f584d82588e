package console

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// TestOwnPorts: tenants see the ports of their project, without hosts and what is of others, and no
// other ports.
func TestOwnPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Second)
	w.addRouted(t, 5)
	w.update(t, func(tx *records.Tx) error {
		return errors.Join(
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "own", Name: "mine", ProjectID: "tenant"}, Rules: []neutron.SecurityGroupRule{
				{Standard: neutron.Standard{ID: "r3"}, Direction: "ingress", Ethertype: "IPv4", RemoteGroupID: group}}}),
			schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: "mine", Name: "vm", ProjectID: "tenant"}, NetworkID: blueNet, AdminStateUp: true, MACAddress: packet.MAC{2, 9}, BoundHostID: host,
				InterfaceName: "eth9", PortSecurityEnabled: true, SecurityGroups: []string{"own", group}}),
			schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: "dhcp", ProjectID: "tenant"}, NetworkID: blueNet, DeviceOwner: "network:dhcp"}))
	})
	for path, has := range map[string][]string{
		"/v1/ports":      {`"id":"mine","name":"vm"`, `"host":null`, `"total":1`},
		"/v1/ports/mine": {`"name":"vm"`, `"name":"mine"`, `"remote_group":{"id":"` + group + `","name":""}`, `"other_groups":1`, `"host":null`, `"interface":""`},
	} {
		code, text := w.get(t, "tenant", path)
		for _, words := range has {
			if code != http.StatusOK || !strings.Contains(text, words) {
				t.Errorf("%s: %d, no %s in %s", path, code, words, text)
			}
		}
		for _, secret := range []string{"h1", "eth9", `"web"`} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells a tenant %s: %s", path, secret, text)
			}
		}
		if code, _ := w.get(t, "stranger", path); code != http.StatusForbidden {
			t.Errorf("%s without a project: %d", path, code)
		}
	}
	if code, text := w.get(t, "tenant", "/v1/ports/p0003"); code != http.StatusNotFound {
		t.Errorf("another project's port: %d %s", code, text)
	}
	if code, text := w.get(t, "admin", "/v1/ports/mine"); code != http.StatusOK || !strings.Contains(text, `"name":"web"`) || !strings.Contains(text, "eth9") {
		t.Errorf("an administrator: %d %s", code, text)
	}
}

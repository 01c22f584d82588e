package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOpenStackCommand creates, lists, updates and deletes every resource with Debian's openstack
// command.
func TestOpenStackCommand(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	run := func(args ...string) string { t.Helper(); return r.openstack(t, data, args...) }
	show := func(args ...string) map[string]any {
		t.Helper()
		var v map[string]any
		if err := json.Unmarshal([]byte(run(append(args, "-f", "json")...)), &v); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	list := func(args ...string) string { t.Helper(); return run(append(args, "-f", "value")...) }

	network := show("network", "create", "blue", "--description", "first")
	if network["admin_state_up"] != true || network["status"] != "ACTIVE" {
		t.Errorf("network: %v", network)
	}
	run("network", "set", "--name", "azure", "--tag", "t1", "blue")
	if got := list("network", "list", "--tags", "t1", "-c", "Name"); got != "azure" {
		t.Errorf("network list by tag: %q", got)
	}

	subnet := show("subnet", "create", "s4", "--network", "azure", "--subnet-range", "10.1.0.0/24", "--dns-nameserver", "192.0.2.53",
		"--host-route", "destination=198.51.100.0/24,gateway=10.1.0.9", "--allocation-pool", "start=10.1.0.10,end=10.1.0.20")
	if subnet["gateway_ip"] != "10.1.0.1" {
		t.Errorf("subnet: %v", subnet)
	}
	run("subnet", "create", "s6", "--network", "azure", "--subnet-range", "fd00:1::/64", "--ip-version", "6")
	run("subnet", "set", "--no-dns-nameservers", "--name", "four", "s4")
	if got := list("subnet", "list", "--ip-version", "4", "-c", "Name"); got != "four" {
		t.Errorf("subnet list: %q", got)
	}

	run("security", "group", "create", "web")
	rule := show("security", "group", "rule", "create", "web", "--ingress", "--protocol", "tcp", "--dst-port", "80:90", "--remote-ip", "192.0.2.0/24")
	if got := list("security", "group", "rule", "list", "web", "--ingress", "-c", "Port Range"); got != "80:90" {
		t.Errorf("rule list: %q", got)
	}
	run("security", "group", "set", "--description", "for the web", "web")

	port := show("port", "create", "p1", "--network", "azure", "--fixed-ip", "subnet=four,ip-address=10.1.0.15", "--security-group", "web",
		"--allowed-address", "ip-address=10.1.0.200", "--extra-dhcp-option", "name=bootfile-name,value=pxe")
	if port["status"] != "DOWN" || !strings.Contains(run("port", "show", "p1", "-c", "fixed_ips", "-f", "value"), "10.1.0.15") {
		t.Errorf("port: %v", port)
	}
	run("port", "set", "--host", "nowhere", "--device-owner", "compute:nova", "p1")
	if got := run("port", "show", "p1", "-c", "binding_vif_type", "-f", "value"); got != "binding_failed" {
		t.Errorf("a port bound to an unknown host: vif_type %q", got)
	}
	run("port", "set", "--no-security-group", "--no-allowed-address", "--disable-port-security", "--name", "p2", "p1")
	if got := list("port", "list", "--network", "azure", "--device-owner", "compute:nova", "-c", "Name"); got != "p2" {
		t.Errorf("port list: %q", got)
	}

	if got := list("extension", "list", "--network", "-c", "Alias"); !strings.Contains(got, "security-group") {
		t.Errorf("extension list: %q", got)
	}
	run("network", "agent", "list")

	run("port", "delete", "p2")
	run("security", "group", "rule", "delete", rule["id"].(string))
	run("security", "group", "delete", "web")
	run("subnet", "delete", "four")
	run("network", "delete", "azure")
	if got := list("network", "list"); got != "" {
		t.Errorf("left over: %q", got)
	}
}

package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"heddle/internal/store"
)

// TestRoutedNetwork: a port that is made and bound through the Neutron API on a routed network is
// served by the host's policy agent, as its security group says; the API tells how it fares; and
// what is deleted leaves nothing on the host.
func TestRoutedNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	h.ns.MustIP(t, "route add default via 192.0.2.1") // by which the host answers for any gateway
	s.ctl.MustIP(t, "route add 10.65.0.0/24 via 192.0.2.11")
	agent := start(t, h.ns, "agent", "--policy", "--name", h.name, "--state", h.state, "--join", s.token(t))

	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"provider:network_type": "routed"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.65.0.0/24"})
	var made map[string]object
	post := func(path, kind string, attributes map[string]any) {
		if err := c.call(t.Context(), http.MethodPost, "/v2.0/"+path, map[string]any{kind: attributes}, &made); err != nil {
			t.Fatal(err)
		}
	}
	post("security-groups", "security_group", map[string]any{"name": "web"})
	group := made["security_group"]
	openPort := func(port int) {
		post("security-group-rules", "security_group_rule", map[string]any{"security_group_id": group.ID, "direction": "ingress",
			"protocol": "tcp", "port_range_min": port, "port_range_max": port})
	}
	openPort(80)
	port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "device_id": "vm", "device_owner": "compute:nova", "binding:host_id": h.name,
		"fixed_ips": []map[string]any{{"ip_address": "10.65.0.4"}}, "security_groups": []string{group.ID}})
	type view struct {
		Status  string
		MAC     string `json:"mac_address"`
		VIFType string `json:"binding:vif_type"`
	}
	shown := func() view {
		var answer map[string]view
		if err := c.call(t.Context(), http.MethodGet, "/v2.0/ports/"+port.ID, nil, &answer); err != nil {
			t.Fatal(err)
		}
		return answer["port"]
	}
	if p := shown(); p.Status != "DOWN" || p.VIFType != "tap" {
		t.Errorf("before its machine is there: %+v", p)
	}
	tap := "tap" + port.ID[:11]
	w := s.lab.MustNamespace(t, "w1")
	s.lab.MustVeth(t, h.ns, tap, w, "eth0")
	w.MustIP(t, "link set eth0 address "+shown().MAC, "addr add 10.65.0.4/32 dev eth0", "route add default via 169.254.1.1 dev eth0 onlink")
	listenTCP(t, w, 80)
	listenTCP(t, w, 81)
	within(t, "the machine to be reached", func() bool { return connects(s.ctl, "10.65.0.4:80") })
	within(t, "the port to be ACTIVE", func() bool { return shown().Status == "ACTIVE" })
	if connects(s.ctl, "10.65.0.4:81") {
		t.Error("a port is reached that the group does not open")
	}
	openPort(81)
	within(t, "a rule that came later to be in force", func() bool { return connects(s.ctl, "10.65.0.4:81") })

	listenTCP(t, w, 82)
	post("address-groups", "address_group", map[string]any{"addresses": []string{"198.51.100.0/24"}})
	friends := made["address_group"].ID
	post("security-group-rules", "security_group_rule", map[string]any{"security_group_id": group.ID, "direction": "ingress",
		"protocol": "tcp", "port_range_min": 82, "port_range_max": 82, "remote_address_group_id": friends})
	openPort(84)
	listenTCP(t, w, 84)
	within(t, "the rules after that on the address group to be in force", func() bool { return connects(s.ctl, "10.65.0.4:84") })
	if connects(s.ctl, "10.65.0.4:82") {
		t.Error("a port is reached from an address that is not in the address group")
	}
	members := func(change string) {
		path := "/v2.0/address-groups/" + friends + "/" + change
		if err := c.call(t.Context(), http.MethodPut, path, map[string]any{"addresses": []string{"192.0.2.1/32"}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	members("add_addresses")
	within(t, "a member that came later to be let in", func() bool { return connects(s.ctl, "10.65.0.4:82") })
	members("remove_addresses")
	within(t, "one that has left to be refused", func() bool { return !connects(s.ctl, "10.65.0.4:82") })

	st := openData(t, s.data)
	for _, key := range []string{"/calico/v1/host/" + h.name + "/workload/openstack/vm/endpoint/" + port.ID, "/calico/v1/policy/profile/openstack-sg-" + group.ID + "/rules"} {
		before, err := st.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Delete: true}}); err != nil {
			t.Fatal(err)
		}
		within(t, "what somebody deleted to be back at "+key, func() bool {
			now, err := st.Get(t.Context(), key)
			return err == nil && string(now.Value) == string(before.Value)
		})
	}
	within(t, "the machine to be reached as before", func() bool { return connects(s.ctl, "10.65.0.4:81") })

	set := func(attributes map[string]any) {
		if err := c.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID, map[string]any{"port": attributes}, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string]any{"admin_state_up": false})
	within(t, "a port that is switched off to be silent", func() bool { return !connects(s.ctl, "10.65.0.4:80") })
	set(map[string]any{"admin_state_up": true})
	within(t, "it to be reached again", func() bool { return connects(s.ctl, "10.65.0.4:80") })
	if err := c.call(t.Context(), http.MethodDelete, "/v2.0/ports/"+port.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	routes := func() string {
		text, err := h.ns.Output(t.Context(), "ip", "route")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	within(t, "the deleted port's route to go", func() bool { return !strings.Contains(routes(), "10.65.0.4") })
	for _, prefix := range []string{"/calico/v1/host/" + h.name + "/workload/", "/calico/felix/v1/host/" + h.name + "/workload/"} {
		within(t, prefix+" to be empty", func() bool {
			kvs, _, err := st.List(t.Context(), prefix)
			return err == nil && len(kvs) == 0
		})
	}
	agent.stop(t)
}

// TestRoutedMetadata: a machine on a routed network gets its keys from its host, as one on a
// virtual network does; the host goes on with what it knew while the server is away, and started
// again.
func TestRoutedMetadata(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	h.ns.MustIP(t, "route add default via 192.0.2.1") // by which the host answers for any gateway
	agent := start(t, h.ns, "agent", "--policy", "--name", h.name, "--state", h.state, "--join", s.token(t))
	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"provider:network_type": "routed"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.65.0.0/24"})
	port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "device_id": "vm", "device_owner": "compute:nova", "binding:host_id": h.name,
		"mac_address": "02:00:00:00:00:04", "fixed_ips": []map[string]any{{"ip_address": "10.65.0.4"}}})
	set := func(user string) {
		if err := c.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID+"/metadata", map[string]any{"metadata": map[string]any{"user_data": user}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	set("Zmlyc3Q=") // "first"
	w := s.lab.MustNamespace(t, "w1")
	s.lab.MustVeth(t, h.ns, "tap"+port.ID[:11], w, "eth0")
	w.MustIP(t, "link set eth0 address 02:00:00:00:00:04", "addr add 10.65.0.4/32 dev eth0", "route add default via 169.254.1.1 dev eth0 onlink")
	asked := func(path string) string {
		text, _ := w.Output(t.Context(), "curl", "-s", "-m", "2", "http://169.254.169.254/"+path)
		return text
	}
	within(t, "the machine's user data", func() bool { return asked("latest/user-data") == "first" })
	set("c2Vjb25k")
	within(t, "user data that came later", func() bool { return asked("latest/user-data") == "second" })
	if got := asked("latest/meta-data/local-ipv4"); got != "10.65.0.4" {
		t.Errorf("the machine's address is %q", got)
	}

	server.stop(t)
	agent.stop(t)
	agent = start(t, h.ns, "agent", "--policy", "--name", h.name, "--state", h.state)
	within(t, "user data while the server is away", func() bool { return asked("latest/user-data") == "second" })
	s.serve(t)
	set("dGhpcmQ=")
	within(t, "the news of a server that is back", func() bool { return asked("latest/user-data") == "third" })

	inner := s.lab.MustNamespace(t, "in") // a container behind the machine
	s.lab.MustVeth(t, w, "in", inner, "eth0")
	w.MustIP(t, "addr add 172.31.0.1/24 dev in")
	inner.MustIP(t, "addr add 172.31.0.2/24 dev eth0", "route add default via 172.31.0.1")
	for _, command := range [][]string{{"sysctl", "-qw", "net.ipv4.ip_forward=1"}, {"nft", "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; add rule ip nat out oifname eth0 masquerade"}} {
		if _, err := w.Output(t.Context(), command[0], command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	container := func() string {
		text, _ := inner.Output(t.Context(), "curl", "-s", "-m", "2", "http://169.254.169.254/latest/user-data")
		return text
	}
	within(t, "the container to get what its machine gets", func() bool { return container() == "third" })
	agent.stop(t)
	agent = start(t, h.ns, "agent", "--policy", "--name", h.name, "--state", h.state, "--metadata-hop-limit", "1")
	within(t, "the machine to get answers of one hop", func() bool { return asked("latest/user-data") == "third" })
	if got := container(); got != "" {
		t.Errorf("with a hop limit of 1 the container is told %q", got)
	}
	agent.stop(t)
}

// TestRoutedHostOfServer: on the server's own machine a routed host needs neither joining nor an
// overlay for ports to be bound to it; one whose name another has says so and works on.
func TestRoutedHostOfServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"provider:network_type": "routed"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.65.0.0/24"})
	agent := []string{"agent", "--policy", "--name", "own", "--server-data", s.data, "--state"}
	state := t.TempDir()
	for range 2 { // the second finds itself
		start(t, s.ctl, append(agent, state)...).stop(t)
	}
	port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "device_id": "vm", "device_owner": "compute:nova", "binding:host_id": "own"})
	var answer map[string]struct {
		VIFType string `json:"binding:vif_type"`
	}
	if err := c.call(t.Context(), http.MethodGet, "/v2.0/ports/"+port.ID, nil, &answer); err != nil || answer["port"].VIFType != "tap" {
		t.Errorf("the port is bound as %q, %v, want tap", answer["port"].VIFType, err)
	}
	other := start(t, s.ctl, append(agent, t.TempDir())...)
	other.stop(t)
	if log, err := os.ReadFile(other.log); err != nil || !strings.Contains(string(log), "the store has another record of this host") {
		t.Errorf("a second host of this name: %v\n%s", err, log)
	}
}

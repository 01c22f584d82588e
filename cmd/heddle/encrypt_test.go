package main

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// Hosts that encrypt, one of which requires it, reach each other, also without their agents and
// without the server; --cleanup takes the device away, and with it the process that runs it.
func TestAgentEncrypts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t, "--underlay-mtu", "1440")
	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"name": "blue"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24"})
	var answer struct{ Network struct{ MTU int } }
	if err := c.call(t.Context(), "GET", "/v2.0/networks/"+network.ID, nil, &answer); err != nil || answer.Network.MTU != 1390 {
		t.Errorf("the network's MTU is %d, %v; want 1390", answer.Network.MTU, err)
	}
	var agents []*running
	var commands [][]string
	var hosts []*host
	var machines []*netlab.Namespace
	for i := 1; i <= 2; i++ {
		h := s.addHost(t, fmt.Sprintf("h%d", i), fmt.Sprintf("192.0.2.1%d", i))
		command := h.agent("--encrypt", "require")
		if i == 2 { // and as the page has it
			command = h.agent("--config", write(t, "agent:\n  encrypt: on\n"))
		}
		agents = append(agents, start(t, h.ns, append(command, "--join", s.token(t))...))
		commands, hosts = append(commands, command), append(hosts, h)
		port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "binding:host_id": h.name, "device_owner": "compute:me",
			"mac_address": fmt.Sprintf("02:00:00:00:00:0%d", i), "fixed_ips": []map[string]any{{"ip_address": fmt.Sprintf("10.0.0.1%d", i)}}})
		vm := s.lab.MustNamespace(t, fmt.Sprintf("vm%d", i))
		vm.MustIP(t, fmt.Sprintf("link add eth0 address 02:00:00:00:00:0%d type veth peer name tap%s netns %s", i, port.ID[:11], h.ns.Name),
			"link set eth0 up", fmt.Sprintf("addr add 10.0.0.1%d/24 dev eth0", i))
		h.ns.MustIP(t, "link set tap"+port.ID[:11]+" up")
		machines = append(machines, vm)
	}
	ping := func() bool {
		_, err := machines[0].Output(t.Context(), "ping", "-n", "-c", "1", "-W", "1", "-e", "7", "10.0.0.12")
		return err == nil
	}
	devices := func(h *host) string {
		out, err := h.ns.Output(t.Context(), "ip", "-o", "link")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for line := range strings.Lines(out) {
			if name := strings.Fields(line)[1]; strings.HasPrefix(name, "wg-") {
				found = append(found, name)
			}
		}
		return strings.Join(found, " ")
	}
	within(t, "the other host's machine to be reached", ping)
	for _, h := range hosts {
		if devices(h) == "" {
			t.Errorf("%s has no WireGuard device", h.name)
		}
	}
	for i, a := range agents {
		a.kill()
		if !ping() {
			t.Errorf("a machine is not reached any more after agent %d was killed", i+1)
		}
	}
	for i, h := range hosts { // as after a start of the machines, one after the other
		succeed(t, h.ns, append(commands[i], "--cleanup")...)
		if d := devices(h); d != "" {
			t.Errorf("%s has %s after its cleanup", h.name, d)
		}
	}
	server.stop(t)
	for i, h := range hosts {
		agents[i] = launch(t, h.ns, commands[i]...)
	}
	within(t, "the other host's machine to be reached without the server", ping)
	refuse(t, hosts[0].ns, 2, `--encrypt "maybe": want off, on or require`, append(commands[0], "--encrypt", "maybe")...)
}

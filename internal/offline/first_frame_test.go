package offline

import (
	"strings"
	"testing"
)

// TestFirstFrameRefused: a scenario whose first step delivers nothing is an error that names the
// step.
func TestFirstFrameRefused(t *testing.T) {
	t.Parallel()
	const network = `
topology:
  networks: [{name: lan}]
  subnets: [{name: s, network: lan, cidr: 10.0.0.0/24}]
  ports: [{name: a, network: lan, fixed_ips: [{ip: 10.0.0.1, subnet: s}]}, {name: b, network: lan, fixed_ips: [{ip: 10.0.0.2, subnet: s}]}]
`
	for _, c := range []struct{ text, want string }{
		{"scenarios: []", "scenarios: is empty"},
		{network + "steps: []", "steps: wants a step that sends a frame"},
		{network + `steps: [{send: {port: a, frame: {type: ipv4, eth_dst: "@b", ip_src: 10.0.0.9, ip_dst: 10.0.0.2, proto: udp, sport: 1, dport: 2}}}]`, "steps[0]: the frame is not delivered"},
	} {
		if _, err := OpenFirstFrame(t.Context(), strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

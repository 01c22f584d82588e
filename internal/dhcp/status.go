package dhcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"heddle/internal/telemetry"
)

// status is the agent's published state.
type status struct {
	served, waiting, problems, starts int
	serving, answering                bool
}

// Metrics are the agent's figures.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	s := a.status
	a.mu.Unlock()
	return []telemetry.Value{
		telemetry.Gauge.Of("heddle_dhcp_endpoints", "Endpoints of this host that dnsmasq serves.", s.served),
		telemetry.Gauge.Of("heddle_dhcp_endpoints_waiting", "Endpoints of this host that are not served; the log says why.", s.waiting),
		telemetry.Gauge.Of("heddle_dhcp_problems", "Objects in etcd that could not be honoured; the log names them.", s.problems),
		telemetry.Flag("heddle_dhcp_serving", "1 while a dnsmasq serves; there is none without endpoints.", s.serving),
		telemetry.Flag("heddle_dhcp_dns_serving", "1 while a dnsmasq answers DNS; there is none without endpoints.", s.answering),
		telemetry.Counter.Of("heddle_dhcp_starts_total", "Times that a dnsmasq was started.", s.starts),
	}
}

// CheckVersion reads the output of dnsmasq --version, and refuses builds without DHCP, IPv6 or
// inotify.
func CheckVersion(text string) error {
	_, options, found := strings.Cut(text, "Compile time options: ")
	if !found {
		return errors.New("dnsmasq --version does not say what it can do")
	}
	options, _, _ = strings.Cut(options, "\n")
	words := strings.Fields(options)
	for _, need := range []string{"DHCP", "DHCPv6", "inotify"} {
		if !slices.Contains(words, need) {
			return fmt.Errorf("this dnsmasq was built without %s", need)
		}
	}
	return nil
}

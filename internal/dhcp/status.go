package dhcp

import (
	"errors"
	"fmt"
	"strings"

	"heddle/internal/telemetry"
)

// status is what an agent tells of itself.
type status struct {
	served, waiting, problems, started int
	serving, answering                 bool
}

// Metrics are the agent's figures.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	s := a.status
	a.mu.Unlock()
	return []telemetry.Value{
		gauge("heddle_dhcp_endpoints", "Endpoints of this host that dnsmasq serves.", s.served),
		gauge("heddle_dhcp_endpoints_waiting", "Endpoints of this host that are not served; the log says why.", s.waiting),
		gauge("heddle_dhcp_problems", "Objects in etcd that could not be honoured; the log names them.", s.problems),
		gauge("heddle_dhcp_serving", "1 while a dnsmasq serves; there is none without endpoints.", one(s.serving)),
		gauge("heddle_dhcp_dns_serving", "1 while a dnsmasq answers DNS; there is none without endpoints.", one(s.answering)),
		{Name: "heddle_dhcp_starts_total", Help: "Times that a dnsmasq was started.", Kind: telemetry.Counter, Value: float64(s.started)},
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func gauge(name, help string, n int) telemetry.Value {
	return telemetry.Value{Name: name, Help: help, Kind: telemetry.Gauge, Value: float64(n)}
}

// CheckVersion reads what dnsmasq --version says, and refuses builds that cannot serve: they lack DHCP, IPv6 or inotify.
func CheckVersion(text string) error {
	_, options, found := strings.Cut(text, "Compile time options: ")
	if !found {
		return errors.New("dnsmasq --version does not say what it can do")
	}
	options, _, _ = strings.Cut(options, "\n")
	has := map[string]bool{}
	for word := range strings.FieldsSeq(options) {
		has[word] = true
	}
	for _, need := range []string{"DHCP", "DHCPv6", "inotify"} {
		if !has[need] {
			return fmt.Errorf("this dnsmasq was built without %s", need)
		}
	}
	return nil
}

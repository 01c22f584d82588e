package services

import (
	"net/netip"
	"testing"

	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// TestHAProxyConfiguration: haproxy accepts the codes and the longest times that the APIs take. Of
// a configuration that it refuses, the error has the reason.
func TestHAProxyConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, codes string
		seconds     int
		want        string
	}{
		{"list of codes", "200, 201 ,\t202", 86_400, ""},
		{"range of codes", "200-204", 1, ""},
		{"falling range", "299-200", 1, "haproxy refuses its configuration: config : parsing [haproxy.cfg.next:19] : 'http-check expect' : invalid range of status codes '299-200'."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			monitor := monitorOf(topology.MonitorHTTP)
			monitor.ExpectedCodes, monitor.Delay, monitor.Timeout = tt.codes, tt.seconds, tt.seconds
			c := plan.Container{Pools: []plan.Pool{{ID: "p", Monitor: monitor,
				Members: []topology.PoolMember{{ID: "m", Address: netip.MustParseAddr("192.0.2.1"), ProtocolPort: 80}}}}}
			h := &haproxy{program: "haproxy", dir: t.TempDir()}
			err := h.write(t.Context(), plan.Render(&c))
			if got := errorText(err); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

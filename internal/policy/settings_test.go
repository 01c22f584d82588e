package policy

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"heddle/calico"
	"heddle/internal/policy/nft"
)

func usual(t *testing.T) Settings {
	t.Helper()
	s, problems := Resolve(Sources{})
	if len(problems) > 0 {
		t.Fatalf("defaults: %v", problems)
	}
	return s
}

var byValue = cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{})}

func TestDefaults(t *testing.T) {
	t.Parallel()
	tcp, udp := calico.ProtocolTCP, calico.ProtocolUDP
	want := Settings{
		Rules: nft.Settings{WorkloadPrefixes: []string{"cali"}, ToHost: nft.ToHostDrop, OnDrop: nft.Drop, LogPrefix: "calico-packet",
			FailsafeInbound: []nft.Failsafe{{Protocol: tcp, Port: 22}, {Protocol: tcp, Port: 179}, {Protocol: udp, Port: 68}},
			FailsafeOutbound: []nft.Failsafe{{Protocol: tcp, Port: 179}, {Protocol: tcp, Port: 2379}, {Protocol: tcp, Port: 2380},
				{Protocol: tcp, Port: 4001}, {Protocol: tcp, Port: 7001}, {Protocol: udp, Port: 53}, {Protocol: udp, Port: 67}},
			Metadata: netip.MustParseAddrPort("127.0.0.1:8775")},
		IPIPMTU: 1440, IPv6: true, ReportingInterval: 30 * time.Second, ReportingTTL: 90 * time.Second, EndpointDelay: time.Second,
		ResyncInterval: time.Hour, RulesRefresh: 30 * time.Second, RoutesRefresh: 30 * time.Second, MaxSetSize: 1 << 20,
	}
	if diff := cmp.Diff(want, usual(t), byValue); diff != "" {
		t.Error(diff)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from     Sources
		want     func(*Settings)
		problems []string // names
		fatal    bool
	}{
		"a host's value goes before the global one": {
			from: Sources{Global: map[string]string{"LogPrefix": "g", "IpInIpMtu": "1400"}, Host: map[string]string{"logprefix": "h"}},
			want: func(s *Settings) { s.Rules.LogPrefix = "h"; s.IPIPMTU = 1400 }},
		"environment, file, host, global": {
			from: Sources{Environment: map[string]string{"IPINIPMTU": "1"}, File: map[string]string{"IpInIpMtu": "1300"},
				Host: map[string]string{"IpInIpMtu": "1200"}, Global: map[string]string{"IpInIpMtu": "1100"}},
			want: func(*Settings) {}, problems: []string{"ipinipmtu"}}, // the highest source counts, and its value cannot be used
		"booleans": {
			from: Sources{Global: map[string]string{"IpInIpEnabled": "Yes", "IgnoreLooseRPF": "T", "EndpointReportingEnabled": "1", "Ipv6Support": "N",
				"DisableConntrackInvalidCheck": "maybe"}},
			want:     func(s *Settings) { s.IPIP, s.IgnoreLooseRPF, s.EndpointReporting, s.IPv6 = true, true, true, false },
			problems: []string{"disableconntrackinvalidcheck"}},
		"an unknown name is a warning": {from: Sources{Global: map[string]string{"Frobnicate": "1"}}, want: func(*Settings) {}, problems: []string{"frobnicate"}},
		"known, without effect":        {from: Sources{Global: map[string]string{"UsageReportingEnabled": "true", "ClusterGUID": "x"}, Host: map[string]string{"LogSeveritySys": "INFO"}}, want: func(*Settings) {}},
		"without effect, on this host": {from: Sources{File: map[string]string{"EtcdAddr": "192.0.2.1:2379", "FelixHostname": "x"}, Environment: map[string]string{"LOGSEVERITYSYS": "none"}},
			want: func(*Settings) {}, problems: []string{"etcdaddr", "logseveritysys"}},
		"the log": {from: Sources{Global: map[string]string{"LogFilePath": "/var/log/calico/felix.log", "LogSeverityFile": "Warning"}, Host: map[string]string{"LogSeverityScreen": "DEBUG"}},
			want: func(s *Settings) {
				debug := slog.LevelDebug
				s.Logging = Logging{Screen: &debug, File: "/var/log/calico/felix.log", FileLevel: slog.LevelWarn}
			}},
		"a log file elsewhere, unknown severities": {from: Sources{Global: map[string]string{"LogFilePath": "/var/log/../../etc/passwd", "LogSeverityFile": "loud", "LogSeverityScreen": "x"}},
			want: func(*Settings) {}, problems: []string{"logfilepath", "logseverityfile", "logseverityscreen"}},
		"no action": {from: Sources{Global: map[string]string{"DefaultEndpointToHostAction": "REJECT"}}, want: func(*Settings) {},
			problems: []string{"defaultendpointtohostaction"}, fatal: true},
		"actions": {from: Sources{Global: map[string]string{"DefaultEndpointToHostAction": "return", "DropActionOverride": "log-and-accept"}},
			want: func(s *Settings) { s.Rules.ToHost, s.Rules.OnDrop = nft.ToHostReturn, nft.LogAndAccept }},
		"no prefix": {from: Sources{Global: map[string]string{"InterfacePrefix": "cali,"}}, want: func(*Settings) {}, problems: []string{"interfaceprefix"}, fatal: true},
		"a tap is OpenStack": {from: Sources{Global: map[string]string{"InterfacePrefix": "cali, tap"}},
			want: func(s *Settings) {
				s.Rules.WorkloadPrefixes, s.Rules.OpenStack, s.OwnMetadata = []string{"cali", "tap"}, true, s.Rules.Metadata
			}},
		"the cluster's type": {from: Sources{Global: map[string]string{"ClusterType": "kvm,OpenStack"}},
			want: func(s *Settings) { s.Rules.OpenStack, s.OwnMetadata = true, s.Rules.Metadata }},
		"metadata by another program at the usual address": {from: Sources{File: map[string]string{"MetadataAddr": "127.0.0.1", "InterfacePrefix": "tap"}},
			want: func(s *Settings) { s.Rules.WorkloadPrefixes, s.Rules.OpenStack = []string{"tap"}, true }},
		"metadata": {from: Sources{Global: map[string]string{"MetadataAddr": "192.0.2.1", "MetadataPort": "80"}},
			want: func(s *Settings) {
				s.Rules.OpenStack, s.Rules.Metadata = true, netip.MustParseAddrPort("192.0.2.1:80")
			}},
		"no metadata": {from: Sources{Global: map[string]string{"MetadataAddr": "None"}},
			want: func(s *Settings) { s.Rules.OpenStack, s.Rules.Metadata = true, netip.AddrPort{} }},
		"fail-safe ports": {
			from: Sources{Global: map[string]string{"FailsafeInboundHostPorts": "22, udp:68,tcp:192.0.2.0/24:443,udp:[2001:db8::/32]:53", "FailsafeOutboundHostPorts": "none"}},
			want: func(s *Settings) {
				s.Rules.FailsafeInbound = []nft.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 17, Port: 68},
					{Protocol: 6, Port: 443, Net: netip.MustParsePrefix("192.0.2.0/24")}, {Protocol: 17, Port: 53, Net: netip.MustParsePrefix("2001:db8::/32")}}
				s.Rules.FailsafeOutbound = nil
			}},
		"a fail-safe port of no protocol": {from: Sources{Global: map[string]string{"FailsafeInboundHostPorts": "icmp:1"}}, want: func(*Settings) {},
			problems: []string{"failsafeinboundhostports"}, fatal: true},
		"a fail-safe port out of range": {from: Sources{Host: map[string]string{"FailsafeOutboundHostPorts": "tcp:65536"}}, want: func(*Settings) {},
			problems: []string{"failsafeoutboundhostports"}, fatal: true},
		"seconds": {from: Sources{Global: map[string]string{"ReportingIntervalSecs": "0", "ReportingTTLSecs": "1.5", "EndpointReportingDelaySecs": "-1"}},
			want:     func(s *Settings) { s.ReportingInterval, s.ReportingTTL = 0, 1500*time.Millisecond },
			problems: []string{"endpointreportingdelaysecs"}},
		"tunnel": {from: Sources{Host: map[string]string{"IpInIpTunnelAddr": "192.0.2.9"}}, want: func(s *Settings) { s.IPIPAddress = netip.MustParseAddr("192.0.2.9") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := usual(t)
			c.want(&want)
			got, problems := Resolve(c.from)
			if diff := cmp.Diff(want, got, byValue); diff != "" {
				t.Error(diff)
			}
			var names []string
			fatal := false
			for _, p := range problems {
				names = append(names, p.Name)
				fatal = fatal || p.Fatal
			}
			if !slices.Equal(names, c.problems) || fatal != c.fatal {
				t.Errorf("problems %v, fatal %v; want %v, %v", problems, fatal, c.problems, c.fatal)
			}
			if name == "an unknown name is a warning" && !errors.Is(problems[0], errUnknown) {
				t.Errorf("problem %v", problems[0])
			}
		})
	}
}

func TestParseFile(t *testing.T) {
	t.Parallel()
	got, err := ParseFile("# of this host\n[global]\nInterfacePrefix = tap\n; old\n[other]\nLogPrefix: \"x y\"\n\nMetadataAddr=\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"InterfacePrefix": "tap", "LogPrefix": "x y", "MetadataAddr": ""}, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"[global", "InterfacePrefix", "= x"} {
		if _, err := ParseFile(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	file := map[string]string{"FelixHostname": "f"}
	if got := Hostname(map[string]string{"FELIXHOSTNAME": "e"}, file); got != "e" {
		t.Errorf("environment before file: %q", got)
	}
	if got := Hostname(nil, file); got != "f" {
		t.Errorf("of the file: %q", got)
	}
	if got := Hostname(nil, nil); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := Environment([]string{"PATH=/bin", "FELIX_INTERFACEPREFIX=tap", "FELIX_LOGPREFIX=a=b"})
	if diff := cmp.Diff(map[string]string{"INTERFACEPREFIX": "tap", "LOGPREFIX": "a=b"}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("InterfacePrefix = cali,tap\nFailsafeInboundHostPorts = tcp:192.0.2.0/24:443,22")
	f.Add("FailsafeOutboundHostPorts = udp:[2001:db8::/32]:53\nReportingIntervalSecs = NaN")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseFile(text)
		if err != nil {
			return
		}
		s, problems := Resolve(Sources{File: file})
		if len(s.Rules.WorkloadPrefixes) == 0 || s.ReportingTTL < 0 || s.MaxSetSize < 1 {
			t.Errorf("%q gives %+v, %v", text, s, problems)
		}
	})
}

// TestGuide: the guide names every setting that has an effect, and no other.
func TestGuide(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/guides/policy-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, line := range strings.Split(string(raw), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "name" {
			continue
		}
		starred := strings.HasSuffix(strings.TrimSpace(cells[1]), "*")
		for _, name := range strings.Split(strings.Trim(cells[1], " *"), ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			told[name] = true
			if line, ok := table()[name]; !ok || line.read == nil || line.fatal != starred {
				t.Errorf("the guide has %q, star %v; there is no such setting", name, starred)
			}
		}
	}
	for name, line := range table() {
		if line.read != nil && !told[name] {
			t.Errorf("the guide lacks %s", name)
		}
	}
}

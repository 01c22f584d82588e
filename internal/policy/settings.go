package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/policy/nft"
)

// Settings are the agent's own, checked (spec §14).
type Settings struct {
	Rules             nft.Settings  // what the ruleset depends on
	IgnoreLooseRPF    bool          // say nothing about loose reverse-path filters
	IPIP              bool          // make tunl0 even if no pool asks for it
	IPIPMTU           int           // bytes, of tunnel devices for IPIP
	IPIPAddress       netip.Addr    // of the tunnel device; the zero Addr: none
	IPv6              bool          // program IPv6
	ReportingInterval time.Duration // of liveness; 0: never
	ReportingTTL      time.Duration // of liveness
	EndpointReporting bool          // report what became of each endpoint
	EndpointDelay     time.Duration // how long a change of an endpoint's status waits, so that flapping collapses
	ResyncInterval    time.Duration // of everything against etcd; 0: never
	RulesRefresh      time.Duration // of nftables against what is wanted; 0: on events only
	RoutesRefresh     time.Duration // of routes against what is wanted; 0: on events only
	MaxSetSize        int           // addresses of a set
	Logging           Logging       // where the agent's log goes
}

// setting is one line of the table: how a value is read into Settings. A value that cannot be read is replaced by the
// default, or stops the agent where that could open traffic: fatal.
type setting struct {
	byDefault string
	fatal     bool
	read      func(*Settings, string) error // nil: known, and without effect here
}

// The settings, by lower-case name: names are compared without case.
func table() map[string]setting {
	t := map[string]setting{
		"interfaceprefix":             {"cali", true, readPrefixes},
		"defaultendpointtohostaction": {"DROP", true, word(func(s *Settings) *nft.HostAction { return &s.Rules.ToHost }, nft.ToHostDrop, nft.ToHostReturn, nft.ToHostAccept)},
		"dropactionoverride": {"DROP", true, word(func(s *Settings) *nft.DropAction { return &s.Rules.OnDrop },
			nft.Drop, nft.Accept, nft.LogAndDrop, nft.LogAndAccept)},
		"failsafeinboundhostports":     {"tcp:22,tcp:179,udp:68", true, ports(func(s *Settings) *[]nft.Failsafe { return &s.Rules.FailsafeInbound })},
		"failsafeoutboundhostports":    {"tcp:179,tcp:2379,tcp:2380,tcp:4001,tcp:7001,udp:53,udp:67", true, ports(func(s *Settings) *[]nft.Failsafe { return &s.Rules.FailsafeOutbound })},
		"ignorelooserpf":               {"false", false, truth(func(s *Settings) *bool { return &s.IgnoreLooseRPF })},
		"ipinipenabled":                {"false", false, truth(func(s *Settings) *bool { return &s.IPIP })},
		"ipinipmtu":                    {"1440", false, number(68, 65535, func(s *Settings) *int { return &s.IPIPMTU })},
		"ipiniptunneladdr":             {"none", false, readTunnelAddress},
		"ipv6support":                  {"auto", false, readIPv6},
		"metadataaddr":                 {"127.0.0.1", false, readMetadata},
		"metadataport":                 {"8775", false, readMetadataPort},
		"logprefix":                    {"calico-packet", false, func(s *Settings, v string) error { s.Rules.LogPrefix = v; return nil }},
		"reportingintervalsecs":        {"30", false, seconds(func(s *Settings) *time.Duration { return &s.ReportingInterval })},
		"reportingttlsecs":             {"90", false, seconds(func(s *Settings) *time.Duration { return &s.ReportingTTL })},
		"endpointreportingenabled":     {"false", false, truth(func(s *Settings) *bool { return &s.EndpointReporting })},
		"endpointreportingdelaysecs":   {"1", false, seconds(func(s *Settings) *time.Duration { return &s.EndpointDelay })},
		"periodicresyncinterval":       {"3600", false, seconds(func(s *Settings) *time.Duration { return &s.ResyncInterval })},
		"iptablesrefreshinterval":      {"30", false, seconds(func(s *Settings) *time.Duration { return &s.RulesRefresh })},
		"routerefreshinterval":         {"30", false, seconds(func(s *Settings) *time.Duration { return &s.RoutesRefresh })},
		"maxipsetsize":                 {"1048576", false, number(1, 1<<26, func(s *Settings) *int { return &s.MaxSetSize })},
		"disableconntrackinvalidcheck": {"false", false, truth(func(s *Settings) *bool { return &s.Rules.AcceptInvalid })},
		"clustertype":                  {"", false, readClusterType},
		"logseverityscreen":            {"", false, readScreenLevel},
		"logfilepath":                  {"none", false, readLogFile},
		"logseverityfile":              {"INFO", false, readFileLevel},
	}
	for _, name := range withoutEffect {
		t[name] = setting{}
	}
	return t
}

// hostname is the setting of this host's name in the model: see [Hostname].
const hostname = "felixhostname"

// Hostname is the name that settings of this host give it in the model; empty: none.
func Hostname(environment, file map[string]string) string {
	if name := lower(environment)[hostname]; name != "" {
		return name
	}
	return lower(file)[hostname]
}

// withoutEffect are the settings that peers know and that Heddle has no use for: how to reach etcd and what to serve come
// from Heddle's own flags, the system's log is the screen's, kernel events make polling needless, and nobody is told of usage.
var withoutEffect = []string{hostname, "etcdendpoints", "etcdaddr", "etcdscheme", "etcdkeyfile", "etcdcertfile", "etcdcafile",
	"logseveritysys", "ipsetsrefreshinterval", "hostinterfacepollinterval", "startupcleanupdelay",
	"iptablesmarkmask", "chaininsertmode", "prometheusmetricsenabled", "prometheusmetricsport", "healthenabled", "healthport",
	"clusterguid", "usagereportingenabled", "marker", "bgp_as", "bgp_node_mesh", "dns_domain"}

// Sources are where values of settings come from. Names are compared without case.
type Sources struct {
	Environment map[string]string // without FELIX_
	File        map[string]string
	Host        map[string]string // of the datastore, for this host
	Global      map[string]string // of the datastore
}

// Problem is what is wrong with a value, or a name, of a setting.
type Problem struct {
	Name, Source, Value string
	Err                 error
	Fatal               bool // the agent must not work with the default
}

func (p Problem) Error() string {
	if p.Value == "" {
		return fmt.Sprintf("setting %s (%s): %v", p.Name, p.Source, p.Err)
	}
	return fmt.Sprintf("setting %s = %q (%s): %v", p.Name, p.Value, p.Source, p.Err)
}

func (p Problem) Unwrap() error { return p.Err }

// errUnknown says that nobody knows a setting of that name. It is a warning.
var errUnknown = errors.New("no such setting; ignored")

// errNoEffect says that peers know a setting which is given on this host, and that Heddle has no use for it.
var errNoEffect = errors.New("it has no effect: how to reach etcd and what to serve are flags of heddle agent")

// Resolve finds each setting's value in the highest source that has one and reads it. Problems are in order of names.
func Resolve(from Sources) (Settings, []Problem) {
	var s Settings
	var problems []Problem
	known, given := table(), map[string]bool{}
	sources := []struct {
		name   string
		values map[string]string
		local  bool
	}{{"environment", lower(from.Environment), true}, {"file", lower(from.File), true},
		{"datastore, this host", lower(from.Host), false}, {"datastore, global", lower(from.Global), false}}
	for _, source := range sources {
		for name, value := range source.values {
			line, ok := known[name]
			switch {
			case !ok:
				problems = append(problems, Problem{Name: name, Source: source.name, Value: value, Err: errUnknown})
			case line.read == nil && source.local && name != hostname:
				problems = append(problems, Problem{Name: name, Source: source.name, Value: value, Err: errNoEffect})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		line := known[name]
		if line.read == nil {
			continue
		}
		if err := line.read(&s, line.byDefault); err != nil {
			problems = append(problems, Problem{Name: name, Source: "default", Value: line.byDefault, Err: err, Fatal: true})
		}
		for _, source := range sources {
			value, ok := source.values[name]
			if !ok {
				continue
			}
			given[name] = true
			tried := s
			if err := line.read(&tried, strings.TrimSpace(value)); err != nil {
				problems = append(problems, Problem{Name: name, Source: source.name, Value: value, Err: err, Fatal: line.fatal})
			} else {
				s = tried
			}
			break
		}
	}
	s.deriveOpenStack(given)
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Name+a.Source, b.Name+b.Source) })
	return s, problems
}

func lower(from map[string]string) map[string]string {
	out := make(map[string]string, len(from))
	for name, value := range from {
		out[strings.ToLower(name)] = value
	}
	return out
}

// deriveOpenStack switches OpenStack's exceptions on where the cluster's type, a metadata setting or the prefix of the
// interfaces says that this is one (spec §7.2). Metadata without an address or a port is served nowhere.
func (s *Settings) deriveOpenStack(given map[string]bool) {
	usual := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 8775)
	s.Rules.OpenStack = s.Rules.OpenStack || given["metadataaddr"] && s.Rules.Metadata.Addr() != usual.Addr() ||
		given["metadataport"] && s.Rules.Metadata.Port() != usual.Port() || slices.Contains(s.Rules.WorkloadPrefixes, "tap")
	if !s.Rules.Metadata.IsValid() || s.Rules.Metadata.Port() == 0 {
		s.Rules.Metadata = netip.AddrPort{}
	}
}

func readPrefixes(s *Settings, v string) error {
	s.Rules.WorkloadPrefixes = nil
	for _, p := range strings.Split(v, ",") {
		p = strings.TrimSpace(p)
		if p == "" || len(p) > 15 || strings.Trim(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" {
			return fmt.Errorf("prefix %q: want 1 to 15 of letters, digits, underscores, dots and dashes, joined by commas", p)
		}
		s.Rules.WorkloadPrefixes = append(s.Rules.WorkloadPrefixes, p)
	}
	return nil
}

// word reads one of some words, in any case.
func word[W ~string](field func(*Settings) *W, words ...W) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		for _, w := range words {
			if strings.EqualFold(string(w), v) {
				*field(s) = w
				return nil
			}
		}
		return fmt.Errorf("want one of %v", words)
	}
}

// truth reads a boolean as peers spell it.
func truth(field func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		b, err := boolean(v)
		if err == nil {
			*field(s) = b
		}
		return err
	}
}

func boolean(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "y", "t":
		return true, nil
	case "false", "0", "no", "n", "f":
		return false, nil
	}
	return false, errors.New("want true or false")
}

func number(least, most int, field func(*Settings) *int) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want a number from %d to %d", least, most)
		}
		*field(s) = n
		return nil
	}
}

// seconds reads a duration, which may have a fraction.
func seconds(field func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n >= 0 && n <= 1e6) {
			return errors.New("want seconds from 0 to 1000000")
		}
		*field(s) = time.Duration(n * float64(time.Second))
		return nil
	}
}

func readTunnelAddress(s *Settings, v string) error {
	if isNone(v) {
		s.IPIPAddress = netip.Addr{}
		return nil
	}
	a, err := netip.ParseAddr(v)
	if err != nil || !a.Is4() {
		return errors.New("want an IPv4 address or none")
	}
	s.IPIPAddress = a
	return nil
}

func isNone(v string) bool { return v == "" || strings.EqualFold(v, "none") }

// readIPv6: auto is on, since what a kernel without IPv6 lacks is left out piece by piece.
func readIPv6(s *Settings, v string) error {
	if strings.EqualFold(v, "auto") {
		s.IPv6 = true
		return nil
	}
	b, err := boolean(v)
	if err != nil {
		return errors.New("want auto, true or false")
	}
	s.IPv6 = b
	return nil
}

func readMetadata(s *Settings, v string) error {
	a, err := netip.ParseAddr(v)
	switch {
	case isNone(v):
		a = netip.Addr{}
	case err != nil || !a.Is4():
		return errors.New("want an IPv4 address or none")
	}
	s.Rules.Metadata = netip.AddrPortFrom(a, s.Rules.Metadata.Port())
	return nil
}

func readMetadataPort(s *Settings, v string) error {
	n, err := strconv.ParseUint(v, 10, 16)
	switch {
	case isNone(v):
		n = 0
	case err != nil || n == 0:
		return errors.New("want a port from 1 to 65535, or none")
	}
	s.Rules.Metadata = netip.AddrPortFrom(s.Rules.Metadata.Addr(), uint16(n))
	return nil
}

func readClusterType(s *Settings, v string) error {
	s.Rules.OpenStack = strings.Contains(strings.ToLower(v), "openstack")
	return nil
}

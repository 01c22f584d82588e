package policy

import (
	"errors"
	"fmt"
	"log/slog"
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
	// OwnMetadata is the address at which the agent itself serves metadata; the zero AddrPort: none
	// is served, or the settings name another server.
	OwnMetadata netip.AddrPort
}

// setting is one line of the table. A value that cannot be read is replaced by the default. If that
// could open traffic the setting is fatal, and stops the agent.
type setting struct {
	byDefault string
	fatal     bool
	read      func(*Settings, string) error // nil: known, and without effect here
}

// The settings, by lower-case name: names are compared without case.
func table() map[string]setting {
	t := map[string]setting{
		"interfaceprefix":             {"cali", true, into(func(s *Settings) *[]string { return &s.Rules.WorkloadPrefixes }, parsePrefixes)},
		"defaultendpointtohostaction": {"DROP", true, into(func(s *Settings) *nft.HostAction { return &s.Rules.ToHost }, oneOf(nft.ToHostDrop, nft.ToHostReturn, nft.ToHostAccept))},
		"dropactionoverride": {"DROP", true, into(func(s *Settings) *nft.DropAction { return &s.Rules.OnDrop },
			oneOf(nft.Drop, nft.Accept, nft.LogAndDrop, nft.LogAndAccept))},
		"failsafeinboundhostports":     {"tcp:22,tcp:179,udp:68", true, into(func(s *Settings) *[]nft.Failsafe { return &s.Rules.FailsafeInbound }, parseFailsafes)},
		"failsafeoutboundhostports":    {"tcp:179,tcp:2379,tcp:2380,tcp:4001,tcp:7001,udp:53,udp:67", true, into(func(s *Settings) *[]nft.Failsafe { return &s.Rules.FailsafeOutbound }, parseFailsafes)},
		"ignorelooserpf":               {"false", false, into(func(s *Settings) *bool { return &s.IgnoreLooseRPF }, parseBool)},
		"ipinipenabled":                {"false", false, into(func(s *Settings) *bool { return &s.IPIP }, parseBool)},
		"ipinipmtu":                    {"1440", false, into(func(s *Settings) *int { return &s.IPIPMTU }, number(68, 65535))},
		"ipiniptunneladdr":             {"none", false, into(func(s *Settings) *netip.Addr { return &s.IPIPAddress }, parseIPv4)},
		"ipv6support":                  {"auto", false, into(func(s *Settings) *bool { return &s.IPv6 }, parseIPv6Support)},
		"metadataaddr":                 {"127.0.0.1", false, readMetadata},
		"metadataport":                 {"8775", false, readMetadataPort},
		"logprefix":                    {"calico-packet", false, func(s *Settings, v string) error { s.Rules.LogPrefix = v; return nil }},
		"reportingintervalsecs":        {"30", false, into(func(s *Settings) *time.Duration { return &s.ReportingInterval }, parseSeconds)},
		"reportingttlsecs":             {"90", false, into(func(s *Settings) *time.Duration { return &s.ReportingTTL }, parseSeconds)},
		"endpointreportingenabled":     {"false", false, into(func(s *Settings) *bool { return &s.EndpointReporting }, parseBool)},
		"endpointreportingdelaysecs":   {"1", false, into(func(s *Settings) *time.Duration { return &s.EndpointDelay }, parseSeconds)},
		"periodicresyncinterval":       {"3600", false, into(func(s *Settings) *time.Duration { return &s.ResyncInterval }, parseSeconds)},
		"iptablesrefreshinterval":      {"30", false, into(func(s *Settings) *time.Duration { return &s.RulesRefresh }, parseSeconds)},
		"routerefreshinterval":         {"30", false, into(func(s *Settings) *time.Duration { return &s.RoutesRefresh }, parseSeconds)},
		"maxipsetsize":                 {"1048576", false, into(func(s *Settings) *int { return &s.MaxSetSize }, number(1, 1<<26))},
		"disableconntrackinvalidcheck": {"false", false, into(func(s *Settings) *bool { return &s.Rules.AcceptInvalid }, parseBool)},
		"clustertype":                  {"", false, readClusterType},
		"logseverityscreen":            {"", false, readScreenLevel},
		"logfilepath":                  {"none", false, readLogFile},
		"logseverityfile":              {"INFO", false, into(func(s *Settings) *slog.Level { return &s.Logging.FileLevel }, readLevel)},
	}
	for _, name := range withoutEffect {
		t[name] = setting{}
	}
	return t
}

// hostname is the setting of this host's name in the model: see [Hostname].
const hostname = "felixhostname"

// Hostname returns the host's name in the model by settings of this host; empty: none.
func Hostname(environment, file map[string]string) string {
	if name := lower(environment)[hostname]; name != "" {
		return name
	}
	return lower(file)[hostname]
}

// withoutEffect are settings of peers for which Heddle has no use: it has flags for etcd and for
// what to serve, one log, and kernel events instead of polling, and reports no usage.
var withoutEffect = []string{hostname, "etcdendpoints", "etcdaddr", "etcdscheme", "etcdkeyfile", "etcdcertfile", "etcdcafile",
	"logseveritysys", "ipsetsrefreshinterval", "hostinterfacepollinterval", "startupcleanupdelay",
	"iptablesmarkmask", "chaininsertmode", "prometheusmetricsenabled", "prometheusmetricsport", "healthenabled", "healthport",
	"clusterguid", "usagereportingenabled", "marker", "bgp_as", "bgp_node_mesh", "dns_domain"}

// Sources are the values of settings by source. Names are compared without case.
type Sources struct {
	Environment map[string]string // without FELIX_
	File        map[string]string
	Host        map[string]string // of the datastore, for this host
	Global      map[string]string // of the datastore
}

// Problem is an error in the name or value of a setting.
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

// errUnknown marks an unknown setting, which is a warning.
var errUnknown = errors.New("no such setting; ignored")

// errNoEffect marks a setting of this host that Heddle does not use.
var errNoEffect = errors.New("it has no effect: how to reach etcd and what to serve are flags of heddle agent")

// Resolve reads each setting from the highest source that has it. Problems are sorted by name.
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

// deriveOpenStack turns OpenStack's exceptions on if the cluster's type, a metadata setting or the
// prefix of interfaces suggests it (spec §7.2).
func (s *Settings) deriveOpenStack(given map[string]bool) {
	usual := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 8775)
	s.Rules.OpenStack = s.Rules.OpenStack || given["metadataaddr"] && s.Rules.Metadata.Addr() != usual.Addr() ||
		given["metadataport"] && s.Rules.Metadata.Port() != usual.Port() || slices.Contains(s.Rules.WorkloadPrefixes, "tap")
	if !s.Rules.Metadata.IsValid() || s.Rules.Metadata.Port() == 0 {
		s.Rules.Metadata = netip.AddrPort{}
	}
	if s.Rules.OpenStack && !given["metadataaddr"] && !given["metadataport"] {
		s.OwnMetadata = s.Rules.Metadata
	}
}

// into returns a reader that parses a value into a field.
func into[T any](field func(*Settings) *T, parse func(string) (T, error)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		value, err := parse(v)
		if err == nil {
			*field(s) = value
		}
		return err
	}
}

func parsePrefixes(v string) (all []string, err error) {
	for _, p := range strings.Split(v, ",") {
		p = strings.TrimSpace(p)
		if p == "" || len(p) > 15 || strings.Trim(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != "" {
			return nil, fmt.Errorf("prefix %q: want 1 to 15 of letters, digits, underscores, dots and dashes, joined by commas", p)
		}
		all = append(all, p)
	}
	return all, nil
}

// oneOf returns a parser of one of some words, in any case.
func oneOf[W ~string](words ...W) func(string) (W, error) {
	return func(v string) (W, error) {
		for _, w := range words {
			if strings.EqualFold(string(w), v) {
				return w, nil
			}
		}
		return "", fmt.Errorf("want one of %v", words)
	}
}

// parseBool parses a boolean as peers spell it.
func parseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "y", "t":
		return true, nil
	case "false", "0", "no", "n", "f":
		return false, nil
	}
	return false, errors.New("want true or false")
}

func number(least, most int) func(string) (int, error) {
	return func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("want a number from %d to %d", least, most)
		}
		return n, nil
	}
}

// parseSeconds parses a duration, which may have a fraction.
func parseSeconds(v string) (time.Duration, error) {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		return 0, errors.New("want seconds from 0 to 1000000")
	}
	return time.Duration(n * float64(time.Second)), nil
}

func isNone(v string) bool { return v == "" || strings.EqualFold(v, "none") }

// parseIPv4 parses an address; none is the zero Addr.
func parseIPv4(v string) (netip.Addr, error) {
	a, err := netip.ParseAddr(v)
	switch {
	case isNone(v):
		return netip.Addr{}, nil
	case err != nil || !a.Is4():
		return netip.Addr{}, errors.New("want an IPv4 address or none")
	}
	return a, nil
}

// parseIPv6Support parses whether to program IPv6. auto is on: what the kernel lacks is left out.
func parseIPv6Support(v string) (bool, error) {
	if strings.EqualFold(v, "auto") {
		return true, nil
	}
	on, err := parseBool(v)
	if err != nil {
		return false, errors.New("want auto, true or false")
	}
	return on, nil
}

func readMetadata(s *Settings, v string) error {
	a, err := parseIPv4(v)
	s.Rules.Metadata = netip.AddrPortFrom(a, s.Rules.Metadata.Port())
	return err
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

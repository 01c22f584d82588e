package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"heddle/internal/topology"
)

// Files of haproxy, below its working directory.
const (
	ConfigFile   = "haproxy.cfg"
	StateFile    = "servers.state"
	AdminSocket  = "admin.sock"
	HealthSocket = "health.sock" // where it logs what becomes of its checks
)

// User is the user, and the group, as which haproxy checks members; its packages make them.
const User = "haproxy"

// Render returns haproxy's configuration for the checks of a container, "" if there are none. Equal
// checks have equal texts.
func Render(c *Container) string {
	var b strings.Builder
	for i := range c.Pools {
		if p := &c.Pools[i]; !p.byAgent() && len(p.Members) > 0 {
			renderPool(&b, p)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return `# Written by heddle agent: changes are overwritten.
global
	user ` + User + `
	group ` + User + `
	log unix@` + HealthSocket + ` format raw local0
	stats socket unix@` + AdminSocket + ` mode 600 level admin
	server-state-file ` + StateFile + `
	nbthread 1
	maxconn 1024
defaults
	mode tcp
	log global
	option log-health-checks
	load-server-state-from-file global
	timeout server 10s
` + b.String()
}

// renderPool renders the backend of a pool.
func renderPool(b *strings.Builder, p *Pool) {
	m := &p.Monitor
	line := func(format string, args ...any) { fmt.Fprintf(b, "\t"+format+"\n", args...) }
	fmt.Fprintf(b, "backend %s\n", word(p.ID))
	line("timeout connect %ds", m.Timeout)
	line("timeout check %ds", m.Timeout)
	if p.Source.IsValid() {
		line("source %s", endpoint(p.Source, 0))
	}
	more := ""
	switch m.Type {
	case topology.MonitorHTTP, topology.MonitorHTTPS:
		renderHTTP(line, m)
		if m.Type == topology.MonitorHTTPS {
			more = " check-ssl verify none"
			if m.DomainName != "" {
				more += " check-sni " + word(m.DomainName)
			}
		}
	case topology.MonitorTLSHello:
		line("option ssl-hello-chk")
	}
	for i := range p.Members {
		s := &p.Members[i]
		line("server %s %s check%s inter %ds fall %d rise %d%s", word(s.ID), endpoint(s.Address, s.ProtocolPort), more, m.Delay, p.Fall(), p.Rise(), monitored(s))
	}
}

// renderHTTP renders the request of a check and the codes that it expects.
func renderHTTP(line func(string, ...any), m *topology.HealthMonitor) {
	version := cmp.Or(m.HTTPVersion, "1.0")
	host := ""
	if m.DomainName != "" {
		host = " hdr Host " + word(m.DomainName)
	} else if version != "1.0" {
		host = " hdr Host localhost" // HTTP/1.1 wants one
	}
	line("option httpchk")
	line("http-check send meth %s uri %s ver %s%s", word(cmp.Or(m.HTTPMethod, "GET")), word(cmp.Or(m.URLPath, "/")), word("HTTP/"+version), host)
	line("http-check expect status %s", word(expectedCodes(m)))
}

// expectedCodes returns the codes that a check expects, without the spaces beside commas that
// Octavia takes and haproxy does not.
func expectedCodes(m *topology.HealthMonitor) string {
	return strings.Join(strings.Fields(cmp.Or(m.ExpectedCodes, "200")), "")
}

// monitored returns what is checked in place of a member's address and port.
func monitored(s *topology.PoolMember) (text string) {
	if s.MonitorAddress.IsValid() {
		text += " addr " + s.MonitorAddress.String()
	}
	if s.MonitorPort != 0 {
		text += " port " + strconv.Itoa(int(s.MonitorPort))
	}
	return text
}

func endpoint(a netip.Addr, port uint16) string {
	return netip.AddrPortFrom(a, port).String()
}

// word quotes a value as one word of haproxy's configuration. What has no place in a line of text
// is encoded as in URLs.
func word(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		case c == '\'':
			b.WriteString(`'\''`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// Raise returns the commands by which haproxy takes members up at once: those that a container's
// pools name and that are up.
func Raise(c *Container, up func(member string) bool) (commands []string) {
	for i := range c.Pools {
		p := &c.Pools[i]
		for j := range p.Members {
			if id := p.Members[j].ID; !p.byAgent() && up(id) {
				commands = append(commands, "set server "+p.ID+"/"+id+" health up")
			}
		}
	}
	return commands
}

// NoState is a saved state of haproxy without servers: the version of its form alone.
const NoState = "1\n"

// Begin adds lines for the members that a saved state lacks, so that haproxy begins with the last
// verdicts about them; known returns one, "" for none. Without a line haproxy would take a member
// down at its first failure, which may come before the container's port is in force everywhere.
func Begin(state string, c *Container, known func(member string) string) string {
	has := map[string]bool{}
	for line := range strings.Lines(state) {
		if fields := strings.Fields(line); len(fields) > 3 {
			has[fields[3]] = true
		}
	}
	var b strings.Builder
	b.WriteString(state)
	for i := range c.Pools {
		p := &c.Pools[i]
		for j := range p.Members {
			if m := &p.Members[j]; !p.byAgent() && !has[m.ID] {
				writeServerState(&b, p, m, known(m.ID) != topology.MemberInactive)
			}
		}
	}
	return b.String()
}

// writeServerState writes the state of a server that was never checked, in the fields of haproxy's
// management guide, "show servers state". It counts as up until all checks of a fall have failed,
// or as down until all of a rise have succeeded.
func writeServerState(b *strings.Builder, p *Pool, m *topology.PoolMember, up bool) {
	const stopped, running = 0, 2
	operation, health := stopped, 0
	if up {
		operation, health = running, p.Rise()+p.Fall()-1
	}
	const weight, neverChecked, noResult, enabled = 1, 1, 0, 6
	fmt.Fprintf(b, "0 %s 0 %s %s %d 0 %d %d 0 %d %d %d %d 0 0 0 - %d - 0 0 - - 0\n", p.ID, m.ID, m.Address,
		operation, weight, weight, neverChecked, noResult, health, enabled, m.ProtocolPort)
}

// Kept returns the lines of haproxy's saved state, as `show servers state` prints it, with which a
// new configuration may start: not those of members that are checked elsewhere now, whose address
// would be the old one.
func Kept(state string, before, after *Container) string {
	old := checked(before)
	now := checked(after)
	var b strings.Builder
	for line := range strings.Lines(state) {
		fields := strings.Fields(line)
		if len(fields) > 4 && !strings.HasPrefix(line, "#") && old[fields[3]] != now[fields[3]] {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// checked returns what is checked of each member, by its id.
func checked(c *Container) map[string]string {
	all := map[string]string{}
	if c == nil {
		return all
	}
	for i := range c.Pools {
		for j := range c.Pools[i].Members {
			m := &c.Pools[i].Members[j]
			all[m.ID] = endpoint(m.Address, m.ProtocolPort) + monitored(m)
		}
	}
	return all
}

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
	line("http-check expect status %s", word(cmp.Or(m.ExpectedCodes, "200")))
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

// Prime returns the commands by which haproxy begins with the last verdicts about members; known
// returns one, "" for none.
func Prime(c *Container, known func(member string) string) (commands []string) {
	health := map[string]string{topology.MemberActive: "up", topology.MemberInactive: "down"}
	for i := range c.Pools {
		p := &c.Pools[i]
		for j := range p.Members {
			if word := health[known(p.Members[j].ID)]; word != "" && !p.byAgent() {
				commands = append(commands, "set server "+p.ID+"/"+p.Members[j].ID+" health "+word)
			}
		}
	}
	return commands
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

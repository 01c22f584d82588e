package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"heddle/calico"
	"heddle/internal/policy/nft"
)

// parseFailsafes parses fail-safe ports: number, protocol:number or protocol:network:number, joined
// by commas. A number alone is of TCP; an IPv6 network may be in brackets. "none" and "" clear the
// list.
func parseFailsafes(v string) (list []nft.Failsafe, err error) {
	if isNone(v) {
		return nil, nil
	}
	for _, part := range strings.Split(v, ",") {
		p, err := parseFailsafe(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		list = append(list, p)
	}
	return list, nil
}

func parseFailsafe(text string) (nft.Failsafe, error) {
	p := nft.Failsafe{Protocol: calico.ProtocolTCP}
	if before, after, found := strings.Cut(text, ":"); found {
		switch strings.ToLower(before) {
		case "tcp":
		case "udp":
			p.Protocol = calico.ProtocolUDP
		default:
			return p, fmt.Errorf("protocol %q: want tcp or udp", before)
		}
		text = after
		if at := strings.LastIndexByte(text, ':'); at >= 0 {
			n, err := netip.ParsePrefix(strings.Trim(text[:at], "[]"))
			if err != nil {
				return p, fmt.Errorf("network %q: want a CIDR", text[:at])
			}
			p.Net, text = n.Masked(), text[at+1:]
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return p, errors.New("want a port from 1 to 65535")
	}
	p.Port = uint16(n)
	return p, nil
}

// ParseFile parses a configuration file of peers: INI, whatever the names of sections. Lines that
// begin with # or ; are comments. An error names the line.
func ParseFile(text string) (map[string]string, error) {
	values := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			if !strings.HasSuffix(line, "]") {
				return nil, fmt.Errorf("line %d: %q: want [section]", i+1, line)
			}
			continue
		}
		at := strings.IndexAny(line, "=:")
		if at <= 0 {
			return nil, fmt.Errorf("line %d: %q: want name = value", i+1, line)
		}
		values[strings.TrimSpace(line[:at])] = strings.Trim(strings.TrimSpace(line[at+1:]), `"'`)
	}
	return values, nil
}

// Environment returns the settings in a process's environment: those that begin with FELIX_.
func Environment(environ []string) map[string]string {
	values := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if rest, ok := strings.CutPrefix(name, "FELIX_"); ok {
			values[rest] = value
		}
	}
	return values
}

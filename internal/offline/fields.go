package offline

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/neutron"
)

// fields are the fields of a frame, or of a part of one, in canonical form: text, int, bool,
// []string, [][2]string, fields, or a variable. A nil value means that the field is absent from the
// frame.
type fields map[string]any

// variable is a $name whose value is not known yet.
type variable string

// frameField describes one field: how its value is read into canonical form, or its own fields.
type frameField struct {
	read func(n node) (any, error)
	part map[string]frameField
}

// frameSchema returns the fields of a frame (file-formats §2).
func frameSchema() map[string]frameField {
	mac, ip := frameField{read: canonicalMAC}, frameField{read: canonicalIP}
	number, flag := frameField{read: canonicalNumber}, frameField{read: canonicalFlag}
	list, protocol := frameField{read: canonicalList}, frameField{read: canonicalProtocol}
	schema := map[string]frameField{
		"type":    {read: wordOf("ipv4", "ipv6", "arp")},
		"eth_src": mac, "eth_dst": mac, "vlan": number,
		"ip_src": ip, "ip_dst": ip, "proto": protocol, "sport": number, "dport": number, "ttl": number,
		"frag":      {read: wordOf("none", "first", "later")},
		"icmp_type": number, "icmp_code": number, "icmp_id": number,
		"inner": {part: map[string]frameField{
			"ip_src": ip, "ip_dst": ip, "proto": protocol, "sport": number, "dport": number,
		}},
		"dhcp": {part: map[string]frameField{
			"type":   {read: wordOf(dhcpTypes()...)},
			"chaddr": mac, "yiaddr": ip, "server_id": ip, "mask": ip, "broadcast": ip, "requested_ip": ip,
			"router": {read: canonicalIPs}, "dns": list, "lease": number, "mtu": number,
			"classless_routes": {read: canonicalRoutes}, "tftp_server_name": {read: readText},
		}},
		"op":  {read: wordOf("request", "reply")},
		"sha": mac, "spa": ip, "tha": mac, "tpa": ip,
		"nd_target": ip, "nd_lladdr": mac,
		"ra": {part: map[string]frameField{
			"prefixes": list, "mtu": number, "managed": flag, "other": flag, "lifetime": number,
		}},
	}
	schema["vxlan"] = frameField{part: map[string]frameField{"vni": number, "frame": {part: maps.Clone(schema)}}}
	return schema
}

// dhcpTypes are the message types from 1 on (RFC 2132 §9.6).
func dhcpTypes() []string {
	return []string{"discover", "offer", "request", "decline", "ack", "nak", "release", "inform"}
}

// references resolve what stands for a value: @name for a MAC address, $name for what was captured.
type references struct {
	macs     map[string]string // by name without @
	captured map[string]any    // by name without $
}

// read reads the fields of an object and resolves their references; an unknown $name stays a
// variable.
func (r references) read(n node, schema map[string]frameField) (fields, error) {
	o, err := n.object(slices.Sorted(maps.Keys(schema))...)
	if err != nil {
		return nil, err
	}
	f := fields{}
	for _, name := range o.names() {
		if f[name], err = r.value(o.get(name), schema[name]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// value reads one field.
func (r references) value(n node, field frameField) (any, error) {
	if text, ok := n.value.(string); ok {
		switch {
		case strings.HasPrefix(text, "$"):
			if v, known := r.captured[text[1:]]; known {
				return v, nil
			}
			return variable(text[1:]), nil
		case strings.HasPrefix(text, "@"):
			mac, known := r.macs[text[1:]]
			if !known {
				return nil, fileErrorf(n.place, "%s names nothing in the topology", text)
			}
			return mac, nil
		}
	}
	if n.null() {
		return nil, nil
	}
	if field.part != nil {
		return r.read(n, field.part)
	}
	return field.read(n)
}

func canonicalMAC(n node) (any, error) {
	m, err := n.mac()
	return m.String(), err
}

func canonicalIP(n node) (any, error) {
	a, err := n.addr()
	return a.String(), err
}

// canonicalIPs reads an address, or a list of them; of one alone, the address.
func canonicalIPs(n node) (any, error) {
	if _, isList := n.value.([]any); !isList {
		return canonicalIP(n)
	}
	list, err := each(n, canonicalAddr)
	if len(list) == 1 {
		return list[0], err
	}
	return list, err
}

func canonicalNumber(n node) (any, error) {
	v, _, err := n.number(0, 1<<32-1)
	return v, err
}

func canonicalFlag(n node) (any, error)   { return n.flag(false) }
func canonicalList(n node) (any, error)   { return each(n, canonicalAddr) }
func canonicalRoutes(n node) (any, error) { return each(n, canonicalRoute) }

// wordOf returns a function that reads one of the words in any case, with the prefix of its
// protocol's terms (DHCPOFFER) or without, or its number, from 1.
func wordOf(words ...string) func(node) (any, error) {
	return func(n node) (any, error) {
		text, err := n.text()
		if err != nil {
			return "", err
		}
		word := strings.TrimPrefix(strings.ToLower(text), "dhcp")
		if i, err := strconv.Atoi(word); err == nil && i >= 1 && i <= len(words) {
			return words[i-1], nil
		}
		if !slices.Contains(words, word) {
			return "", n.wants("one of " + strings.Join(words, ", "))
		}
		return word, nil
	}
}

// canonicalAddr is an address or prefix as netip spells it; prefixes keep their host bits.
func canonicalAddr(n node) (string, error) {
	text, err := n.text()
	if err != nil {
		return "", err
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.String(), nil
	}
	a, err := n.addr()
	return a.String(), err
}

// canonicalRoute reads a route as a pair, as an object, or as "destination,nexthop".
func canonicalRoute(n node) ([2]string, error) {
	var parts []node
	switch v := n.value.(type) {
	case string:
		for _, part := range strings.Split(v, ",") {
			parts = append(parts, node{n.place, strings.TrimSpace(part)})
		}
	case map[string]any:
		o, err := n.object("destination", "nexthop")
		if err != nil {
			return [2]string{}, err
		}
		parts = []node{o.get("destination"), o.get("nexthop")}
	default:
		var err error
		if parts, err = n.list(); err != nil {
			return [2]string{}, err
		}
	}
	if len(parts) != 2 {
		return [2]string{}, n.wants("a route of destination and next hop")
	}
	dst, err := parts[0].prefix()
	if err != nil {
		return [2]string{}, err
	}
	hop, err := parts[1].addr()
	return [2]string{dst.String(), hop.String()}, err
}

// canonicalProtocol is the name of the protocols that have one here, else a number.
func canonicalProtocol(n node) (any, error) {
	text, err := n.text()
	if err != nil {
		return nil, err
	}
	number, ok := neutron.ProtocolNumber(strings.ToLower(text))
	if !ok || number == 0 && text != "0" {
		return nil, n.wants("an IP protocol, by name or number")
	}
	return protocolName(uint8(number)), nil
}

// protocolName returns a protocol as frames show it.
func protocolName(number uint8) any {
	for name, n := range namedProtocols() {
		if n == number {
			return name
		}
	}
	return int(number)
}

// namedProtocols are the protocols that frames show by name.
func namedProtocols() map[string]uint8 {
	return map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
}

// matches reports whether the frame has every field of want with its value; nil requires that the
// field is absent. Variables take the value in their place, which bindings then has, also if the
// result is false.
func (want fields) matches(frame fields, bindings map[string]any) bool {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !matchField(name, want[name], frame[name], bindings) {
			return false
		}
	}
	return true
}

func matchField(name string, want, got any, bindings map[string]any) bool {
	switch w := want.(type) {
	case nil:
		return got == nil
	case variable:
		if known, ok := bindings[string(w)]; ok {
			return got != nil && fmt.Sprint(known) == fmt.Sprint(got)
		}
		if got == nil {
			return false
		}
		bindings[string(w)] = got
		return true
	case fields:
		part, ok := got.(fields)
		return ok && w.matches(part, bindings)
	}
	switch {
	case name == "frag" && want == "none":
		return got == nil
	case name == "proto" && want == "icmp":
		return got == "icmp" || got == "icmpv6"
	}
	return fmt.Sprint(want) == fmt.Sprint(got)
}

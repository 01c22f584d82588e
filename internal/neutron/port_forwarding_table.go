package neutron

import (
	"net/netip"
	"strconv"
	"strings"
)

// portForwardingTable has the attributes of the reference, whose answers name no project.
func portForwardingTable() *Table[*PortForwarding] {
	std := func(o *PortForwarding) *Standard { return &o.Standard }
	external := func(o *PortForwarding) PortRange { return o.External }
	internal := func(o *PortForwarding) PortRange { return o.Internal }
	both := func(a Attribute) Attribute {
		a.Create, a.Update = true, true
		return a
	}
	port := func(name, doc string, get func(o *PortForwarding) PortRange) column[*PortForwarding] {
		return row(both(Attribute{Name: name, Filter: true, Sort: true, Type: "integer", Doc: doc, parse: orNull(between(1, 65535))}),
			numberOrNullValue(func(o *PortForwarding) *int { return singlePort(get(o)) }))
	}
	ports := func(name, doc string, get func(o *PortForwarding) PortRange) column[*PortForwarding] {
		return row(both(Attribute{Name: name, Filter: true, Sort: true, Type: "string", Doc: doc, parse: orNull(forwardedRange)}),
			textValue(func(o *PortForwarding) string { return get(o).String() }))
	}
	return newTable(PortForwardings, []column[*PortForwarding]{
		idColumn(std),
		row(Attribute{Name: "tenant_id", Create: true, Default: unset{}, Hidden: true, Type: "string",
			Doc: "the older name of project_id", parse: text(maxProject)}, value[*PortForwarding]{}),
		row(Attribute{Name: "project_id", Create: true, Default: unset{}, Hidden: true, Type: "string",
			Doc: "taken and ignored: it is the floating IP's", parse: text(maxProject)}, value[*PortForwarding]{}),
		port("external_port", "of the floating IP; null for a range", external),
		port("internal_port", "of the machine; null for a range", internal),
		row(both(Attribute{Name: "internal_ip_address", Default: required{}, Filter: true, Type: "ip address",
			Doc: "an IPv4 address of the port", parse: address}),
			textValue(func(o *PortForwarding) string { return o.InternalIPAddress.String() })),
		row(both(Attribute{Name: "protocol", Default: required{}, Filter: true, Sort: true, Type: "string", Doc: "tcp or udp",
			parse: forwardedProtocol}),
			textValue(func(o *PortForwarding) string { return o.Protocol })),
		row(both(Attribute{Name: "internal_port_id", Default: required{}, Filter: true, Sort: true, Type: "uuid", Doc: "the machine's port",
			parse: uuid}),
			textValue(func(o *PortForwarding) string { return o.InternalPortID })),
		descriptionColumn(std),
		ports("external_port_range", "80:90; ports without one of their own inside have the internal one", external),
		ports("internal_port_range", "as many ports, or one for all", internal),
	})
}

// singlePort returns the port that a range consists of, or nil.
func singlePort(r PortRange) *int {
	if !r.Single() {
		return nil
	}
	n := int(r.First)
	return &n
}

// forwardedProtocol takes the protocols that have ports to forward.
func forwardedProtocol(v any) (any, error) {
	if s, ok := v.(string); ok {
		v = strings.ToLower(s)
	}
	return oneOf("tcp", "udp")(v)
}

// forwardedRange takes a port or a range such as 80:90.
func forwardedRange(v any) (any, error) {
	var r PortRange
	parts := strings.Split(pyText(v), ":")
	if len(parts) > 2 || parts[0] == "" || parts[len(parts)-1] == "" {
		return r, reason("Port range must be two integers separated by a colon")
	}
	for i, to := range []*uint16{&r.First, &r.Last} {
		text := parts[min(i, len(parts)-1)]
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0 || n > 65535:
			return r, reasonf("Invalid port: %s", text)
		case n == 0:
			return r, reasonf("Invalid port: %s, the port must be in the range [1, 65535]", text)
		}
		*to = uint16(n)
	}
	if r.First > r.Last {
		return r, reason("First port in a port range must be lower than the second port")
	}
	return r, nil
}

// ForwardedPorts returns the ports that a request names as name or as name_range, or else those of
// before.
func ForwardedPorts(v Values, name string, before PortRange) PortRange {
	if n := v.Number(name); n != nil {
		return PortRange{uint16(*n), uint16(*n)}
	}
	if r, ok := v[name+"_range"].(PortRange); ok {
		return r
	}
	return before
}

// InternalAddress returns the address that a request names, or else the one before.
func InternalAddress(v Values, before netip.Addr) netip.Addr {
	if a, ok := v["internal_ip_address"].(netip.Addr); ok {
		return a
	}
	return before
}

// appendForwarding appends a port forwarding as its floating IP shows it.
func appendForwarding(b []byte, f *PortForwarding) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, f.ID)
	b = append(b, `,"protocol":`...)
	b = appendString(b, f.Protocol)
	for _, port := range []struct {
		name string
		PortRange
	}{{"external_port", f.External}, {"internal_port", f.Internal}} {
		if n := singlePort(port.PortRange); n != nil {
			b = append(b, `,"`+port.name+`":`...)
			b = strconv.AppendInt(b, int64(*n), 10)
		}
	}
	b = append(b, `,"internal_ip_address":`...)
	b = appendString(b, f.InternalIPAddress.String())
	b = append(b, `,"internal_port_id":`...)
	return append(appendString(b, f.InternalPortID), '}')
}

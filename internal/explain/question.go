package explain

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// Fault is a mistake in a question.
type Fault struct {
	Field string // of the question
	Kind  FaultKind
	Text  string // with what to do
}

func (f *Fault) Error() string { return f.Field + ": " + f.Text }

// FaultKind is the kind of a [Fault].
type FaultKind uint8

// Kinds of faults.
const (
	Invalid   FaultKind = iota + 1 // it cannot be understood
	Missing                        // what it names does not exist
	Ambiguous                      // it names several
	Unfit                          // no answer is possible for what it names
	Late                           // it takes longer than it may
)

func fault(field string, kind FaultKind, format string, args ...any) error {
	return &Fault{field, kind, fmt.Sprintf(format, args...)}
}

// end is one end of a question: a port with one of its addresses, or an address outside.
type end struct {
	port    *neutron.Port // nil: outside
	address netip.Addr    // by which the others know it: of the port, or a floating address
	fixed   netip.Addr    // of the port
}

// service is the protocol of a question, and its ports.
type service struct {
	proto uint8
	name  string
	port  uint16 // destination; 0: the protocol has none
	from  uint16 // source, or id of an echo
}

// clientPort is the source port of questions that name none, one that clients have.
const clientPort = 50000

// readService reads the protocol and port of a question. Without a protocol it is TCP for a port,
// else an echo request.
func readService(q *operator.WhyRequest) (service, error) {
	text := strings.ToLower(q.Protocol)
	if text == "" {
		text = "icmp"
		if q.Port != 0 {
			text = "tcp"
		}
	}
	n, ok := neutron.ProtocolNumber(text)
	if !ok || n == 0 {
		return service{}, fault("protocol", Invalid, "%q is no protocol: want tcp, udp, icmp, another name that rules may have, or a number from 1 to 255", q.Protocol)
	}
	s := service{proto: uint8(n), name: text, port: q.Port, from: cmp.Or(q.SourcePort, clientPort)}
	withPorts := s.proto == packet.ProtoTCP || s.proto == packet.ProtoUDP
	switch {
	case withPorts && s.port == 0:
		return service{}, fault("port", Invalid, "%s needs a port, such as 443", text)
	case !withPorts && s.port != 0:
		return service{}, fault("port", Invalid, "%s has no ports", text)
	case !withPorts && q.SourcePort != 0:
		return service{}, fault("sourcePort", Invalid, "%s has no ports", text)
	}
	return s, nil
}

func (s service) isEcho() bool { return s.proto == packet.ProtoICMP || s.proto == packet.ProtoICMPv6 }

// ofVersion returns the service with the ICMP of an address's version.
func (s service) ofVersion(a netip.Addr) service { return s.ofFamily(a.Is4()) }

// ofFamily returns the service with the ICMP of a version of IP.
func (s service) ofFamily(is4 bool) service {
	if s.isEcho() {
		s.proto, s.name = packet.ProtoICMP, "icmp"
		if !is4 {
			s.proto, s.name = packet.ProtoICMPv6, "ipv6-icmp"
		}
	}
	return s
}

func (s service) String() string {
	if s.port == 0 {
		return s.name
	}
	return s.name + " " + strconv.Itoa(int(s.port))
}

// finder finds ports for a caller.
type finder struct {
	snap   *records.Snap
	caller neutron.Caller
}

// findEnd finds what a question names: a port by id or name, or an address. Ports of other projects
// than a tenant's own are not found, and their addresses are as those outside.
func (x finder) findEnd(field, text string) (end, error) {
	if text == "" {
		return end{}, fault(field, Invalid, "want a port, by id or name, or an address")
	}
	if p, ok := schema.Ports.Peek(x.snap, text); ok && x.caller.Owns(p.ProjectID) {
		return end{port: p}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return x.findAddress(field, a.Unmap())
	}
	named := x.own(schema.Ports.By(x.snap, "name", text))
	switch len(named) {
	case 0:
		return end{}, fault(field, Missing, "no port has the id or name %q: heddle port list", text)
	case 1:
		return end{port: named[0]}, nil
	}
	return end{}, fault(field, Ambiguous, "%d ports have the name %q: give an id, %s", len(named), text, idsOf(named))
}

// FindPort returns the port with an id, a name, or an address of its own or a floating one, among
// those that a caller may ask about. An error is a [Fault].
func FindPort(snap *records.Snap, caller neutron.Caller, text string) (*neutron.Port, error) {
	e, err := finder{snap, caller}.findEnd("port", text)
	if err == nil && e.port == nil {
		err = fault("port", Missing, "no port has the address %s: heddle port list", text)
	}
	return e.port, err
}

// own returns the ports that the caller may ask about.
func (x finder) own(ports iter.Seq[*neutron.Port]) (all []*neutron.Port) {
	for p := range ports {
		if x.caller.Owns(p.ProjectID) {
			all = append(all, p)
		}
	}
	return all
}

// idsOf names some ports.
func idsOf(ports []*neutron.Port) string {
	var ids []string
	for _, p := range ports[:min(len(ports), 5)] {
		ids = append(ids, p.ID)
	}
	return strings.Join(ids, ", ")
}

// findAddress finds the port that an address is of, directly or as a floating address.
func (x finder) findAddress(field string, a netip.Addr) (end, error) {
	for f := range schema.FloatingIPs.By(x.snap, "ip_address", a.String()) {
		if p, ok := schema.Ports.Peek(x.snap, f.PortID); ok && x.caller.Owns(p.ProjectID) {
			return end{port: p, address: a, fixed: f.FixedIPAddress}, nil
		}
	}
	having := x.own(schema.Ports.By(x.snap, "ip_address", a.String()))
	switch len(having) {
	case 0:
		return end{address: a}, nil
	case 1:
		return end{port: having[0], address: a, fixed: a}, nil
	}
	return end{}, fault(field, Ambiguous, "%d ports have the address %s, in networks of their own: give an id, %s", len(having), a, idsOf(having))
}

// settle gives both ends addresses of one version: IPv4 if both have it and none was asked for.
func settle(from, to *end) error {
	want := cmp.Or(from.address, to.address)
	for _, is4 := range []bool{true, false} {
		if want.IsValid() && want.Is4() != is4 {
			continue
		}
		a, b := from.addressOf(is4), to.addressOf(is4)
		if a.IsValid() && b.IsValid() {
			from.choose(a)
			to.choose(b)
			return nil
		}
	}
	return fault("to", Unfit, "the two have no addresses of one version of IP")
}

// addressOf returns the end's address of a version of IP, invalid if it has none.
func (e *end) addressOf(is4 bool) netip.Addr {
	if e.address.IsValid() {
		if e.address.Is4() == is4 {
			return e.address
		}
		return netip.Addr{}
	}
	for _, f := range e.port.FixedIPs {
		if f.IPAddress.Is4() == is4 {
			return f.IPAddress
		}
	}
	return netip.Addr{}
}

func (e *end) choose(a netip.Addr) {
	if !e.address.IsValid() {
		e.address, e.fixed = a, a
	}
}

// source returns the address with which the end's own packets begin their way.
func (e *end) source() netip.Addr {
	if e.port != nil {
		return e.fixed
	}
	return e.address
}

// isVIP reports whether the end is the address of a load balancer, whose members answer for it.
func (e *end) isVIP() bool {
	if e.port == nil {
		return false
	}
	class := translate.ClassOf(e.port.DeviceOwner)
	return class == translate.VIPv1 || class == translate.VIPv2
}

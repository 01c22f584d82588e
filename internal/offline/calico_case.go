package offline

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"heddle/calico"
	"heddle/internal/policy"
	"heddle/internal/policy/judge"
)

// checkedHost is the name of the host that the cases of `calico check` are about.
const checkedHost = "checked"

// The places of a packet that are no endpoints.
const (
	outside  = "external"
	hostSelf = "local-host"
)

// policyCase is one case of `calico check`, as read: objects as they would lie in the store, and
// packets.
type policyCase struct {
	id        any
	title     string
	place     string // in messages
	settings  policy.Settings
	config    map[string]string
	problems  []string // settings that do not count
	objects   []storedObject
	endpoints map[string]calico.Key // by id
	packets   []policyPacket
}

// storedObject is an object at its key, undecoded.
type storedObject struct {
	place string
	key   calico.Key
	value []byte
}

// policyPacket is one packet and what is expected of it.
type policyPacket struct {
	place    string
	from, to string
	packet   judge.Packet // From and To follow from and to when the endpoints are known
	expect   string       // allow, deny or nothing
	why      string
}

// readPolicyCase reads a case.
func readPolicyCase(n node) (*policyCase, error) {
	o, err := n.object("id", "title", "config", "profiles", "tiers", "policies", "endpoints", "packets")
	if err != nil {
		return nil, err
	}
	c := &policyCase{id: o.get("id").value, place: n.place, endpoints: map[string]calico.Key{}}
	if c.title, err = o.get("title").text(); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		field string
		read  func(node) error
	}{
		{"config", c.readConfig}, {"tiers", c.readTiers}, {"policies", c.readPolicies}, {"profiles", c.readProfiles},
		{"endpoints", c.readEndpoints}, {"packets", c.readPackets},
	} {
		if err := part.read(o.get(part.field)); err != nil {
			return nil, err
		}
	}
	for _, field := range []string{"endpoints", "packets"} { // what is about nothing would pass
		if o.get(field).null() {
			return nil, fileErrorf(o.under(field), "is missing")
		}
	}
	return c, nil
}

// readConfig reads the agent's settings. One that would stop the agent makes the file unusable.
func (c *policyCase) readConfig(n node) error {
	c.config = map[string]string{}
	if err := n.eachField(func(name string, value node) (err error) {
		if flag, isFlag := value.value.(bool); isFlag {
			c.config[name] = strconv.FormatBool(flag)
			return nil
		}
		c.config[name], err = value.text()
		return err
	}); err != nil {
		return err
	}
	var problems []policy.Problem
	c.settings, problems = policy.Resolve(policy.Sources{Global: c.config})
	for _, p := range problems {
		if p.Fatal {
			return fileErrorf(n.place, "%s = %q: %s", p.Name, p.Value, p.Err)
		}
		c.problems = append(c.problems, fmt.Sprintf("config %s = %q: %s", p.Name, p.Value, p.Err))
	}
	return nil
}

func (c *policyCase) readTiers(n node) error {
	return n.eachField(func(name string, object node) error { return c.add(object, calico.TierKey{Tier: name}) })
}

func (c *policyCase) readPolicies(n node) error {
	return n.eachField(func(name string, object node) error {
		tier, id, found := strings.Cut(name, "/")
		if !found || tier == "" || id == "" {
			return fileErrorf(n.place, "%q is not a tier, a slash and a name", name)
		}
		return c.add(object, calico.PolicyKey{Tier: tier, Policy: id})
	})
}

// readProfiles reads the three parts of each profile; one that is not there is a missing key.
func (c *policyCase) readProfiles(n node) error {
	return n.eachField(func(name string, profile node) error {
		if _, err := profile.object("rules", "tags", "labels"); err != nil {
			return err
		}
		return profile.eachField(func(part string, object node) error {
			var key calico.Key = calico.ProfileRulesKey{Profile: name}
			switch part {
			case "tags":
				key = calico.ProfileTagsKey{Profile: name}
			case "labels":
				key = calico.ProfileLabelsKey{Profile: name}
			}
			return c.add(object, key)
		})
	})
}

// readEndpoints reads the endpoints: one with nets is a workload, another the host's own.
func (c *policyCase) readEndpoints(n node) error {
	return n.eachField(func(id string, endpoint node) error {
		if id == outside || id == hostSelf {
			return fileErrorf(endpoint.place, "this name stands for a place that is no endpoint")
		}
		e, err := endpoint.anyObject()
		if err != nil {
			return err
		}
		var key calico.Key = calico.HostEndpointKey{Host: checkedHost, Endpoint: id}
		if e.has("ipv4_nets") || e.has("ipv6_nets") {
			key = calico.WorkloadEndpointKey{Host: checkedHost, Orchestrator: "check", Workload: id, Endpoint: id}
		}
		c.endpoints[id] = key
		return c.add(endpoint, key)
	})
}

// add takes an object for the store. A key that cannot be written is nothing that could ever be
// there.
func (c *policyCase) add(n node, key calico.Key) error {
	if _, err := key.Path(); err != nil {
		return fileErrorf(n.place, "%s", err)
	}
	c.objects = append(c.objects, storedObject{n.place, key, []byte(n.String())})
	return nil
}

func (c *policyCase) readPackets(n node) (err error) {
	c.packets, err = each(n, c.readPacket)
	return err
}

// Ports of a packet that does not say which.
const (
	anySourcePort      = 49152
	anyDestinationPort = 9
)

func (c *policyCase) readPacket(n node) (p policyPacket, err error) {
	o, err := n.object("from", "to", "src", "dst", "proto", "sport", "dport", "icmp_type", "icmp_code", "src_mac", "state", "expect", "why")
	if err != nil {
		return p, err
	}
	p.place = n.place
	if p.from, err = c.readPlace(o.get("from")); err != nil {
		return p, err
	}
	if p.to, err = c.readPlace(o.get("to")); err != nil {
		return p, err
	}
	if err := p.readAddresses(o); err != nil {
		return p, err
	}
	if err := p.readTransport(o); err != nil {
		return p, err
	}
	if mac, err := o.get("src_mac").mac(); err != nil {
		return p, err
	} else if !o.get("src_mac").null() {
		given := calico.MAC(mac)
		p.packet.SrcMAC = &given
	}
	state, err := o.get("state").oneOf("new", "established", "invalid")
	if err != nil {
		return p, err
	}
	p.packet.State = map[string]judge.State{"established": judge.Established, "invalid": judge.Invalid}[state]
	if p.expect, err = o.get("expect").oneOf("allow", "deny"); err != nil {
		return p, err
	}
	p.why, err = o.get("why").text()
	return p, err
}

// readPlace reads an endpoint's id, or the name of another place.
func (c *policyCase) readPlace(n node) (string, error) {
	if n.null() {
		return "", fileErrorf(n.place, "is missing: want an endpoint's id, %s or %s", outside, hostSelf)
	}
	id, err := n.text()
	if err != nil {
		return "", err
	}
	if _, known := c.endpoints[id]; !known && id != outside && id != hostSelf {
		return "", n.wants("an endpoint's id, " + outside + " or " + hostSelf)
	}
	return id, nil
}

func (p *policyPacket) readAddresses(o object) error {
	for _, a := range []struct {
		field string
		to    *netip.Addr
	}{{"src", &p.packet.Src}, {"dst", &p.packet.Dst}} {
		n := o.get(a.field)
		if n.null() {
			return fileErrorf(n.place, "is missing: want an IP address")
		}
		var err error
		if *a.to, err = n.addr(); err != nil {
			return err
		}
	}
	if p.packet.Src.Is4() != p.packet.Dst.Is4() {
		return fileErrorf(o.under("dst"), "%s is of another family than src %s", p.packet.Dst, p.packet.Src)
	}
	return nil
}

// readTransport reads the protocol and what stands in its header. Without numbers a packet of ICMP
// is an echo request, and one of a protocol with ports has some.
func (p *policyPacket) readTransport(o object) (err error) {
	if p.packet.Protocol, err = readRuleProtocol(o.get("proto")); err != nil {
		return err
	}
	ports, icmp := false, false
	switch p.packet.Protocol {
	case calico.ProtocolTCP, calico.ProtocolUDP, calico.ProtocolSCTP, calico.ProtocolUDPLite:
		ports = true
	case calico.ProtocolICMP, calico.ProtocolICMPv6:
		icmp = true
	}
	echo := 8
	if p.packet.Protocol == calico.ProtocolICMPv6 {
		echo = 128
	}
	for _, f := range []struct {
		field             string
		fits              bool
		low, most, absent int
		set               func(int)
	}{
		{"sport", ports, 0, 65535, anySourcePort, func(v int) { p.packet.SrcPort = uint16(v) }},
		{"dport", ports, 0, 65535, anyDestinationPort, func(v int) { p.packet.DstPort = uint16(v) }},
		{"icmp_type", icmp, 0, 255, echo, func(v int) { p.packet.ICMPType = uint8(v) }},
		{"icmp_code", icmp, 0, 255, 0, func(v int) { p.packet.ICMPCode = uint8(v) }},
	} {
		n := o.get(f.field)
		v, given, err := n.number(f.low, f.most)
		switch {
		case err != nil:
			return err
		case given && !f.fits:
			return fileErrorf(n.place, "protocol %s has none", protocolText(p.packet.Protocol))
		case f.fits && !given:
			v = f.absent
		}
		if f.fits {
			f.set(v)
		}
	}
	return nil
}

// ruleProtocols are the protocols that rules name.
func ruleProtocols() map[string]calico.Protocol {
	return map[string]calico.Protocol{"tcp": calico.ProtocolTCP, "udp": calico.ProtocolUDP, "icmp": calico.ProtocolICMP,
		"icmpv6": calico.ProtocolICMPv6, "sctp": calico.ProtocolSCTP, "udplite": calico.ProtocolUDPLite}
}

// readRuleProtocol reads a protocol as rules name it.
func readRuleProtocol(n node) (calico.Protocol, error) {
	if n.null() {
		return 0, fileErrorf(n.place, "is missing: want a protocol, by name or number")
	}
	text, err := n.text()
	if err != nil {
		return 0, err
	}
	if p, ok := ruleProtocols()[text]; ok {
		return p, nil
	}
	v, _, err := n.number(1, 255)
	if err != nil {
		return 0, n.wants("one of tcp, udp, icmp, icmpv6, sctp, udplite, or a number from 1 to 255")
	}
	return calico.Protocol(v), nil
}

// protocolText returns the name of a protocol for messages.
func protocolText(p calico.Protocol) string {
	for name, number := range ruleProtocols() {
		if number == p {
			return name
		}
	}
	return strconv.Itoa(int(p))
}

// String describes the packet.
func (p *policyPacket) String() string {
	src, dst := p.packet.Src.String(), p.packet.Dst.String()
	what := protocolText(p.packet.Protocol)
	if what[0] <= '9' {
		what = "protocol " + what
	}
	switch p.packet.Protocol {
	case calico.ProtocolTCP, calico.ProtocolUDP, calico.ProtocolSCTP, calico.ProtocolUDPLite:
		src = netip.AddrPortFrom(p.packet.Src, p.packet.SrcPort).String()
		dst = netip.AddrPortFrom(p.packet.Dst, p.packet.DstPort).String()
	case calico.ProtocolICMP, calico.ProtocolICMPv6:
		what += fmt.Sprintf(" type %d code %d", p.packet.ICMPType, p.packet.ICMPCode)
	}
	state := map[judge.State]string{judge.Established: "established ", judge.Invalid: "invalid "}[p.packet.State]
	return fmt.Sprintf("%s%s from %s to %s, %s → %s", state, what, p.from, p.to, src, dst)
}

// caseName returns the name of a case for messages.
func caseName(n node, number int) string {
	if o, err := n.anyObject(); err == nil && o.has("id") {
		if id, err := o.get("id").text(); err == nil && id != "" {
			return "case " + id
		}
	}
	return "case " + strconv.Itoa(number)
}

package star

import "strconv"

// Codes of tunnel.status:error (§10.4). Text for people may follow OVSError after a colon.
const (
	TransportNotConfigured = "TRANSPORT_PIF_NOT_CONFIGURED"
	TransportUnreachable   = "TRANSPORT_UNREACHABLE"
	OVSDBUnreachable       = "OVSDB_UNREACHABLE"
	BridgeMissing          = "BRIDGE_MISSING"
	OVSError               = "OVS_ERROR"
	ProtocolMismatch       = "PROTOCOL_MISMATCH"
	KeysExhausted          = "KEYS_EXHAUSTED"
	HostOffline            = "HOST_OFFLINE"
	MTUTooLarge            = "MTU_TOO_LARGE"
	BackendNotOpenVSwitch  = "BACKEND_NOT_OPENVSWITCH"
)

// Status is the status of a tunnel.
type Status struct {
	Active bool
	Key    uint32
	Error  string // a code, and after a colon text for people; "" when nothing is wrong
	Center string // UUID of the center, while active
	IsHub  bool   // the tunnel's host is the center
}

// Map is the status as tunnel.status has it.
func (s Status) Map() map[string]string {
	m := map[string]string{"active": strconv.FormatBool(s.Active)}
	if s.Error != "" {
		m["error"] = s.Error
	}
	if s.Active {
		m["key"] = strconv.FormatUint(uint64(s.Key), 10)
		m["heddle:center"] = s.Center
		m["heddle:role"] = "spoke"
		if s.IsHub {
			m["heddle:role"] = "center"
		}
	}
	return m
}

// overhead returns how many bytes a tunnel adds to packets of machines: over IPv4, 20 more over
// IPv6. The inner Ethernet header (14) counts, as do the outer IP header (20) and GRE with a key
// (8), or UDP and VXLAN (16).
func overhead(protocol, address string) int {
	bytes := 42
	if protocol == "vxlan" {
		bytes = 50
	}
	if isIPv6(address) {
		bytes += 20
	}
	return bytes
}

func isIPv6(address string) bool {
	for _, c := range address {
		if c == ':' {
			return true
		}
	}
	return false
}

// MaxMTU returns the largest network.MTU for a transport, in bytes; 0 when it is not known.
func MaxMTU(m *Member, protocol string) int {
	return max(0, m.TransportMTU-overhead(protocol, m.Address))
}

// Statuses are those of the members' tunnels, in the order of the members.
func Statuses(n *Network, in Intent, v View) []Status {
	s := shapeOf(n, in)
	legs := make(map[string]string, len(s.spokes)) // what is wrong with each spoke's leg
	active := false
	for _, x := range s.spokes {
		legs[x.Host] = s.trouble(in, v, x)
		active = active || legs[x.Host] == ""
	}
	all := make([]Status, len(n.Members))
	for i := range n.Members {
		m := &n.Members[i]
		st := Status{Key: in.Key, Center: in.Center, IsHub: m == s.center}
		trouble, spoke := legs[m.Host]
		st.Active = m.Tunnel && (st.IsHub && active || spoke && trouble == "")
		switch hurdle := m.hurdle(); {
		case !m.Tunnel || !m.Attached:
		case hurdle != "":
			st.Error = hurdle
		case in.Key == 0 && len(n.Members) > 1:
			st.Error = KeysExhausted
		case spoke && trouble != "" && trouble != pending:
			st.Error = trouble
		case s.center != nil:
			st.Error = n.mismatch(m, s.center)
		}
		all[i] = st
	}
	return all
}

// hurdle returns the error that keeps the host from being a member, "" for none.
func (m *Member) hurdle() string {
	switch {
	case !m.OpenVSwitch:
		return BackendNotOpenVSwitch
	case !m.Live:
		return HostOffline
	case m.Address == "":
		return TransportNotConfigured
	case !m.Known && m.Reason != "":
		return OVSDBUnreachable + ": " + m.Reason
	case !m.Known:
		return OVSDBUnreachable
	case m.Bridge == "":
		return BridgeMissing
	case m.Refused != "":
		return OVSError + ": " + m.Refused
	}
	return ""
}

// pending stands for a leg that is about to be made.
const pending = "pending"

// trouble returns the error of a spoke's leg, "" when it works.
func (s shape) trouble(in Intent, v View, x *Member) string {
	ends := [2]*Found{x.leg(s.center.Host), s.center.leg(x.Host)}
	for i, f := range ends {
		switch {
		case f == nil || f.Error == "":
		case i == 0:
			return OVSError + ": " + f.Error
		default:
			return OVSError + ": on the switching host: " + f.Error
		}
	}
	switch {
	case (made(ends[0], in) || !x.Known) && (made(ends[1], in) || !s.center.Known) && (x.Known || s.center.Known):
		switch v.Health(x.Host, s.center.Host) {
		case Down:
			return TransportUnreachable
		case Up:
			return ""
		}
		return pending
	case !s.center.Known:
		return OVSDBUnreachable + ": of the switching host"
	}
	return pending
}

// mismatch returns an error of a tunnel that has a leg, "" for none.
func (n *Network) mismatch(m, center *Member) string {
	most := MaxMTU(m, center.Protocol)
	switch {
	case m.Protocol != center.Protocol:
		return ProtocolMismatch
	case n.MTU > 0 && m.TransportMTU > 0 && n.MTU > most:
		return MTUTooLarge + ": the network's MTU is " + strconv.Itoa(n.MTU) + ", the transport carries at most " + strconv.Itoa(most)
	}
	return ""
}

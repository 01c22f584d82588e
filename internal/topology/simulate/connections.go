package simulate

import (
	"fmt"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// recollection holds what a datagram's first fragment left behind for the later one at hand.
type recollection struct {
	known        bool
	hasTp        bool
	tpSrc, tpDst uint16 // as conditions see them
	src, dst     uint16 // as connections see them
}

// tracker finds out what connection or datagram a packet belongs to, as it came in.
type tracker struct {
	dec    *record
	frame  *packet.Frame
	state  State
	device string // id of the network that the packet entered

	answered  bool // whether the packet is a reply
	register  bool // the packet opens or keeps up a connection
	recalled  bool // the memory of first fragments was read, into recall
	recall    recollection
	usedPorts bool // the decision rests on that memory
	firstFrag flow.FragKey
}

func (t *tracker) reset(state State) {
	t.state, t.answered, t.register, t.recalled, t.usedPorts = state, false, false, false, false
}

// isReturn reports whether the packet as it came in is a reply (midonet-simulation §5).
func (t *tracker) isReturn() bool {
	if !t.answered {
		t.answered = true
		t.track()
	}
	return t.dec.Return
}

func (t *tracker) track() {
	f, d := t.frame, t.dec
	switch {
	case !f.IsIP() || f.IsND():
		return // counts as forward, and opens nothing
	case f.IsICMPError():
		t.trackRelated()
	default:
		d.Tracked, d.Lookup = true, t.connKey()
		d.Return = t.conn(d.Lookup)
		// A later fragment opens nothing: the first one did.
		t.register = !d.Return && f.Frag != packet.FragLater
	}
	if t.dec.explain {
		t.sayTracked()
	}
}

// sayTracked adds to the walk what was found out about the packet's connection.
func (t *tracker) sayTracked() {
	d := t.dec
	d.say(t.device, flow.StepConnection, trackText(&d.Decision))
	if d.Tracked {
		d.last().Connection = &flow.Connection{Key: d.Lookup, Known: d.Return, Idle: connIdle(t.state, d.Lookup)}
	}
}

func trackText(d *flow.Decision) string {
	switch {
	case !d.Tracked:
		return "connection: an ICMP error that quotes no connection: not a reply"
	case d.Return:
		return fmt.Sprintf("connection: reply of a known one (%s)", keyText(d.Lookup))
	}
	return fmt.Sprintf("connection: no reply of a known one (%s)", keyText(d.Lookup))
}

func keyText(k flow.ConnKey) string {
	return fmt.Sprintf("%v:%d → %v:%d protocol %d", k.Src, k.SrcPort, k.Dst, k.DstPort, k.Proto)
}

func (t *tracker) conn(k flow.ConnKey) bool { return t.state != nil && t.state.Conn(k) }

// connKey is the key of the packet as it came in, in the scope of the network it entered.
func (t *tracker) connKey() flow.ConnKey {
	f := t.frame
	k := flow.ConnKey{Src: f.SrcIP, Dst: f.DstIP, Proto: f.Proto, Device: t.device}
	switch {
	case f.Frag == packet.FragLater:
		if t.remembers() {
			k.SrcPort, k.DstPort = t.recall.src, t.recall.dst
		}
	default:
		k.SrcPort, k.DstPort = connPorts(f)
	}
	return k
}

// trackRelated looks up the connection of the packet that an ICMP error quotes, in either
// direction. The error must be addressed to the quoted sender, or quoting another's connection
// would open the filter.
func (t *tracker) trackRelated() {
	f, d := t.frame, t.dec
	q := &f.Quote
	if !q.Valid || q.Src != f.DstIP {
		return
	}
	d.Tracked = true
	d.Lookup = flow.ConnKey{Src: q.Dst, Dst: q.Src, SrcPort: q.DstPort, DstPort: q.SrcPort, Proto: q.Proto, Device: t.device}
	if d.Return = t.conn(d.Lookup); !d.Return {
		ingress := d.Lookup
		ingress.Ingress = true
		d.Return = t.conn(ingress)
	}
}

// remembers reports whether the first fragment of the later one at hand passed, and fills recall.
func (t *tracker) remembers() bool {
	t.usedPorts = true
	if t.recalled {
		return t.recall.known
	}
	t.recalled = true
	t.recall = recollection{}
	if t.state == nil {
		return false
	}
	f := t.frame
	ports, ok := t.state.Frag(t.fragKey())
	if !ok {
		return false
	}
	r := recollection{known: true}
	switch {
	case packet.HasPorts(f.Proto):
		r.hasTp = true
		r.tpSrc, r.tpDst, r.src, r.dst = ports[0], ports[1], ports[0], ports[1]
	case f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6:
		r.hasTp = true
		r.tpSrc, r.tpDst, r.src, r.dst = ports[1]>>8, ports[1]&0xff, ports[0], ports[0]
	}
	t.recall = r
	if t.dec.explain {
		t.dec.say(t.device, flow.StepConnection, fmt.Sprintf("fragment: the first of datagram %d passed, its ports were %d and %d", f.FragID, ports[0], ports[1]))
	}
	return true
}

func (t *tracker) fragKey() flow.FragKey {
	f := t.frame
	return flow.FragKey{Src: f.SrcIP, Dst: f.DstIP, Proto: f.FragProto, ID: f.FragID, Device: t.device}
}

// remember sets what a packet leaves behind that goes out with the headers of now into devices:
// connection keys, a datagram's ports.
func (t *tracker) remember(now *packet.Frame, devices []string) {
	d, f := t.dec, t.frame
	if f.Frag == packet.FragFirst {
		t.firstFrag = t.fragKey()
		d.FirstFrag = &t.firstFrag
		switch {
		case packet.HasPorts(f.Proto):
			d.FragPorts = [2]uint16{f.TpSrc, f.TpDst}
		case f.HasTp:
			d.FragPorts = [2]uint16{f.EchoID, f.TpSrc<<8 | f.TpDst}
		}
	}
	if !t.register {
		return
	}
	in := d.Lookup
	in.Ingress = true
	for _, device := range devices {
		reply := flow.ConnKey{Src: now.DstIP, Dst: now.SrcIP, Proto: now.Proto, Device: device}
		reply.DstPort, reply.SrcPort = connPorts(now)
		d.NewConns = append(d.NewConns, reply)
		if t.dec.explain {
			text := "connection: remembered, its replies will pass"
			if device != in.Device {
				text += " (" + keyText(reply) + ")"
			}
			d.say(device, flow.StepConnection, text)
			d.last().Connection = &flow.Connection{Key: reply, New: true}
		}
	}
	d.NewConns = append(d.NewConns, in)
}

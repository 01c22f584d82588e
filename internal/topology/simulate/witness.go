package simulate

import (
	"net/netip"
	"time"

	"heddle/internal/topology/flow"
)

// Witness is a [State] that knows more about its entries, for explanations.
type Witness interface {
	// ConnIdle returns the time since the last use of a connection that Conn reports.
	ConnIdle(key flow.ConnKey) (idle time.Duration, known bool)
	// NATIdle is the same of a translation.
	NATIdle(key flow.NATKey) (idle time.Duration, known bool)
	// NATHost returns the id of the host that owns the block of a router's translated port, "" if
	// none does.
	NATHost(device string, address netip.Addr, port uint16) string
}

// Assume returns a State in which packets have left more than base has.
func Assume(base State, more *flow.State) State {
	m := NewMemory()
	for _, k := range more.Connections {
		m.conns[k] = struct{}{}
	}
	for _, e := range more.Translations {
		m.nats[e.NATKey] = e.NATBinding
	}
	return assumed{base, m}
}

// assumed is a State with entries beside its own.
type assumed struct {
	State
	more *Memory
}

func (a assumed) Conn(k flow.ConnKey) bool { return a.more.Conn(k) || a.State.Conn(k) }

func (a assumed) NAT(k flow.NATKey) (flow.NATBinding, bool) {
	if b, ok := a.more.NAT(k); ok {
		return b, true
	}
	return a.State.NAT(k)
}

// seconds returns a time as steps have it; nil if it is not known.
func seconds(idle time.Duration, known bool) *int {
	if !known {
		return nil
	}
	n := int(idle / time.Second)
	return &n
}

// witnessOf returns what is known beyond a state; nil: nothing.
func witnessOf(s State) Witness {
	if a, ok := s.(assumed); ok {
		s = a.State
	}
	w, _ := s.(Witness)
	return w
}

func connIdle(s State, k flow.ConnKey) *int {
	if w := witnessOf(s); w != nil {
		return seconds(w.ConnIdle(k))
	}
	return nil
}

// describe returns a translation as steps have it.
func (n *translator) describe(k flow.NATKey, b flow.NATBinding, made bool) *flow.Translation {
	t := &flow.Translation{Kind: k.Kind, Device: k.Device, From: netip.AddrPortFrom(k.Src, k.SrcPort), To: netip.AddrPortFrom(b.Addr, b.Port), New: made}
	if ofDestination(k.Kind) {
		t.From = netip.AddrPortFrom(k.Dst, k.DstPort)
	}
	w := witnessOf(n.state)
	if w == nil {
		return t
	}
	t.Idle = seconds(w.NATIdle(k))
	switch k.Kind {
	case flow.ForwardSNAT:
		t.Host = w.NATHost(k.Device, b.Addr, b.Port)
	case flow.ReverseSNAT:
		t.Host = w.NATHost(k.Device, k.Dst, k.DstPort)
	}
	return t
}

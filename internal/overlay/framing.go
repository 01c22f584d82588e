package overlay

import (
	"cmp"
	"context"
	"net/netip"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// framingOf returns how the datapath frames what leaves by an output.
func framingOf(f *flow.Framing) datapath.Framing {
	to := datapath.Framing{PopVLAN: f.PopVLAN, PushVLAN: f.PushVLAN}
	if e := f.Encap; e != nil {
		to.Encap = datapath.Encap{VNI: e.VNI, SrcMAC: e.SrcMAC, DstMAC: e.DstMAC, Src: e.Src, Dst: e.Dst, SrcPort: e.SrcPort, DstPort: e.DstPort, TTL: e.TTL}
	}
	return to
}

// inside returns what is inside a packet for a VTEP, as the datapath gives it up when it has
// unpacked the packet itself. Without the VTEP's port it has no key.
func (e *engine) inside(d *flow.Decap, in simulate.Input) datapath.Upcall {
	u := datapath.Upcall{Frame: in.Frame[d.Offset:], Length: cmp.Or(in.WireLen, len(in.Frame)) - d.Offset}
	if vtep := e.net.portByID[d.PortID]; vtep != nil {
		u.Port = vtep.number
	}
	return u
}

// describeEntry fills in the flow by which the datapath unpacks later packets of the same VXLAN
// connection. It needs the network's lock.
func (d *decider) describeEntry(key datapath.Key) {
	p, decap := &d.plan, d.plan.decision.Decap
	p.entry = datapath.Flow{Key: key, Out: datapath.Output{Inside: true, Hops: decap.Hops}, Tags: d.e.tagsOf(p.entry.Tags[:0], decap.Touched, datapath.MaxTags)}
	p.entered = true
}

// exampleEntry returns a packet of a flow that unpacks those for a VTEP, with a VNI of the VTEP.
// The frame inside, which such flows do not depend on, is empty. It has none if the VTEP is gone.
func (n *virtualNetwork) exampleEntry(b []byte, key datapath.Key) (frame []byte, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, p := range n.portByID {
		if p.vtep.IP != key.Dst {
			continue
		}
		inner := packet.Ethernet{Dst: packet.Broadcast, Src: key.SrcMAC}.Append(nil)
		b = packet.VXLAN{VNI: p.vtep.VNI, Dst: key.DstMAC, Src: key.SrcMAC, From: key.Src, To: key.Dst, SrcPort: key.SrcPort, DstPort: key.DstPort, TTL: 64}.Append(b, inner)
		if key.VLAN&vlanPresent != 0 {
			b = packet.PushVLAN(b, key.VLAN&^vlanPresent)
		}
		return b, true
	}
	return nil, false
}

// tagsOf appends the tags of what a flow rests on or, if they do not fit, the one that every change
// moves.
func (e *engine) tagsOf(tags []datapath.Tag, touched []string, room int) []datapath.Tag {
	if len(touched) > room {
		return e.dp.AppendTags(tags, datapath.SlotAll)
	}
	for _, id := range touched {
		tags = e.dp.AppendTags(tags, datapath.SlotOf(id))
	}
	return tags
}

// unpacked returns the upcall of what a decision is about: of a packet for a VTEP the frame inside.
func unpacked(d *flow.Decision, u *datapath.Upcall) *datapath.Upcall {
	if d.Decap == nil {
		return u
	}
	at := d.Decap.Offset
	return &datapath.Upcall{Reason: u.Reason, Port: u.Port, Frame: u.Frame[at:], Length: u.Length - at, Offload: u.Offload.Inner(at)}
}

// vtepOf returns the VTEP of which a port takes in what is inside its packets.
func vtepOf(p *topology.Port) datapath.VTEP {
	if !p.VTEP() || !p.TunnelIP.Is4() {
		return datapath.VTEP{}
	}
	return datapath.VTEP{IP: p.TunnelIP, VNI: p.VNI}
}

func isVTEP(v datapath.VTEP) bool { return v.IP != netip.Addr{} }

// attachVTEP has the datapath unpack what comes for a VTEP's port. Every host has all of them: by
// which host packets come in, routes outside decide.
func (a *attachments) attachVTEP(id string, want attachment) error {
	if a.isPlaced(id) { // with another address or VNI
		if err := a.Delete(context.Background(), id); err != nil {
			return err
		}
	}
	number, err := a.engine.dp.AttachVTEP(id, want.VTEP)
	if err != nil {
		return err
	}
	a.engine.net.attached(localPort{id: id, number: number, vtep: want.VTEP})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.placed[id] = placed{att: want}
	return nil
}

package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// record collects a decision and, if wanted, the steps that led to it.
type record struct {
	flow.Decision
	explain bool
	lookups []netip.Addr // addresses that were looked up in groups
	copyState
	aside bool // the packet itself has come to its end: an answer to it is on its way
}

func (d *record) reset(explain bool) {
	*d = record{explain: explain, lookups: d.lookups[:0], Decision: flow.Decision{
		Outputs: d.Outputs[:0], Copies: d.Copies[:0], Emit: d.Emit[:0], Drops: d.Drops[:0], Rulings: d.Rulings[:0], Touched: d.Touched[:0], NewConns: d.NewConns[:0],
		NATs: d.NATs[:0], NewNATs: d.NewNATs[:0], GoneNATs: d.GoneNATs[:0], Opened: d.Opened[:0], Limits: d.Limits[:0], MissingNATs: d.MissingNATs[:0], Meters: d.Meters[:0], Logged: d.Logged[:0], Conflicts: d.Conflicts[:0], Warnings: d.Warnings[:0], Walk: d.Walk[:0],
	}}
}

// drop ends the packet, or one copy of it, by a decision of the topology.
func (d *record) drop(device string, code flow.Code, reason string) {
	d.end(flow.Drop, flow.Dropped{Device: device, Code: code, Reason: reason})
}

// errorDrop ends it because something is missing or contradicts itself.
func (d *record) errorDrop(device string, code flow.Code, reason string) {
	d.end(flow.ErrorDrop, flow.Dropped{Device: device, Code: code, Reason: reason})
}

// end records one end. The first of a flood stands for all, unless the caller wants an explanation.
func (d *record) end(v flow.Verdict, end flow.Dropped) {
	if d.Verdict == 0 {
		d.Verdict, d.Device, d.Code, d.Reason = v, end.Device, end.Code, end.Reason
	}
	if !d.aside && (len(d.Drops) == 0 || d.explain) {
		d.Drops = append(d.Drops, end)
	}
	if d.explain {
		d.Walk = append(d.Walk, flow.Step{Device: end.Device, Kind: flow.StepDrop, Chain: end.Chain, Rule: end.Rule, Code: end.Code, Text: "dropped: " + end.Reason})
	}
}

// postpone has the packet wait, unless it has come to its end already.
func (d *record) postpone(w flow.Wait, why string) {
	if d.Verdict == 0 {
		d.Verdict, d.Device, d.Reason, d.Wait = flow.Postponed, w.Device, why, w
	}
	if d.explain {
		d.say(w.Device, flow.StepWait, "waits: "+why)
	}
}

// consume ends a packet that the virtual network has taken.
func (d *record) consume() {
	if d.Verdict == 0 {
		d.Verdict = flow.Consumed
	}
}

// touch notes that the decision rests on the port or router with that id, in place of the port by
// which the packet came to it.
func (d *record) touch(id string, instead *port) {
	if n := len(d.Touched) - 1; instead != nil && n > 0 && d.Touched[n] == instead.id {
		d.Touched = d.Touched[:n]
	}
	if !slices.Contains(d.Touched, id) {
		d.Touched = append(d.Touched, id)
	}
}

// say adds a step to the walk. Callers check explain first, to make no texts in vain.
func (d *record) say(device string, kind flow.StepKind, text string) {
	d.Walk = append(d.Walk, flow.Step{Device: device, Kind: kind, Text: text})
}

// last returns the step that was added last.
func (d *record) last() *flow.Step { return &d.Walk[len(d.Walk)-1] }

// changed adds to the last step what it has made of the packet's headers.
func (d *record) changed(before *flow.Headers, after *packet.Frame) {
	d.last().Before, d.last().After = before, d.headers(after)
}

// headers returns the headers of a packet as steps have them; nil if no walk is wanted.
func (d *record) headers(f *packet.Frame) *flow.Headers {
	if !d.explain {
		return nil
	}
	h := flow.Headers{SrcMAC: f.Src, DstMAC: f.Dst, Src: f.SrcIP, Dst: f.DstIP}
	h.SrcPort, h.DstPort = connPorts(f)
	return &h
}

// denied ends the packet by a rule of chain c.
func (d *record) denied(device, direction string, c *chain, r *rule) {
	v, why, code, what := flow.Drop, "", flow.CodeFilter, "filter denies"
	at := c.position(r)
	switch c.purpose() {
	case topology.PurposeAntiSpoof:
		code, what = flow.CodeAntiSpoofing, "anti-spoofing denies this source address or MAC"
	case topology.PurposePortFilter:
		code, what = flow.CodeNoRule, "security group denies"
	case topology.PurposeFirewall:
		code, what = flow.CodeFirewall, "firewall denies"
	}
	switch {
	case r.verb == invalid:
		v, code, why = flow.ErrorDrop, flow.CodeBadObject, ": its type or action is not known to this version"
	case at == len(c.rules):
		why = ": nothing before it accepted the packet"
		if code == flow.CodeFirewall {
			code = flow.CodeFirewallDefault
		}
	}
	d.end(v, flow.Dropped{
		Device: device, Code: code, Chain: c.id, Rule: r.id,
		Reason: direction + " filter: " + what + ": chain " + c.label() + ", rule " + strconv.Itoa(at) + " of " + strconv.Itoa(len(c.rules)) + why,
	})
	if d.explain {
		d.last().Purpose = string(c.purpose())
	}
}

func (d *record) accepted(device, direction string, v verb, c, by *chain, r *rule) {
	step := flow.Step{Device: device, Kind: flow.StepFilter, Chain: c.id, Purpose: string(c.purpose()), Text: direction + " filter " + c.label() + ": no rule denies"}
	if v != goOn {
		step.Chain, step.Rule, step.Purpose = by.id, r.id, string(by.purpose())
		step.Text = direction + " filter: accepted by chain " + by.label()
	}
	d.Walk = append(d.Walk, step)
}

func (d *record) warn(text string) { d.Warnings = append(d.Warnings, text) }

// Describe returns a frame's headers as traces have them.
func Describe(f *packet.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v → %v", f.Src, f.Dst)
	if f.VLANs > 0 {
		fmt.Fprintf(&b, " vlan %d", f.VLAN)
	}
	switch {
	case f.ARPOp == packet.ARPRequest:
		fmt.Fprintf(&b, ", ARP who has %v, tell %v", f.DstIP, f.SrcIP)
	case f.ARPOp != 0:
		fmt.Fprintf(&b, ", ARP operation %d: %v is at %v", f.ARPOp, f.SrcIP, f.SHA)
	case !f.IsIP():
		fmt.Fprintf(&b, ", EtherType %#04x", f.EtherType)
	default:
		fmt.Fprintf(&b, ", %v → %v, %s", f.SrcIP, f.DstIP, transport(f))
	}
	return b.String()
}

func transport(f *packet.Frame) string {
	text := "IP protocol " + strconv.Itoa(int(f.Proto))
	switch {
	case f.HasTp && (f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6):
		text = fmt.Sprintf("ICMP type %d code %d", f.TpSrc, f.TpDst)
		if f.Echo {
			text += fmt.Sprintf(" id %d", f.EchoID)
		}
	case f.HasTp && f.Proto == packet.ProtoTCP:
		text = fmt.Sprintf("TCP %d → %d", f.TpSrc, f.TpDst)
	case f.HasTp && f.Proto == packet.ProtoUDP:
		text = fmt.Sprintf("UDP %d → %d", f.TpSrc, f.TpDst)
	case f.HasTp:
		text += fmt.Sprintf(" %d → %d", f.TpSrc, f.TpDst)
	}
	if f.Frag != packet.FragNone {
		text += ", " + f.Frag.String() + " fragment"
	}
	return text
}

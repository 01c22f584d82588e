package explain

import (
	"context"

	"heddle/internal/api/operator"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// await has the agent where a leg begins explain the next real first packet that is like the one of
// the question, and makes it that of the leg.
func (x *inquiry) await(ctx context.Context, ask Ask, l *leg, q *operator.WhyRequest) error {
	if x.from.port == nil {
		return fault("from", Unfit, "%s is no port: packets are waited for where a port's machine sends them", q.From)
	}
	p := Probe{PortID: l.at.PortID, HostID: l.at.HostID, Live: &flow.LiveFrames{
		Src: l.sent.src, Dst: l.sent.dst, Proto: x.service.proto, SrcPort: q.SourcePort, DstPort: x.service.port, Dropped: q.Dropped}}
	live, err := ask(ctx, &p)
	host := schema.HostName(x.snap, p.HostID)
	switch {
	case err != nil:
		return err
	case live == nil:
		return fault("live", Unfit, "no such packet has come in on host %s, or its agent is away: have the connection tried meanwhile, and ask heddle status", host)
	case live.Error != "":
		return fault("live", Unfit, "%s", live.Error)
	}
	var f packet.Frame
	if live.State == nil || packet.Decode(live.Frame, &f) != nil && packet.DecodeHead(live.Frame, len(live.Frame), &f) != nil {
		return fault("live", Unfit, "the agent of host %s is of an earlier version: upgrade it", host)
	}
	l.sent.srcMAC, l.sent.dstMAC = f.Src, f.Dst
	if !x.service.isEcho() {
		l.sent.srcPort = f.TpSrc
	}
	l.at.Frame, l.Nearest, l.By = live.Frame, nil, nil
	l.Trace = *live
	l.judge()
	x.explainNoRule(l)
	return nil
}

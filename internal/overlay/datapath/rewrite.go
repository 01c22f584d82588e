package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"heddle/internal/topology/flow"
)

// rewrites reports whether frames of the flow, or copies of them, leave with other headers.
func (f *Flow) rewrites() bool { return f.Rewrite != nil && (!f.Out.Drops() || f.copiesRewritten()) }

// checkRewrite returns why the programs cannot rewrite frames of the flow.
func (f *Flow) checkRewrite() error {
	r, to := f.Rewrite, f.rewritten(f.Rewrite)
	sameVersion := func(a netip.Addr) bool { return a.BitLen() == f.Src.BitLen() }
	switch {
	case f.VLAN != 0 && !f.Out.Framing.PopVLAN:
		return fmt.Errorf("rewrite of frames in VLAN %d: routers take only untagged frames", f.VLAN&^vlanPresent)
	case r.Quote != nil:
		return errors.New("rewrite of a quoted packet: flows carry no ICMP errors, send them one by one")
	case !sameVersion(r.Src) || !sameVersion(r.Dst):
		return fmt.Errorf("rewrite to addresses %s and %s: want two of the key's version", r.Src, r.Dst)
	case f.isEcho() && r.SrcPort != r.DstPort:
		return fmt.Errorf("rewrite to echo ids %d and %d: want one", r.SrcPort, r.DstPort)
	case f.Proto == protoSCTP && (to.SrcPort != f.SrcPort || to.DstPort != f.DstPort):
		return fmt.Errorf("rewrite to SCTP ports %d and %d: their checksum covers the whole packet, send such packets one by one",
			r.SrcPort, r.DstPort)
	}
	return nil
}

// rewriteKind returns the flags of the flow's kind.
func (f *Flow) rewriteKind() uint8 {
	to := f.rewritten(f.Rewrite)
	if to.Src == f.Src && to.Dst == f.Dst && to.SrcPort == f.SrcPort && to.DstPort == f.DstPort {
		return outRewrites
	}
	return outRewrites | outTranslates
}

func (f *Flow) value4(now uint64, n numbers) bpfFlow4 {
	v := bpfFlow4{Common: f.common(now, n)}
	if f.rewrites() {
		to := f.rewritten(f.Rewrite)
		k := to.key4()
		v.To = bpfHeaders4{Dmac: k.Dmac, Smac: k.Smac, Saddr: k.Saddr, Daddr: k.Daddr, Sport: k.Sport, Dport: k.Dport}
	}
	return v
}

func (f *Flow) value6(now uint64, n numbers) bpfFlow6 {
	v := bpfFlow6{Common: f.common(now, n)}
	if f.rewrites() {
		to := f.rewritten(f.Rewrite)
		k := to.key6()
		v.To = bpfHeaders6{Dmac: k.Dmac, Smac: k.Smac, Saddr: k.Saddr, Daddr: k.Daddr, Sport: k.Sport, Dport: k.Dport}
	}
	return v
}

func (v *bpfFlow4) common() *bpfFlow { return &v.Common }
func (v *bpfFlow6) common() *bpfFlow { return &v.Common }

func (v *bpfFlow4) rewrite(k Key) *flow.Rewrite {
	b := k.key4()
	b.Dmac, b.Smac, b.Saddr, b.Daddr, b.Sport, b.Dport = v.To.Dmac, v.To.Smac, v.To.Saddr, v.To.Daddr, v.To.Sport, v.To.Dport
	return b.key().headers(v.Common.hops())
}

func (v *bpfFlow6) rewrite(k Key) *flow.Rewrite {
	b := k.key6()
	b.Dmac, b.Smac, b.Saddr, b.Daddr, b.Sport, b.Dport = v.To.Dmac, v.To.Smac, v.To.Saddr, v.To.Daddr, v.To.Sport, v.To.Dport
	return b.key().headers(v.Common.hops())
}

// hops returns by how much the TTL or hop limit of the flow's frames is lowered.
func (v *bpfFlow) hops() uint8 { return uint8(swap32(v.VniHops)) }

package overlay

import (
	"errors"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// plain reports whether all outputs and copies of a decision leave with the frame's own tags, and
// in no VXLAN packet: flows are for those alone.
func plain(d *flow.Decision) bool {
	for i := range d.Outputs {
		if !d.Outputs[i].IsPlain() {
			return false
		}
	}
	for i := range d.Copies {
		if !d.Copies[i].IsPlain() {
			return false
		}
	}
	return d.Decap == nil
}

// content returns the upcall with the frame inside it, if the decision is about that.
func content(d *flow.Decision, f *flow.Framing, u *datapath.Upcall) *datapath.Upcall {
	if !f.Inner || d.Decap == nil || d.Decap.Offset > len(u.Frame) {
		return u
	}
	inside := *u
	inside.Frame, inside.Length, inside.Offload = u.Frame[d.Decap.Offset:], u.Length-d.Decap.Offset, datapath.Offload{}
	return &inside
}

// sendWrapped sends a frame, with the headers that it leaves with, as its output has it.
func (e *engine) sendWrapped(from *localPort, out datapath.Output, how *flow.Framing, frame []byte, u *datapath.Upcall) {
	if how.Encap == nil {
		wrapped := how.Wrap(frame)
		u := *u
		u.Offload = u.Offload.Moved(len(wrapped) - len(frame))
		e.send(from, out, wrapped, &u)
		return
	}
	packet.FinishChecksum(frame)
	err := e.dp.Send(out, how.Wrap(frame), datapath.Offload{})
	var big *datapath.TooBigError
	switch {
	case errors.As(err, &big):
		e.answerTooBig(from, u, big.MTU-packet.VXLANOverheadV4)
	case err != nil:
		e.count.drop(dropSend)
	}
}

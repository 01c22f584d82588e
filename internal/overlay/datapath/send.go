package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// TooBigError reports a frame not sent because its IP packet exceeds MTU, in bytes.
type TooBigError struct{ MTU int }

func (e *TooBigError) Error() string {
	return fmt.Sprintf("IP packet exceeds the %d bytes that its way carries", e.MTU)
}

// An instruction stands in front of a frame written to the tap, as bpf/maps.h has it.
const (
	instructionLen = 16
	tapMagic       = 0x48
	sendHeadLen    = vnetHeaderLen + instructionLen
)

// stateEtherType marks state messages inside their tunnel: IEEE 802's "local experimental".
const stateEtherType = 0x88b5

// stateHeadLen is the size of a state message's length in front of it: short frames are padded.
const stateHeadLen = 2

// A frame shorter than the kernel moves the head of is padded to the least that a wire carries.
const (
	shortFrame = instructionLen + ipv4HeaderLen
	minFrame   = 60
)

// fixedOuterPort is the UDP source of tunnelled frames that belong to no flow.
const fixedOuterPort = 0xc000

// Send sends a frame without looking at the flow cache: an Upcall's, possibly changed, with its
// Offload, or one that the caller built, with the zero Offload. If the way is too narrow nothing is
// sent, and the error is a *TooBigError. Send does not change frame.
func (d *Datapath) Send(out Output, frame []byte, off Offload) error {
	if out.Drops() {
		return errors.New("send frame: it has no output")
	}
	if len(frame) < ethHeaderLen {
		return fmt.Errorf("send frame: %d bytes are no Ethernet frame", len(frame))
	}
	mtu, err := d.mtu(out)
	if err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	if mtu > 0 {
		mtu -= out.Framing.room(frame, out.Tunnel != 0)
	}
	if mtu > 0 && len(frame)-ethHeaderLen > mtu && off.segmentLen(frame) > mtu {
		return &TooBigError{MTU: mtu}
	}
	if out.Framing == (Framing{}) {
		return d.write(out, 0, frame, off)
	}
	return d.sendFramed(out, frame, off)
}

// sendFramed is the rest of Send for a frame that leaves framed.
func (d *Datapath) sendFramed(out Output, frame []byte, off Offload) error {
	if out.Framing.PopVLAN && isTagged(frame) { // the program takes off only tags beside the frame
		frame = append(append(make([]byte, 0, len(frame)), frame[:12]...), frame[12+vlanTagLen:]...)
		off = off.moved(-vlanTagLen)
	}
	out.Framing.PopVLAN = false
	d.copySets.mu.Lock() // so that the number is not given back before the program has seen it
	defer d.copySets.mu.Unlock()
	d.framings.mu.Lock()
	defer d.framings.mu.Unlock()
	d.framings.given = map[uint16]bool{}
	number, err := d.framingNumber(out.Framing)
	if err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	return d.write(out, number, frame, off)
}

// SendState sends a message to the other agent at the end of a tunnel, as State.
func (d *Datapath) SendState(t Tunnel, message []byte) error {
	out := Output{Tunnel: t, TunnelKey: StateKey}
	mtu, err := d.mtu(out)
	if err != nil {
		return fmt.Errorf("send state: %w", err)
	}
	if n := maxState(mtu); len(message) > n {
		return fmt.Errorf("send state: message of %d bytes: want at most %d", len(message), n)
	}
	frame := make([]byte, ethHeaderLen, ethHeaderLen+stateHeadLen+len(message))
	binary.BigEndian.PutUint16(frame[12:], stateEtherType)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(message)))
	return d.write(out, 0, append(frame, message...), Offload{})
}

// maxState returns the longest message for a tunnel whose packets have up to mtu bytes.
func maxState(mtu int) int { return min(mtu, UpcallBytes) - stateHeadLen }

// mtu is the largest IP packet that fits through out, 0 if any does.
func (d *Datapath) mtu(out Output) (int, error) {
	if out.Tunnel != 0 {
		return d.tunnelSet.mtu(out.Tunnel)
	}
	return d.portSet.mtu(out.Port)
}

// write writes the offload header, the instruction, with the number of a framing, and the frame to
// the tap.
func (d *Datapath) write(out Output, framing uint16, frame []byte, off Offload) error {
	length := len(frame)
	if length < shortFrame {
		length = minFrame
	}
	b := make([]byte, sendHeadLen+length)
	copy(b[sendHeadLen:], frame)
	h := off.finish(b[sendHeadLen:sendHeadLen+len(frame)], instructionLen)
	h.write(b)

	outerPort := swap16(fixedOuterPort)
	if k, _, ok := parse(1, frame, len(frame)); ok {
		outerPort = k.outerPort()
	}
	// The kernel moves the head only of what it takes for IP.
	proto := uint16(etherIPv4)
	if binary.BigEndian.Uint16(frame[12:]) == etherIPv6 {
		proto = etherIPv6
	}
	if out.Framing.wraps() {
		outerPort = swap16(out.Framing.Encap.SrcPort)
	}
	kind, number, vni := out.words()
	do := b[vnetHeaderLen:]
	binary.NativeEndian.PutUint32(do, number)
	binary.NativeEndian.PutUint32(do[4:], vni)
	binary.NativeEndian.PutUint16(do[8:], outerPort)
	do[10], do[11] = kind, tapMagic
	binary.BigEndian.PutUint16(do[12:], proto)
	binary.NativeEndian.PutUint16(do[14:], framing)
	if err := d.tap.write(b); err != nil {
		return fmt.Errorf("send frame of %d bytes: %w", len(frame), err)
	}
	return nil
}

package hostkey

import (
	"encoding/binary"
	"fmt"
)

// Window detects repeated messages of one host. It holds the latest session, its highest counter,
// and which of the windowWidth counters up to that have come. Earlier messages count as repeated.
type Window struct {
	Session, Highest uint64
	Key              uint32 // of the sender, of the last message accepted
	seen             uint64 // bit n: Highest-n has come
}

const windowWidth = 64

// WindowSize is the size of an encoded Window, bytes.
const WindowSize = 28

// Accept notes an authenticated message and reports whether it has come for the first time.
func (w *Window) Accept(h Head) bool {
	if !w.isNew(h) {
		return false
	}
	w.Key = h.SenderKey
	return true
}

func (w *Window) isNew(h Head) bool {
	switch {
	case h.Session < w.Session:
		return false
	case h.Session > w.Session:
		*w = Window{Session: h.Session, Highest: h.Counter, seen: 1}
		return true
	case h.Counter > w.Highest:
		if ahead := h.Counter - w.Highest; ahead < windowWidth {
			w.seen = w.seen<<ahead | 1
		} else {
			w.seen = 1
		}
		w.Highest = h.Counter
		return true
	}
	behind := w.Highest - h.Counter
	if behind >= windowWidth || w.seen>>behind&1 != 0 {
		return false
	}
	w.seen |= 1 << behind
	return true
}

// Append appends the encoded window to b.
func (w *Window) Append(b []byte) []byte {
	for _, n := range []uint64{w.Session, w.Highest, w.seen} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return binary.BigEndian.AppendUint32(b, w.Key)
}

// ParseWindow reads what Append wrote.
func ParseWindow(b []byte) (Window, error) {
	if len(b) != WindowSize {
		return Window{}, fmt.Errorf("window of %d bytes: want %d", len(b), WindowSize)
	}
	return Window{Session: binary.BigEndian.Uint64(b), Highest: binary.BigEndian.Uint64(b[8:]), seen: binary.BigEndian.Uint64(b[16:]),
		Key: binary.BigEndian.Uint32(b[24:])}, nil
}

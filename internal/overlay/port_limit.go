package overlay

import (
	"sync"
	"time"

	"heddle/internal/topology/packet"
)

// Of ICMP errors a port gets errorsAtOnce, and one more each errorEvery (RFC 1812 §4.3.2.8).
const (
	errorsAtOnce = 50
	errorEvery   = 20 * time.Millisecond
)

// portLimit bounds what the agent does for the packets of each port: so much at once, and once more
// after each interval.
type portLimit struct {
	atOnce int
	every  time.Duration

	mu sync.Mutex
	// used is, by port, the time at which all so far could have been done one by one.
	used map[string]time.Duration
}

func newPortLimit(atOnce int, every time.Duration) *portLimit {
	return &portLimit{atOnce: atOnce, every: every, used: map[string]time.Duration{}}
}

// allow reports whether it may be done for a port once more now, and counts it.
func (l *portLimit) allow(port string, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := max(l.used[port], now-time.Duration(l.atOnce)*l.every)
	if used+l.every > now {
		return false
	}
	l.used[port] = used + l.every
	return true
}

func (l *portLimit) forget(port string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.used, port)
}

func isICMPError(frame []byte) bool {
	var f packet.Frame
	return packet.Decode(frame, &f) == nil && f.IsICMPError()
}

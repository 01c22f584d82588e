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

// errorLimit bounds the ICMP errors that the packets of each port cause.
type errorLimit struct {
	mu sync.Mutex
	// used is, by port, the time at which it could have caused all errors so far one by one.
	used map[string]time.Duration
}

func newErrorLimit() *errorLimit { return &errorLimit{used: map[string]time.Duration{}} }

// allow reports whether a port may cause another error now, and counts it.
func (l *errorLimit) allow(port string, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := max(l.used[port], now-errorsAtOnce*errorEvery)
	if used+errorEvery > now {
		return false
	}
	l.used[port] = used + errorEvery
	return true
}

func (l *errorLimit) forget(port string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.used, port)
}

func isICMPError(frame []byte) bool {
	var f packet.Frame
	return packet.Decode(frame, &f) == nil && f.IsICMPError()
}

package dnsupdate

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) has(text string) bool { return strings.Contains(l.String(), text) }

// await waits until text was logged.
func (l *lines) await(t testing.TB, text string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for !l.has(text) {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%q was not logged:\n%s", text, l)
		}
	}
}

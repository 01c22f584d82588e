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
	until(t, func() bool { return l.has(text) }, "%q was not logged:\n%s", text, l)
}

// until waits until something is so, and fails with these words otherwise.
func until(t testing.TB, is func() bool, format string, args ...any) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf(format, args...)
		}
	}
}

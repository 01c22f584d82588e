package netlab

import (
	"bytes"
	"sync"
)

// Log collects the output of a process or a logger. It may be written and read at once. The zero
// Log is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to it and never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

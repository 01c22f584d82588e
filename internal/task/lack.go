package task

import "sync"

// Lack is the reason why a part is not ready or does not work, for its String. It may be set and
// read at once.
type Lack struct {
	mu   sync.Mutex
	text string
}

// Set sets the text; "" for nothing.
func (l *Lack) Set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

// Of returns the name of a part, with its lack in brackets.
func (l *Lack) Of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return name
	}
	return name + " (" + l.text + ")"
}

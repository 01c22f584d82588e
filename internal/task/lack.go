package task

import "sync"

// Lack is what a part waits for, or what fails it, for its String. It may be set and read at once; the zero Lack is none.
type Lack struct {
	mu   sync.Mutex
	text string
}

// Set says what is lacking now; "" for nothing.
func (l *Lack) Set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

// Of is the name of a part, with what it lacks in brackets.
func (l *Lack) Of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return name
	}
	return name + " (" + l.text + ")"
}

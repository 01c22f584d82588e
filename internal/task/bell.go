package task

import "sync"

// Bell wakes all goroutines that wait for it. The zero Bell is ready to use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next ring; nil while no goroutine waits
}

// Ring wakes those that wait.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Next returns a channel that the next ring closes. Take it before reading the state that the bell
// announces, and no change is missed.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

package dhcp

import (
	"fmt"
	"time"
)

// backoff finds the pauses between attempts to run what fails.
type backoff struct {
	pause time.Duration
	began time.Time // when it ran last
}

// The bounds of the pauses, and how long an instance has to serve for the next failure to count as the first. The first
// pauses are short, as an instance cannot start when an interface goes while it looks at them.
const (
	leastBackoff, mostBackoff = 10 * time.Millisecond, 10 * time.Second
	settled                   = 30 * time.Second
)

// next is the pause after a failure: none at first, then ever longer ones.
func (b *backoff) next() time.Duration {
	if !b.began.IsZero() && time.Since(b.began) > settled {
		b.pause = 0
	}
	now := b.pause
	b.pause = min(max(2*b.pause, leastBackoff), mostBackoff)
	return now
}

// probe asks a dnsmasq for a sign of life: it reads a file that changes, as it does those of endpoints, and says so.
type probe struct {
	dir, file string // the state directory, and the file below it
	count     int
	waiting   bool // it has not answered
}

func (p *probe) ask() error {
	p.count++
	p.waiting = true
	return write(p.dir, p.file, fmt.Sprintf("# %d\n", p.count))
}

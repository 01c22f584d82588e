package netlab

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// pingEvery is the interval of a Ping, in seconds.
	pingEvery = "0.01"
	// pingMost bounds a ping that is never ended, in seconds.
	pingMost = "120"
	// pingTimeout bounds the wait for an answer at a ping's begin and end.
	pingTimeout = 30 * time.Second
)

// Ping is a ping every 10 ms under way.
type Ping struct {
	cmd  *exec.Cmd
	what string
	over chan struct{} // closed when all that it has printed is read

	mu      sync.Mutex
	last    time.Time // of the last answer
	seq     int
	longest time.Duration
	lost    int
}

// Ping begins to ping an address from the namespace, and returns after the first answer: later
// changes of the network count.
func (n *Namespace) Ping(address string) (*Ping, error) {
	p := &Ping{cmd: exec.Command("ping", "-n", "-D", "-i", pingEvery, "-w", pingMost, address), what: address + " from " + n.Name, over: make(chan struct{})}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("ping %s: %w", p.what, err)
	}
	go func() {
		defer close(p.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answered(lines.Text())
		}
	}()
	if err := p.wait(time.Time{}); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// wait waits for an answer that came after a time.
func (p *Ping) wait(since time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	return Until(ctx, "an answer to the ping of "+p.what, func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last.After(since), nil
	})
}

// kill ends the ping and reads what it has printed to its end.
func (p *Ping) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.over
	_ = p.cmd.Wait() // it was killed
}

// answered handles a line such as "[1795287730.180069] 64 bytes from 10.77.0.1: icmp_seq=1 ttl=64
// time=0.016 ms".
func (p *Ping) answered(line string) {
	stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "["), "] ")
	_, rest, found := strings.Cut(rest, "bytes from ")
	_, number, numbered := strings.Cut(rest, "icmp_seq=")
	number, _, _ = strings.Cut(number, " ")
	seconds, err := strconv.ParseFloat(stamp, 64)
	seq, notInt := strconv.Atoi(number)
	if !found || !numbered || err != nil || notInt != nil {
		return // another line, such as that of a failure
	}
	at := time.UnixMicro(int64(seconds * 1e6))
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.longest = max(p.longest, at.Sub(p.last))
		p.lost += max(0, seq-p.seq-1)
	}
	p.last, p.seq = at, max(p.seq, seq)
}

// End waits for one more answer and ends the ping. It returns the longest time without an answer,
// and the number of pings without one.
func (p *Ping) End() (longest time.Duration, lost int, err error) {
	err = p.wait(time.Now())
	p.kill()
	return p.longest, p.lost, err
}

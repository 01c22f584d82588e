package dhcp

import (
	"errors"
	"sync"
	"testing"
	"time"

	"heddle/internal/topology/packet"
)

// churn is machines that come and go on a host while others stay.
type churn struct {
	*fleet
	t          testing.TB
	others     int           // machines that stay
	next       int           // number of the machine that comes next
	bootsAfter time.Duration // how long after the write of its endpoint a machine asks, once; 0: it asks until it is served

	mu     sync.Mutex
	failed []string        // of those that came, to get a lease
	leased []time.Duration // from a machine's question to its lease

	// Of a machine that stays and asks all the time: how long it waited for each answer, and how
	// many did not come.
	answered   []time.Duration
	unanswered int
}

// churnEvery is the interval at which a machine comes and another goes, and churnAlive the number
// of those that come at a time.
const churnEvery, churnAlive = 100 * time.Millisecond, 20

// run has a machine come and another go every tenth of a second, so many times. The one that comes
// gets the address of the one that goes.
func (c *churn) run(times int) {
	c.t.Helper()
	stop, stayed := make(chan struct{}), make(chan error, 1)
	go func() { stayed <- c.stay(stop) }()
	booted := map[int]chan struct{}{}
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for range times {
		<-tick.C
		n := c.next
		c.next++
		at := address(c.others + n%churnAlive)
		gone := n - churnAlive
		if had := booted[gone]; had != nil {
			<-had // on a busy machine that takes longer than churnAlive ticks
		}
		if gone >= c.others {
			c.put(endpointKey(gone), "")
		}
		key, value := c.endpoint(n, at)
		c.put(key, value)
		written := time.Now()
		has := make(chan struct{})
		booted[n] = has
		go func() {
			defer close(has)
			c.boot(n, at, written)
		}()
	}
	for _, has := range booted {
		<-has
	}
	close(stop)
	if err := <-stayed; err != nil {
		c.t.Fatal(err)
	}
}

// boot plugs a machine in and has it take its address.
func (c *churn) boot(n int, address string, written time.Time) {
	err := c.plug(n, 1)
	if err == nil {
		<-time.After(time.Until(written.Add(c.bootsAfter)))
		began := time.Now()
		if c.bootsAfter > 0 {
			err = c.lease(n, address)
		} else {
			err = c.leaseOnceServed(n, address)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leased = append(c.leased, time.Since(began))
	}
	if gone := n - churnAlive; gone >= c.others {
		err = errors.Join(err, c.unplug(gone))
	}
	if err != nil {
		c.failed = append(c.failed, written.Format("05.000: ")+err.Error())
	}
}

// stay has a machine that stays ask again and again, and notes how long it waits for each answer.
func (c *churn) stay(stop <-chan struct{}) error {
	client, err := c.client(0)
	if err != nil {
		return err
	}
	defer client.close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		client.renew()
		began := time.Now()
		if err := client.send(packet.DHCPDiscover); err != nil {
			return err
		}
		if _, err := client.expect(packet.DHCPOffer); err != nil {
			c.unanswered++
			continue
		}
		c.answered = append(c.answered, time.Since(began))
	}
}

// TestChurn has machines come and go on a host: each gets its lease, though it has the address of
// one that has just gone, and is never refused; one that stays is always answered. How soon,
// BenchmarkChurn measures.
func TestChurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.populate(t, 20)
	c := &churn{fleet: f, t: t, others: 20, next: 20}
	c.run(40)
	for _, what := range c.failed {
		t.Error(what)
	}
	if c.unanswered > 0 {
		t.Errorf("%d questions of a machine that stays were not answered, %d were", c.unanswered, len(c.answered))
	}
}

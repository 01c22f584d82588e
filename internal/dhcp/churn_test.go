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
	bootsAfter time.Duration // how long after the write of its endpoint a machine asks

	mu     sync.Mutex
	failed []string        // of those that came, to get a lease
	leased []time.Duration // from a machine's question to its lease

	// Of a machine that stays and asks all the time: how long it waited for each answer, and how many did not come.
	answered   []time.Duration
	unanswered int
}

// churnEvery is how often a machine comes and another goes, and churnAlive how many of those that come are there at a time.
const churnEvery, churnAlive = 100 * time.Millisecond, 20

// run has a machine come and another go every tenth of a second, so many times. The one that comes gets the address of the
// one that goes, and asks for it once.
func (c *churn) run(times int) {
	c.t.Helper()
	stop, stayed := make(chan struct{}), make(chan error, 1)
	go func() { stayed <- c.stay(stop) }()
	var booting sync.WaitGroup
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for range times {
		<-tick.C
		n := c.next
		c.next++
		at := address(c.others + n%churnAlive)
		if gone := n - churnAlive; gone >= c.others {
			c.put(endpointKey(gone), "")
		}
		key, value := c.endpoint(n, at)
		c.put(key, value)
		written := time.Now()
		booting.Go(func() { c.boot(n, at, written) })
	}
	booting.Wait()
	close(stop)
	if err := <-stayed; err != nil {
		c.t.Fatal(err)
	}
}

// boot plugs a machine in and has it ask for its address once.
func (c *churn) boot(n int, address string, written time.Time) {
	err := c.plug(n, 1)
	if err == nil {
		<-time.After(time.Until(written.Add(c.bootsAfter)))
		began := time.Now()
		err = c.lease(n, address)
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

// TestChurn has machines come and go on a host: each gets its lease at its first try, though it has the address of one that
// has just gone, and one that stays is always answered. BenchmarkChurn measures it.
func TestChurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.populate(t, 20)
	c := &churn{fleet: f, t: t, others: 20, next: 20, bootsAfter: time.Second / 2}
	c.run(40)
	for _, what := range c.failed {
		t.Error(what)
	}
	if c.unanswered > 0 {
		t.Errorf("%d questions of a machine that stays were not answered, %d were", c.unanswered, len(c.answered))
	}
}

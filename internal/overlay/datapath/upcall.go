package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Run gives every frame that goes up to handle, one at a time, until ctx is done. State messages come first, then ports
// take turns, so that a port that floods delays only itself. What handle keeps of an Upcall it must copy.
func (d *Datapath) Run(ctx context.Context, handle func(*Upcall)) error {
	ring, err := ringbuf.NewReader(d.maps.Upcalls)
	if err != nil {
		return fmt.Errorf("datapath %s: open the ring of upcalls: %w", d.opts.Name, err)
	}
	defer ring.Close()
	r := &receiver{d: d, ring: ring, handle: handle, fromTap: make(chan *item, tapBacklog)}
	tapDone := make(chan error, 1)
	stop := make(chan struct{})
	go func() { tapDone <- r.readTap(stop) }()
	wake := context.AfterFunc(ctx, func() { _ = ring.Flush() })
	defer wake()

	err = r.run(ctx)
	close(stop)
	_ = d.tap.SetReadDeadline(time.Unix(1, 0))
	tapErr := <-tapDone
	_ = d.tap.SetReadDeadline(time.Time{})
	if err := errors.Join(err, tapErr); err != nil {
		return fmt.Errorf("datapath %s: %w", d.opts.Name, err)
	}
	return nil
}

const (
	tapBacklog  = 64      // frames between the tap's reader and the handler
	ringBurst   = 64      // records taken from the ring before one is handled
	longestTap  = 1 << 17 // bytes; the kernel's largest frame and what stands in front
	keptRecords = 4096
)

// item is a frame on its way to the handler.
type item struct {
	record ringbuf.Record
	upcall Upcall
	cost   uint32
	next   *item
}

// receiver is the state of one Run.
type receiver struct {
	d       *Datapath
	ring    *ringbuf.Reader
	handle  func(*Upcall)
	fromTap chan *item
	queue   fairQueue
	free    *item
	kept    int
}

func (r *receiver) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.intake(); err != nil {
			return err
		}
		if it := r.queue.pop(); it != nil {
			r.handle(&it.upcall)
			r.d.giveBack(it.upcall.Port, it.cost)
			r.recycle(it)
			continue
		}
		r.d.settleCredits()
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// intake queues what waits, without blocking.
func (r *receiver) intake() error {
	if r.ring.AvailableBytes() > 0 {
		r.ring.SetDeadline(time.Unix(1, 0)) // only what is there
		for range ringBurst {
			if err := r.takeRecord(); err != nil {
				if isNothing(err) {
					break
				}
				return err
			}
			if r.ring.AvailableBytes() == 0 {
				break
			}
		}
	}
	for {
		select {
		case it := <-r.fromTap:
			r.queue.push(it)
		default:
			return nil
		}
	}
}

// isNothing sorts the ring reader's ways to say that it has no record.
func isNothing(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed)
}

// takeRecord reads one record of the ring into the queue.
func (r *receiver) takeRecord() error {
	it := r.newItem()
	if err := r.ring.ReadInto(&it.record); err != nil {
		r.recycle(it)
		if isNothing(err) {
			return err
		}
		return fmt.Errorf("read the ring of upcalls: %w", err)
	}
	u, err := parseRecord(it.record.RawSample)
	if err != nil {
		r.recycle(it)
		return fmt.Errorf("read the ring of upcalls: record of %d bytes: %w", len(it.record.RawSample), err)
	}
	it.upcall, it.cost = u, ringCredits
	r.queue.push(it)
	return nil
}

// wait looks for frames for a while and then sleeps until one comes or ctx is done.
func (r *receiver) wait(ctx context.Context) error {
	if r.d.opts.Poll > 0 && runtime.NumCPU() > 1 {
		for start := time.Now(); time.Since(start) < r.d.opts.Poll; runtime.Gosched() {
			if r.ring.AvailableBytes() > 0 || len(r.fromTap) > 0 {
				return nil
			}
		}
	}
	if ctx.Err() != nil || len(r.fromTap) > 0 {
		return nil
	}
	r.ring.SetDeadline(time.Time{})
	if err := r.takeRecord(); err != nil && !isNothing(err) {
		return err
	}
	return nil
}

// readTap gives the tap's frames to run, waking it, until stop is closed and the tap's read deadline set.
func (r *receiver) readTap(stop <-chan struct{}) error {
	buffer := make([]byte, longestTap)
	for {
		n, err := r.d.tap.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			_ = r.ring.Flush()
			return fmt.Errorf("read %s: %w", tapName, err)
		}
		u, err := parseTapRecord(append([]byte(nil), buffer[:n]...))
		if err != nil {
			continue // the kernel itself sends on every device that is up
		}
		select {
		case r.fromTap <- &item{upcall: u, cost: tapCredits}:
			if err := r.ring.Flush(); err != nil {
				return fmt.Errorf("wake the handler: %w", err)
			}
		case <-stop:
			return nil
		}
	}
}

func (r *receiver) newItem() *item {
	it := r.free
	if it == nil {
		return &item{}
	}
	r.free, it.next = it.next, nil
	r.kept--
	return it
}

func (r *receiver) recycle(it *item) {
	if it.record.RawSample == nil || r.kept >= keptRecords {
		return
	}
	it.upcall = Upcall{}
	it.next, r.free = r.free, it
	r.kept++
}

// A port's credits lie in two words of its entry: what its upcalls have taken and what was given back.
const (
	creditWords = 2
	takenWord   = 0
	givenWord   = 1
)

// giveBack lets the port's next upcalls in.
func (d *Datapath) giveBack(p Port, cost uint32) {
	if p == 0 {
		return // state messages take none
	}
	for _, i := range [...]uint32{0, index(uint32(p))} {
		if i < maxPorts {
			d.credits.add(int(i)*creditWords+givenWord, cost)
		}
	}
}

// settleCredits gives back what frames took that were lost between the program and the handler, as when an agent dies.
// It is called when nothing waits; a frame that comes up at the same moment may count as given back too early, until
// the next call.
func (d *Datapath) settleCredits() {
	if d.credits.load(takenWord) == d.credits.load(givenWord) {
		return
	}
	for i := range maxPorts {
		taken := d.credits.load(i*creditWords + takenWord)
		if taken != d.credits.load(i*creditWords+givenWord) {
			d.credits.store(i*creditWords+givenWord, taken)
		}
	}
}

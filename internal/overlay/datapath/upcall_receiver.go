package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// Run gives the frames that go up to handle, one at a time, until ctx is done: state messages
// first, then the ports in turn, so that a port that floods delays only itself. handle must copy
// what it keeps.
func (d *Datapath) Run(ctx context.Context, handle func(*Upcall)) error {
	r, err := d.newReceiver(handle)
	if err != nil {
		return fmt.Errorf("datapath %s: %w", d.opts.Name, err)
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, r.waiter.wake)
	defer stop()
	if err := hostnet.OnThread(func() error { // the thread ends with its priority
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, receiverNice); err != nil {
			d.opts.Log.Debug("receiving packets at the usual priority", "err", err)
		}
		return r.run(ctx)
	}); err != nil {
		return fmt.Errorf("datapath %s: %w", d.opts.Name, err)
	}
	return nil
}

// receiverNice is the nice value of the receiving thread, for which new flows wait where there is
// more work than cores. It takes the resource limit RLIMIT_NICE, or CAP_SYS_NICE.
const receiverNice = -10

const (
	burst       = 64      // frames taken from the ring, and from the tap, before one is handled
	longestTap  = 1 << 17 // bytes: more than the kernel's largest frame and what stands in front
	keptRecords = 4096
)

// item is a frame on its way to the handler.
type item struct {
	record ringbuf.Record
	upcall Upcall
	cost   uint32
}

// receiver is the state of one Run.
type receiver struct {
	d      *Datapath
	ring   *ringbuf.Reader
	waiter *waiter
	handle func(*Upcall)
	queue  fairQueue
	buffer []byte // for one frame of the tap
	free   []*item

	sinceTap int       // frames handled since the tap was looked at
	crowded  time.Time // until then there is more work than cores
}

func (d *Datapath) newReceiver(handle func(*Upcall)) (*receiver, error) {
	ring, err := ringbuf.NewReader(d.maps.Upcalls)
	if err != nil {
		return nil, fmt.Errorf("open the ring of upcalls: %w", err)
	}
	ring.SetDeadline(time.Unix(1, 0)) // only what is there: the waiter waits
	b, err := newWaiter(d.maps.Upcalls.FD(), d.tap.fd)
	if err != nil {
		ring.Close()
		return nil, fmt.Errorf("wait for upcalls: %w", err)
	}
	return &receiver{d: d, ring: ring, waiter: b, handle: handle, buffer: make([]byte, longestTap)}, nil
}

func (r *receiver) Close() {
	r.ring.Close()
	r.waiter.Close()
}

func (r *receiver) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.intake(); err != nil {
			return err
		}
		if it := r.queue.pop(); it != nil {
			r.handle(&it.upcall)
			r.d.credits.giveBack(it.upcall.Port, it.cost)
			r.recycle(it)
			continue
		}
		r.d.credits.settle()
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// intake queues waiting frames without blocking. To look at the tap costs a system call, so that is
// done when the queue is empty or every few frames.
func (r *receiver) intake() error {
	if _, err := r.takeRecords(); err != nil {
		return err
	}
	if !r.queue.empty() && r.sinceTap < burst {
		r.sinceTap++
		return nil
	}
	_, err := r.takeFrames()
	return err
}

// takeRecords queues a burst from the ring, and reports whether there was anything.
func (r *receiver) takeRecords() (some bool, err error) {
	for range burst {
		if r.ring.AvailableBytes() == 0 {
			break
		}
		it := r.newItem()
		err := r.ring.ReadInto(&it.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.recycle(it)
			break // only records that were given up lay there
		}
		if err != nil {
			return some, fmt.Errorf("read the ring of upcalls: %w", err)
		}
		if it.upcall, err = parseRecord(it.record.RawSample); err != nil {
			r.d.malformed.Add(1)
			r.recycle(it)
			continue
		}
		it.cost = smallCredits
		r.queue.push(it)
		some = true
	}
	return some, nil
}

// takeFrames queues a burst from the tap, and reports whether there was anything.
func (r *receiver) takeFrames() (some bool, err error) {
	r.sinceTap = 0
	for range burst {
		n, err := r.d.tap.read(r.buffer)
		if err == unix.EAGAIN {
			break
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return some, fmt.Errorf("read %s: %w", tapName, err)
		}
		it := r.newItem()
		it.record.RawSample = append(it.record.RawSample[:0], r.buffer[:n]...)
		if it.upcall, err = parseTapRecord(it.record.RawSample); err != nil {
			r.recycle(it) // the kernel itself sends on every device that is up
			continue
		}
		it.cost = creditsOf(n - vnetHeaderLen - tapHeadLen)
		r.queue.push(it)
		some = true
	}
	return some, nil
}

// wait looks for frames for a while and then sleeps until one comes or ctx is done.
func (r *receiver) wait(ctx context.Context) error {
	if r.d.opts.Poll > 0 && runtime.NumCPU() > 1 {
		for start := time.Now(); time.Since(start) < r.d.opts.Poll; r.letOthersRun() {
			some, err := r.takeRecords()
			if err == nil && !some {
				some, err = r.takeFrames()
			}
			if some || err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return r.waiter.wait()
}

// A yield this long has let other work run; then none is tried for so many times as long.
const (
	longYield    = 300 * time.Microsecond
	afterYielded = 100
)

// letOthersRun yields the core between two polls. The kernel likes to wake a poller beside the
// workload whose frame came up, and that workload would wait as long as the poll lasts. On a
// machine with more work than cores, though, a yield returns only long after a frame has come: then
// the core is kept, and the kernel, which runs first what has just woken, shares it out.
func (r *receiver) letOthersRun() {
	if before := time.Now(); before.After(r.crowded) {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it cannot fail
		if took := time.Since(before); took > longYield {
			r.crowded = before.Add(afterYielded * took)
		}
	}
	runtime.Gosched()
}

func (r *receiver) newItem() *item {
	n := len(r.free) - 1
	if n < 0 {
		return &item{}
	}
	it := r.free[n]
	r.free = r.free[:n]
	return it
}

func (r *receiver) recycle(it *item) {
	if len(r.free) < keptRecords && cap(it.record.RawSample) <= 2*UpcallBytes {
		it.upcall = Upcall{}
		r.free = append(r.free, it)
	}
}

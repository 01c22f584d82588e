// Package filterlog writes records of what filters decide about packets to files, one for each log
// that asks for them (services §9.3). Callers never wait: records over the rate of their log, and
// those for which there is no room, are left out and counted.
package filterlog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology/flow"
)

// Defaults of Options. Rate and burst are those of Neutron's network_log.
const (
	DefaultDir   = "/var/log/heddle"
	DefaultRate  = 100
	DefaultBurst = 25
)

const (
	queueMost = 4096     // records that wait to be written
	fileMost  = 10 << 20 // bytes of a file
	lineMost  = 4096     // bytes of a line, none of which comes near
	filesMost = 10       // of a log, with the one being written
	openMost  = 64       // files open at once
	warnEvery = time.Minute
	// soundAfter is the time without a failure after which writing works again.
	soundAfter = 10 * time.Second
)

// Options of a Writer.
type Options struct {
	Dir   string // default DefaultDir; made when there is something to write
	Host  string // name of this host
	Rate  int    // records of a log per second; default DefaultRate
	Burst int    // of them at once; default DefaultBurst
	Now   func() time.Time
	Log   *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Burst == 0 {
		o.Burst = DefaultBurst
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Writer takes records and writes them. It is a task: see Run.
type Writer struct {
	opts     Options
	fileMost int64 // bytes of a file
	queue    chan entry
	wake     task.Notice // given when reopen or gone has changed

	mu     sync.Mutex
	shares map[string]*share // by log
	reopen bool
	gone   []string // files to be closed

	written, overRate, noRoom, failed atomic.Uint64

	files  map[string]*file // by name; of Run alone
	warned time.Time        // likewise, as is what follows

	lost        int // records that were not written since writing worked
	lastFailure time.Time
}

// entry is a record to be written.
type entry struct {
	at         time.Time
	suppressed int // records left out since the one before
	flow.Logged
}

// share bounds the records of one log.
type share struct {
	used       time.Time // at which all records so far could have come one by one
	suppressed int       // since the last record
}

// New makes a writer. It writes while Run works.
func New(o Options) *Writer {
	return &Writer{opts: o.withDefaults(), fileMost: fileMost, queue: make(chan entry, queueMost), wake: task.NewNotice(), shares: map[string]*share{}, files: map[string]*file{}}
}

// Add records decisions. It never waits.
func (w *Writer) Add(all []flow.Logged) {
	now := w.opts.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range all {
		s := w.shares[all[i].Log]
		if s == nil {
			s = &share{}
			w.shares[all[i].Log] = s
		}
		if !s.allow(now, time.Second/time.Duration(w.opts.Rate), w.opts.Burst) {
			s.suppressed++
			w.overRate.Add(1)
			continue
		}
		select {
		case w.queue <- entry{now, s.suppressed, all[i]}:
			s.suppressed = 0
		default:
			s.suppressed++
			w.noRoom.Add(1)
		}
	}
}

// allow reports whether another record may be written now, and counts it.
func (s *share) allow(now time.Time, every time.Duration, burst int) bool {
	if earliest := now.Add(-time.Duration(burst) * every); s.used.Before(earliest) {
		s.used = earliest
	}
	if s.used.Add(every).After(now) {
		return false
	}
	s.used = s.used.Add(every)
	return true
}

// Forget closes the file of a log that is gone or not enabled.
func (w *Writer) Forget(log string) {
	w.mu.Lock()
	delete(w.shares, log)
	w.gone = append(w.gone, fileOf(groupFolder, log))
	w.mu.Unlock()
	w.wake.Give()
}

// ForgetResource closes the file of a logging resource that is gone or not enabled.
func (w *Writer) ForgetResource(id string) {
	w.mu.Lock()
	w.gone = append(w.gone, fileOf(firewallFolder, id))
	w.mu.Unlock()
	w.wake.Give()
}

// Reopen has all files opened again, by their names: a program that rotates logs has renamed them.
func (w *Writer) Reopen() {
	w.mu.Lock()
	w.reopen = true
	w.mu.Unlock()
	w.wake.Give()
}

// Run writes records until ctx ends, and then what it has been given before.
func (w *Writer) Run(ctx context.Context) error {
	defer w.closeAll()
	for {
		select {
		case <-ctx.Done():
			for len(w.queue) > 0 {
				w.write(<-w.queue)
			}
			return nil
		case <-w.wake:
			w.closeSome()
		case e := <-w.queue:
			w.write(e)
		}
	}
}

// Figures returns how many records were written and left out.
func (w *Writer) Figures() []telemetry.Value {
	left := func(reason string, n *atomic.Uint64) telemetry.Value {
		return telemetry.Counter.Of("heddle_overlay_log_records_suppressed_total", "Records of logs that were not written.", int(n.Load())).With("reason", reason)
	}
	return []telemetry.Value{
		telemetry.Counter.Of("heddle_overlay_log_records_total", "Records of logs that were written.", int(w.written.Load())),
		left("over the rate", &w.overRate), left("too many wait", &w.noRoom), left("not written", &w.failed),
	}
}

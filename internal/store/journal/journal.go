// Package journal keeps the past of the store on a server's disk: each change of the keys that
// matter, with its revision and the time at which this server received it. It follows the store's
// watch, and knows keys and bytes only.
//
//	watch ─▶ follow ─▶ Keep ─▶ block, each second ─▶ segment ─┬─▶ Commits: changes
//	                                                          └─▶ At: all keys at a time
//
// A segment begins with all keys, so that it alone gives the state at each of its revisions. What
// was not recorded is a gap, which answers name.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/task"
)

// Dir returns the directory of the journal in a server's data directory.
func Dir(data string) string { return filepath.Join(data, "journal") }

// Options of a Journal. Dir, Store, Prefixes and Keep are required.
type Options struct {
	Dir      string
	Store    follow.Source
	Prefixes []string
	// Keep returns the value to record of a key, false: none is. It gets nil for a deletion.
	Keep func(key string, value []byte) ([]byte, bool)
	// MostAge and MostBytes bound how much of the past is kept: 0 = 30 days and 4 GiB. On a disk
	// with less than spareBytes left it is less.
	MostAge   time.Duration
	MostBytes int64
	// SegmentBytes is the size of the changes in a segment after which another one begins: 0 = 64
	// MiB. It begins after a day, too.
	SegmentBytes int64
	Now          func() time.Time // nil = time.Now
	Log          *slog.Logger     // nil: nothing is logged
}

const (
	defaultAge          = 30 * 24 * time.Hour
	defaultBytes        = 4 << 30
	defaultSegmentBytes = 64 << 20
	mostSegmentAge      = 24 * time.Hour
	// spareBytes is the room that a journal of more than leastBytes leaves on its disk, where the
	// store is, too.
	spareBytes = 1 << 30
	leastBytes = 64 << 20
	// syncEvery is the interval between writes.
	syncEvery = time.Second
	// retryEvery is the interval between attempts to write again after a failure.
	retryEvery = 10 * time.Second
	// progressEvery is the interval between writes of the revision alone, while no change matters.
	// A server that starts again goes on from it.
	progressEvery = time.Minute
	// mostPending bounds the records that wait for the next write, bytes.
	mostPending = 1 << 20
)

// Journal is a task, ready once it has read what is on disk.
type Journal struct {
	task.Part
	opts     Options
	log      *slog.Logger
	follower *follow.Follower
	source   *identified
	due      task.Notice  // given when a reader waits for what is not written yet
	waiting  atomic.Int32 // readers
	written  task.Bell    // rings when more is durable, or it turned out that nothing can be written

	mu       sync.Mutex
	segments []*segment // copies for readers, oldest first; the last one is being written
	durable  Position   // up to which changes are on disk
	recorded int64      // revision of the last recorded change that is on disk
	problem  string     // why nothing is recorded at present
	lost     []lostSegment

	writing sync.Mutex
	writer
}

// writer is the state of writing, under Journal.writing.
type writer struct {
	lock       *os.File // locked: the directory is this journal's
	out        *os.File // nil: nothing can be written at present
	current    *segment
	compressor *compressor
	pending    []byte
	position   Position  // of what was delivered last
	change     int64     // revision of the last record delivered
	last       time.Time // of the last record; times never go back
	failed     time.Time // when writing failed last, or was tried again
	behind     bool      // the clock is behind last, and that was logged
}

// Position is a revision of the store. Revisions compare within an epoch: another one begins when
// the store was replaced or restored.
type Position struct {
	Epoch    int   `json:"epoch"`
	Revision int64 `json:"revision"`
}

// Compare orders positions by time.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Revision, o.Revision))
}

// identified is a source that remembers the store's identity.
type identified struct {
	follow.Source
	last atomic.Pointer[store.Identity]
}

func (s *identified) Identity(ctx context.Context) (store.Identity, error) {
	id, err := s.Source.Identity(ctx)
	if err == nil {
		s.last.Store(&id)
	}
	return id, err
}

// New returns a journal that records nothing until Run.
func New(o Options) *Journal {
	o.MostAge, o.MostBytes = cmp.Or(o.MostAge, defaultAge), cmp.Or(o.MostBytes, defaultBytes)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegmentBytes)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	j := &Journal{Part: task.NewPart("journal"), opts: o, log: o.Log, source: &identified{Source: o.Store}, due: task.NewNotice()}
	j.compressor = newCompressor()
	return j
}

// Run records until ctx ends. What cannot be read or written is logged and becomes a gap: a server
// works without its journal.
func (j *Journal) Run(ctx context.Context) error {
	after := j.open()
	j.follower = follow.New(follow.Options{Store: j.source, Prefixes: j.opts.Prefixes, After: after, Log: j.log})
	j.BeReady()
	following := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { following <- j.follower.Run(ctx, j.deliver) }()
	j.writeRegularly(ctx)
	cancel()
	err := <-following
	j.writing.Lock()
	defer j.writing.Unlock()
	j.flush()
	j.close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// open indexes what is on disk, and returns the position to go on from, nil if there is none.
func (j *Journal) open() *follow.Position {
	j.writing.Lock()
	defer j.writing.Unlock()
	if err := j.own(); err != nil {
		j.fail(err)
		return nil
	}
	if len(j.segments) == 0 {
		return nil
	}
	newest := j.segments[len(j.segments)-1]
	if torn := newest.lost; torn != nil {
		j.log.Warn("the end of the journal was not wholly written; leaving it out", "file", newest.file, "after revision", newest.last, "err", torn)
	}
	after, err := j.resume(newest)
	if err != nil {
		j.fail(err)
		return nil
	}
	return after
}

// own makes the directory this journal's, unless another process has it, and indexes it.
func (j *Journal) own() error {
	if j.lock != nil {
		return nil
	}
	if err := os.MkdirAll(j.opts.Dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(j.opts.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("%s is another server's journal; give each server a data directory of its own: %w", j.opts.Dir, err), lock.Close())
	}
	if err := j.index(); err != nil {
		return errors.Join(err, lock.Close())
	}
	j.lock = lock
	return nil
}

// index reads which segments there are, and the position after them.
func (j *Journal) index() error {
	all, lost, err := load(j.opts.Dir)
	if err != nil {
		return err
	}
	for _, l := range lost {
		j.log.Error("cannot read a segment of the journal; what it has is lost", "file", l.file, "err", l.err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segments, j.lost = all, lost
	if len(all) > 0 {
		newest := all[len(all)-1]
		j.position = Position{newest.header.Epoch, newest.last}
		j.change, j.last, j.durable = newest.last, newest.until, j.position
	}
	return nil
}

// resume opens a segment to go on with, and returns the position after it.
func (j *Journal) resume(s *segment) (*follow.Position, error) {
	if err := s.cutTail(); err != nil {
		return nil, err
	}
	after := follow.Position{Identity: store.Identity{Cluster: s.header.Cluster, Term: s.header.Term, Revision: s.last}}
	for n := len(s.groups) - 1; n >= 0 && after.Newest.Key == ""; n-- {
		err := s.each(n, func(_ blockHead, r record) {
			if r.kind == putRecord && r.kv.ModRevision >= after.Newest.ModRevision {
				after.Newest = r.kv
			}
		})
		if err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(s.file, os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	j.out, j.current = out, s.copy()
	j.publish()
	return &after, nil
}

// fail notes that nothing can be recorded until a new segment is begun.
func (j *Journal) fail(err error) {
	j.close()
	j.pending = nil
	if j.failed.IsZero() {
		j.log.Error("cannot write the journal; changes are not recorded until it can be", "dir", j.opts.Dir, "err", err)
	}
	j.failed = j.opts.Now()
	j.mu.Lock()
	j.problem = err.Error()
	j.mu.Unlock()
	j.written.Ring()
}

func (j *Journal) close() {
	if j.out != nil {
		_ = j.out.Close() // what was synced is on disk
		j.out = nil
	}
}

// deliver takes an update of the follower.
func (j *Journal) deliver(_ context.Context, u follow.Update) {
	j.writing.Lock()
	defer j.writing.Unlock()
	if u.Full {
		j.deliverAll(u)
		return
	}
	j.position.Revision = u.Revision
	if j.out == nil {
		return
	}
	for _, e := range u.Events {
		j.add(e)
	}
	if len(j.pending) > mostPending || j.waiting.Load() > 0 {
		j.flush()
	}
}

// add records an event.
func (j *Journal) add(e store.Event) {
	r := record{kind: deletedRecord, kv: e.KV}
	value, ok := j.opts.Keep(e.Key, e.Value)
	if !ok {
		return
	}
	if !e.Deleted {
		r = j.put(e.KV, value)
	}
	j.pending = appendRecord(j.pending, r)
	j.change = e.ModRevision
}

// put returns the record of a put, of which Keep has returned this value.
func (j *Journal) put(kv store.KV, value []byte) record {
	kind := byte(putRecord)
	if string(value) != string(kv.Value) {
		kind = editedRecord
	}
	kv.Value = value
	return record{kind, kv}
}

// deliverAll begins a segment with all keys. What has changed since the segment before is a gap.
func (j *Journal) deliverAll(u follow.Update) {
	if err := j.own(); err != nil { // first, since it says where the journal ends
		j.fail(err)
		return
	}
	j.flush()
	header := segmentHeader{Epoch: max(j.position.Epoch, 1), Revision: u.Revision}
	if u.Diverged {
		header.Epoch++
	}
	j.position = Position{header.Epoch, u.Revision}
	j.change = u.Revision
	all := func(yield func(record) bool) {
		for _, kv := range u.All {
			if value, ok := j.opts.Keep(kv.Key, kv.Value); ok && !yield(j.put(kv, value)) {
				return
			}
		}
	}
	if err := j.begin(header, all); err != nil {
		j.fail(err)
	}
}

// begin begins a segment.
func (j *Journal) begin(header segmentHeader, snapshot func(yield func(record) bool)) error {
	header.Format, header.Time = segmentFormat, j.now()
	if id := j.source.last.Load(); id != nil {
		header.Cluster, header.Term = id.Cluster, id.Term
	}
	if err := j.prune(); err != nil {
		return err
	}
	next, out, err := begin(j.opts.Dir, header, snapshot, j.compressor)
	if err != nil {
		return err
	}
	j.close()
	j.out, j.current = out, next
	j.mu.Lock()
	j.segments = append(slices.DeleteFunc(slices.Clone(j.segments), func(s *segment) bool { return s.file == next.file }), next.copy())
	j.mu.Unlock()
	if !j.failed.IsZero() {
		j.failed = time.Time{}
		j.log.Info("recording changes in the journal again", "revision", header.Revision)
	}
	j.publish()
	return nil
}

// now returns the time of what is recorded now. It never goes back, whatever the clock does.
func (j *Journal) now() time.Time {
	now := j.opts.Now().UTC().Truncate(time.Millisecond)
	if behind := j.last.Sub(now) > time.Minute; behind != j.behind {
		if j.behind = behind; behind {
			j.log.Warn("the clock is behind the journal; recording the last time until it catches up", "clock", now, "last time", j.last)
		}
	}
	j.last = later(j.last, now)
	return j.last
}

// flush writes what is pending, and makes it durable.
func (j *Journal) flush() {
	if j.out == nil {
		return
	}
	idle := j.opts.Now().Sub(j.current.until) >= progressEvery && j.position.Revision > j.current.last
	if len(j.pending) > 0 || idle {
		if err := j.write(); err != nil {
			err = errors.Join(err, j.out.Truncate(j.current.size))
			j.fail(fmt.Errorf("%s: %w", j.current.file, err))
			return
		}
		j.pending = j.pending[:0]
	}
	j.publish()
}

func (j *Journal) write() error {
	before := *j.current
	err := j.current.writeRecords(j.out, j.compressor, changesBlock, j.position.Revision, j.now(), j.pending)
	if err == nil {
		err = j.out.Sync()
	}
	if err != nil {
		*j.current = before
	}
	return err
}

// publish lets readers see what is on disk.
func (j *Journal) publish() {
	j.mu.Lock()
	j.durable, j.recorded, j.problem = j.position, j.change, ""
	if n := len(j.segments); n > 0 && j.segments[n-1].size != j.current.size {
		j.segments = append(slices.Clone(j.segments[:n-1]), j.current.copy())
	}
	j.mu.Unlock()
	j.written.Ring()
}

// writeRegularly writes what is pending at intervals, and looks whether a segment should end.
func (j *Journal) writeRegularly(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-j.due:
		}
		j.writing.Lock()
		j.flush()
		switch {
		case !j.failed.IsZero() && j.opts.Now().Sub(j.failed) >= retryEvery && j.hasRoom():
			j.failed = j.opts.Now() // a second list behind the first would be another gap
			j.follower.Relist()
		case j.out != nil && j.isFull():
			j.rotate()
		}
		j.writing.Unlock()
	}
}

// hasRoom reports whether the directory takes another segment.
func (j *Journal) hasRoom() bool {
	probe := filepath.Join(j.opts.Dir, "probe")
	err := j.own()
	if err == nil {
		err = errors.Join(os.WriteFile(probe, make([]byte, mostPending), 0o600), os.Remove(probe))
	}
	if err != nil {
		j.failed = j.opts.Now()
	}
	return err == nil
}

// isFull reports whether another segment should begin.
func (j *Journal) isFull() bool {
	s := j.current
	changes := s.size - s.base
	return changes >= min(max(j.opts.SegmentBytes, s.base), j.mostBytes(s.size)/2) || changes > 0 && j.opts.Now().Sub(s.header.Time) > mostSegmentAge
}

// rotate begins another segment with the state at the end of the current one.
func (j *Journal) rotate() {
	state, err := j.current.state(func(blockHead, record) bool { return true })
	if err == nil {
		header := segmentHeader{Epoch: j.position.Epoch, Revision: j.current.last}
		err = j.begin(header, state.records)
	}
	if err != nil {
		j.fail(err)
	}
}

// prune removes the oldest segments beyond the limits.
func (j *Journal) prune() error {
	j.mu.Lock()
	kept := j.segments
	j.mu.Unlock()
	total := int64(0)
	for _, s := range kept {
		total += s.size
	}
	var err error
	most := j.mostBytes(total)
	for len(kept) > 1 && err == nil && (total > most || j.last.Sub(kept[0].until) > j.opts.MostAge) {
		if err = os.Remove(kept[0].file); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		total -= kept[0].size
		kept = kept[1:]
	}
	j.mu.Lock()
	j.segments = kept
	j.mu.Unlock()
	return err
}

// mostBytes returns how large the journal, which has total bytes, may be on its disk.
func (j *Journal) mostBytes(total int64) int64 {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(j.opts.Dir, &disk); err != nil {
		return j.opts.MostBytes // writing fails, too, and says so
	}
	free := int64(disk.Bavail) * disk.Bsize
	return min(j.opts.MostBytes, max(total+free-spareBytes, leastBytes))
}

// Position returns the position up to which changes are on disk.
func (j *Journal) Position() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable
}

// Recorded returns the revision up to which all changes that matter are on disk. It changes only
// with them.
func (j *Journal) Recorded() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.recorded
}

// Problem returns why nothing is recorded at present, or "".
func (j *Journal) Problem() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.problem
}

// Await waits until the journal has all changes up to a revision of the store as it is now, or
// cannot record them.
func (j *Journal) Await(ctx context.Context, revision int64) error {
	j.waiting.Add(1)
	defer j.waiting.Add(-1)
	j.due.Give()
	for {
		next := j.written.Next()
		j.mu.Lock()
		enough := j.durable.Revision >= revision || j.problem != ""
		j.mu.Unlock()
		if enough {
			return nil
		}
		j.opts.Store.Nudge(revision)
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

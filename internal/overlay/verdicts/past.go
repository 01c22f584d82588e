package verdicts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

const (
	// catchUp bounds the wait for the records of the log that are not in the files yet.
	catchUp = 2 * time.Second
	// longestLine bounds a line of a segment that is read.
	longestLine = 1 << 20
)

// Past reads the records of segments, oldest first. A line that cannot be read counts as lost.
type Past struct {
	log   *Segments
	names []string // of segments to come
	file  *os.File
	lines *bufio.Scanner
}

// saw notes that the records of the log before a number were written, or are lost.
func (s *Segments) saw(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != number {
		s.seen = number
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// await waits until the records of the log before a number were written.
func (s *Segments) await(ctx context.Context, number uint64) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for {
		s.mu.Lock()
		seen, changed := s.seen, s.changed
		s.mu.Unlock()
		if seen >= number {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// Past returns a reader of the segments with records since a time, those that the log has by now
// with them, and the time at which the segments begin.
func (s *Segments) Past(ctx context.Context, l *Log, since time.Time) (p *Past, begins time.Time) {
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	s.await(ctx, next)
	names, _ := filepath.Glob(filepath.Join(s.dir, segmentNames)) // the pattern is a good one
	slices.Sort(names)
	first := 0
	begins = l.begun
	for i, name := range names {
		opened, err := time.Parse("flows-"+segmentTime+".jsonl", filepath.Base(name))
		if err != nil {
			continue // not one of the log's
		}
		if opened.Before(begins) {
			begins = opened
		}
		if !opened.After(since) {
			first = i
		}
	}
	return &Past{log: s, names: names[first:]}, begins
}

// Next returns at most so many records, with the number of those that were lost before them; none
// at the end.
func (p *Past) Next(most int) (records []flow.FlowRecord, lost uint64, more <-chan struct{}) {
	for len(records) < most && p.open() {
		if !p.lines.Scan() {
			if err := p.lines.Err(); err != nil {
				p.log.log.Warn("cannot read the rest of a file of the flow log", "file", p.file.Name(), "err", err)
				lost++
			}
			p.Close()
			continue
		}
		var r flow.FlowRecord
		if json.Unmarshal(p.lines.Bytes(), &r) != nil {
			lost++
			continue
		}
		records = append(records, r)
	}
	return records, lost, nil
}

// open opens the next segment that there is, unless one is open. It reports whether one is.
func (p *Past) open() bool {
	for p.file == nil && len(p.names) > 0 {
		file, err := os.Open(p.names[0])
		p.names = p.names[1:]
		switch {
		case err == nil:
			p.file, p.lines = file, bufio.NewScanner(file)
			p.lines.Buffer(nil, longestLine)
		case !errors.Is(err, fs.ErrNotExist): // that would be one which was too old
			p.log.log.Warn("cannot read a file of the flow log", "err", err)
		}
	}
	return p.file != nil
}

// Close closes the segment that is open.
func (p *Past) Close() {
	if p.file != nil {
		_ = p.file.Close() // it was only read
		p.file = nil
	}
}

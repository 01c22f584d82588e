package verdicts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heddle/internal/topology/flow"
)

const (
	segmentBytes = 64 << 20
	segmentAge   = 24 * time.Hour
	keptBytes    = 1 << 30
	keptFor      = 7 * 24 * time.Hour
	// segmentNames matches the names of segments, which are in the order of their times.
	segmentNames = "flows-*.jsonl"
	segmentTime  = "20060102T150405.000000000"
	// writeBatch is the number of records written at once.
	writeBatch = 1024
	warnEvery  = time.Minute
)

// Segments writes a log to files, a JSON object a line, and removes old ones.
type Segments struct {
	dir    string
	log    *slog.Logger
	now    func() time.Time
	most   int64 // bytes of a segment
	kept   int64 // bytes of all
	file   *os.File
	size   int64
	opened time.Time
	lost   uint64 // records since the last that was written
	warned time.Time

	mu      sync.Mutex
	seen    uint64        // number of the next record of the log
	changed chan struct{} // closed when it has changed
}

// NewSegments returns a writer to a directory, which is made when there is something to write.
func NewSegments(dir string, log *slog.Logger) *Segments {
	return &Segments{dir: dir, log: log, now: time.Now, most: segmentBytes, kept: keptBytes, changed: make(chan struct{})}
}

// Run writes what comes into a log until ctx ends. What cannot be written is lost, and counted in
// the next line.
func (s *Segments) Run(ctx context.Context, l *Log) error {
	reader, _ := l.Reader(false)
	for {
		records, lost, more := reader.Next(writeBatch)
		s.write(records, lost)
		s.saw(reader.next)
		if len(records) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			if s.file == nil {
				return nil
			}
			return s.file.Close()
		case <-more:
		}
	}
}

// write writes records after the loss of some.
func (s *Segments) write(records []flow.FlowRecord, lost uint64) {
	if s.lost += lost; s.lost > 0 {
		records = slices.Insert(records, 0, flow.FlowRecord{Lost: s.lost})
	}
	if len(records) == 0 {
		return
	}
	err := s.tryWrite(records)
	if err == nil {
		s.lost = 0
		return
	}
	s.lost += uint64(len(records))
	if s.lost > 0 && records[0].Lost > 0 {
		s.lost-- // it stands for those before
	}
	if now := s.now(); now.Sub(s.warned) >= warnEvery {
		s.warned = now
		s.log.Warn("cannot write the flow log; packets go on", "dir", s.dir, "err", err)
	}
}

func (s *Segments) tryWrite(records []flow.FlowRecord) error {
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for i := range records {
		if err := to.Encode(&records[i]); err != nil {
			return err
		}
	}
	if s.file == nil || s.size > 0 && s.size+int64(lines.Len()) > s.most || s.now().Sub(s.opened) > segmentAge {
		if err := s.open(); err != nil {
			return err
		}
	}
	n, err := s.file.Write(lines.Bytes())
	if err != nil {
		return errors.Join(err, s.file.Truncate(s.size)) // no half of a line stays
	}
	s.size += int64(n)
	return nil
}

// open begins a segment, and removes old ones.
func (s *Segments) open() error {
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			return err
		}
		s.file = nil
	}
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return err
	}
	if err := s.prune(); err != nil {
		return err
	}
	name := fmt.Sprintf("flows-%s.jsonl", s.now().UTC().Format(segmentTime))
	file, err := os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	s.file, s.size, s.opened = file, 0, s.now()
	return nil
}

// prune removes the oldest segments: those over the age, and as many as leave room for another one.
func (s *Segments) prune() error {
	names, err := filepath.Glob(filepath.Join(s.dir, segmentNames))
	if err != nil {
		return err
	}
	slices.Sort(names)
	slices.Reverse(names) // the newest first
	room := s.kept - s.most
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if room -= info.Size(); room >= 0 && s.now().Sub(info.ModTime()) < keptFor {
			continue
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

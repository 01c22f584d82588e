package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// segmentHeader is the first block of a segment.
type segmentHeader struct {
	Format  int
	Epoch   int
	Cluster uint64 // of the store
	Term    uint64
	// Revision is that of the snapshot. The segment goes on where the one before it ended if that
	// has ended with this revision.
	Revision int64
	Time     time.Time
}

const segmentFormat = 1

// suffix ends the names of segments, and begunSuffix follows it until they are whole.
const suffix, begunSuffix = ".segment", ".new"

func segmentName(epoch int, revision int64) string {
	return fmt.Sprintf("%06d-%019d%s", epoch, revision, suffix)
}

// segment is the index of a segment. It is not changed while readers have it.
type segment struct {
	file   string
	header segmentHeader
	groups []group
	size   int64 // bytes of whole blocks
	base   int64 // of them, up to the end of the snapshot
	last   int64 // revision
	until  time.Time
	lost   error // why the segment cannot be read from its end on; nil: it can
}

// group is the beginning of a group of blocks.
type group struct {
	offset   int64
	after    int64 // all its revisions are later
	snapshot bool
}

// note adds a block to the index.
func (s *segment) note(h blockHead, bytes int64) {
	if h.isFirst() {
		s.groups = append(s.groups, group{offset: s.size, after: s.last, snapshot: h.what() == snapshotBlock})
	}
	s.size += bytes
	s.last, s.until = max(s.last, h.revision), later(s.until, time.UnixMilli(h.millis).UTC())
	if h.what() != changesBlock {
		s.base = s.size
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// copy returns a copy for readers.
func (s *segment) copy() *segment {
	c := *s
	c.groups = slices.Clip(s.groups)
	return &c
}

// loadSegment indexes a segment by the heads of its blocks, and checks the blocks themselves if
// whole is set. The error is about its header; what is damaged after that is left out of the index.
func loadSegment(file string, whole bool) (*segment, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h, payload, err := readBlock(bufio.NewReader(f))
	if err != nil {
		return nil, err
	}
	s := &segment{file: file}
	if err := json.Unmarshal(payload, &s.header); err != nil {
		return nil, err
	}
	if h.what() != headerBlock || s.header.Format != segmentFormat {
		return nil, fmt.Errorf("format %d, known is %d: %w", s.header.Format, segmentFormat, errDamaged)
	}
	s.note(h, headBytes+int64(len(payload)))
	s.lost = s.index(f, info.Size(), whole)
	return s, nil
}

// index adds the blocks from s.size on.
func (s *segment) index(f *os.File, end int64, whole bool) error {
	for {
		in := io.NewSectionReader(f, s.size, end-s.size)
		var h blockHead
		var err error
		if whole {
			h, _, err = readBlock(bufio.NewReaderSize(in, 64<<10))
		} else {
			h, _, err = readHead(in)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case headBytes+int64(h.length) > end-s.size:
			return io.ErrUnexpectedEOF
		}
		s.note(h, headBytes+int64(h.length))
	}
}

// read returns the records' blocks of the group with this number.
func (s *segment) read(n int) ([]block, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begin, end := s.groups[n].offset, s.size
	if n+1 < len(s.groups) {
		end = s.groups[n+1].offset
	}
	blocks, err := readGroup(bufio.NewReaderSize(io.NewSectionReader(f, begin, end-begin), 64<<10))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	return blocks, nil
}

// each calls f with the records of a group's blocks.
func (s *segment) each(n int, f func(h blockHead, r record)) error {
	blocks, err := s.read(n)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		in := reader{rest: b.records}
		for r, ok := in.next(); ok; r, ok = in.next() {
			f(b.head, r)
		}
		if in.failed {
			return fmt.Errorf("%s: record: %w", s.file, errDamaged)
		}
	}
	return nil
}

// lostSegment is a segment of which not even the header can be read.
type lostSegment struct {
	file string
	err  error
}

// load indexes the segments of a directory, oldest first. It removes what a crash has left of a
// segment that was begun.
func load(dir string) (all []*segment, lost []lostSegment, err error) {
	begun, err1 := filepath.Glob(filepath.Join(dir, "*"+suffix+begunSuffix))
	files, err2 := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	for _, file := range begun {
		if err := os.Remove(file); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(files)
	for i, file := range files {
		s, err := loadSegment(file, i == len(files)-1)
		if err != nil {
			lost = append(lost, lostSegment{file, err})
			continue
		}
		all = append(all, s)
	}
	return all, lost, nil
}

// cutTail removes what was not wholly written at the end of a segment, which a crash leaves.
func (s *segment) cutTail() error {
	if s.lost == nil {
		return nil
	}
	if err := os.Truncate(s.file, s.size); err != nil {
		return err
	}
	s.lost = nil
	return nil
}

// begin writes a segment with a snapshot, of which next yields the records, and returns it open.
func begin(dir string, header segmentHeader, snapshot func(yield func(record) bool), c *compressor) (s *segment, out *os.File, err error) {
	file := filepath.Join(dir, segmentName(header.Epoch, header.Revision))
	if out, err = os.OpenFile(file+begunSuffix, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close(), os.Remove(out.Name()))
		}
	}()
	s = &segment{file: file, header: header}
	if err = s.writeHeader(out); err == nil {
		err = s.writeSnapshot(out, snapshot, c)
	}
	if err == nil {
		err = out.Sync()
	}
	if err == nil {
		err = os.Rename(out.Name(), file)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return s, out, err
}

func (s *segment) writeHeader(out *os.File) error {
	payload, err := json.Marshal(s.header)
	if err != nil {
		return err
	}
	h := blockHead{expanded: uint32(len(payload)), kind: headerBlock, revision: s.header.Revision, millis: s.header.Time.UnixMilli()}
	return s.write(out, h, appendBlock(nil, h, payload))
}

// write appends a block to the segment's file.
func (s *segment) write(out *os.File, h blockHead, raw []byte) error {
	if _, err := out.WriteAt(raw, s.size); err != nil {
		return err
	}
	s.note(h, int64(len(raw)))
	return nil
}

// snapshotBytes is the size of a block of a snapshot, before it is compressed.
const snapshotBytes = 1 << 20

func (s *segment) writeSnapshot(out *os.File, snapshot func(yield func(record) bool), c *compressor) (err error) {
	var records []byte
	write := func() error { return s.writeRecords(out, c, snapshotBlock, s.header.Revision, s.header.Time, records) }
	c.end()
	for r := range snapshot {
		if records = appendRecord(records, r); len(records) >= snapshotBytes {
			if err := write(); err != nil {
				return err
			}
			records = records[:0]
		}
	}
	if err := write(); err != nil { // also an empty one: it says that there is a snapshot
		return err
	}
	c.end()
	return nil
}

// writeRecords appends a compressed block.
func (s *segment) writeRecords(out *os.File, c *compressor, kind byte, revision int64, at time.Time, records []byte) error {
	raw, err := c.block(nil, kind, revision, at.UnixMilli(), records)
	if err != nil {
		return err
	}
	return s.write(out, blockHead{kind: raw[12], revision: revision, millis: at.UnixMilli()}, raw)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

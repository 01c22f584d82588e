package journal

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"heddle/internal/store"
)

// A segment is a file of blocks, each written and synced as a whole:
//
//	length of the payload (4) · length of what it expands to (4) · CRC-32C of all that follows (4)
//	kind (1) · last revision (8) · its time, Unix ms (8) · payload
//
// Payloads of snapshots and changes are compressed. Blocks form groups, each one stream of flate of
// which every block is a flushed part, so that small blocks compress well, too. Reading begins at a
// group. A block of changes holds whole revisions.
const headBytes = 4 + 4 + 4 + 1 + 8 + 8

// Kinds of blocks.
const (
	headerBlock   = 'h' // JSON of segmentHeader; the first block
	snapshotBlock = 's'
	changesBlock  = 'c'
	// beginsGroup is set in the kind of the first block of a group.
	beginsGroup = 0x80
)

// mostBlock bounds what a block may say it has or expands to, bytes.
const mostBlock = 1 << 30

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errDamaged = errors.New("damaged")
)

// blockHead is the beginning of a block.
type blockHead struct {
	length, expanded uint32
	sum              uint32
	kind             byte
	revision, millis int64
}

func (h *blockHead) isFirst() bool { return h.kind&beginsGroup != 0 }
func (h *blockHead) what() byte    { return h.kind &^ beginsGroup }

// appendBlock appends a block with this payload.
func appendBlock(b []byte, h blockHead, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, h.expanded)
	sumAt := len(b)
	b = append(b, 0, 0, 0, 0, h.kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.revision))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.millis))
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[sumAt:], crc32.Checksum(b[sumAt+4:], castagnoli))
	return b
}

// readHead reads the beginning of a block. io.EOF: the segment ends before it.
func readHead(r io.Reader) (h blockHead, raw [headBytes]byte, err error) {
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return h, raw, err
	}
	h = blockHead{
		length: binary.LittleEndian.Uint32(raw[0:]), expanded: binary.LittleEndian.Uint32(raw[4:]), sum: binary.LittleEndian.Uint32(raw[8:]),
		kind: raw[12], revision: int64(binary.LittleEndian.Uint64(raw[13:])), millis: int64(binary.LittleEndian.Uint64(raw[21:])),
	}
	if what := h.what(); h.length > mostBlock || h.expanded > mostBlock || what != headerBlock && what != snapshotBlock && what != changesBlock {
		return h, raw, fmt.Errorf("beginning of a block: %w", errDamaged)
	}
	return h, raw, nil
}

// readBlock reads a block. What it takes in memory follows what there is to read.
func readBlock(r io.Reader) (blockHead, []byte, error) {
	h, raw, err := readHead(r)
	if err != nil {
		return h, nil, err
	}
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r, int64(h.length)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return h, nil, err
	}
	if crc32.Update(crc32.Checksum(raw[12:], castagnoli), castagnoli, payload.Bytes()) != h.sum {
		return h, nil, fmt.Errorf("checksum of a block: %w", errDamaged)
	}
	return h, payload.Bytes(), nil
}

// compressor compresses the blocks of a group.
type compressor struct {
	out   bytes.Buffer
	flate *flate.Writer
	group int // compressed bytes of the group so far
}

// groupBytes is the least compressed size of a group that ends.
const groupBytes = 128 << 10

func newCompressor() *compressor {
	c := &compressor{}
	c.flate, _ = flate.NewWriter(&c.out, flate.DefaultCompression) // the level is good
	return c
}

// end has the next block begin a group.
func (c *compressor) end() { c.group = 0 }

// block appends a block of records to b.
func (c *compressor) block(b []byte, kind byte, revision, millis int64, records []byte) ([]byte, error) {
	if len(records) > mostBlock {
		return b, fmt.Errorf("a block of %d bytes, at most %d are written", len(records), mostBlock)
	}
	c.out.Reset()
	if c.group == 0 {
		c.flate.Reset(&c.out)
		kind |= beginsGroup
	}
	if _, err := c.flate.Write(records); err != nil {
		return b, err
	}
	if err := c.flate.Flush(); err != nil {
		return b, err
	}
	if c.group += c.out.Len(); c.group >= groupBytes {
		c.end()
	}
	return appendBlock(b, blockHead{expanded: uint32(len(records)), kind: kind, revision: revision, millis: millis}, c.out.Bytes()), nil
}

// readGroup reads the group that begins at r, and returns its blocks' heads and records. It goes by
// the blocks before the next group, or before the end of limit.
func readGroup(r io.Reader) (blocks []block, err error) {
	var stream bytes.Buffer
	for {
		h, payload, err := readBlock(r)
		if err == io.EOF && blocks != nil || err == nil && blocks != nil && h.isFirst() {
			return expand(&stream, blocks)
		}
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block{head: h})
		stream.Write(payload)
	}
}

// block is a block of a group that was read.
type block struct {
	head    blockHead
	records []byte
}

// expand sets the records of the blocks.
func expand(stream io.Reader, blocks []block) ([]block, error) {
	in := flate.NewReader(stream)
	for i := range blocks {
		var out bytes.Buffer
		if _, err := io.CopyN(&out, in, int64(blocks[i].head.expanded)); err != nil {
			return nil, fmt.Errorf("expand a block: %w", errors.Join(errDamaged, err))
		}
		blocks[i].records = out.Bytes()
	}
	return blocks, nil
}

// Kinds of records.
const (
	putRecord     = 'p'
	editedRecord  = 'e' // a put of which the store may have another value, see Options.Keep
	deletedRecord = 'd'
)

// record is a change of a key, or a key of a snapshot.
type record struct {
	kind byte
	kv   store.KV // without a value: deleted
}

func appendRecord(b []byte, r record) []byte {
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, uint64(r.kv.ModRevision))
	b = binary.AppendUvarint(b, uint64(r.kv.CreateRevision))
	b = appendField(b, r.kv.Key)
	if r.kind != deletedRecord {
		b = appendField(b, r.kv.Value)
	}
	return b
}

func appendField[T string | []byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// reader reads records. Values share its memory.
type reader struct {
	rest   []byte
	failed bool
}

// next returns the next record; false: there is none, or it is damaged, which failed says.
func (r *reader) next() (record, bool) {
	if len(r.rest) == 0 {
		return record{}, false
	}
	one := record{kind: r.rest[0]}
	r.rest = r.rest[1:]
	one.kv.ModRevision, one.kv.CreateRevision = int64(r.number()), int64(r.number())
	one.kv.Key = string(r.field())
	switch one.kind {
	case putRecord, editedRecord:
		one.kv.Value = r.field()
	case deletedRecord:
	default:
		r.failed = true
	}
	return one, !r.failed
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) field() []byte {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, nil
		return nil
	}
	field := r.rest[:n:n]
	r.rest = r.rest[n:]
	return field
}

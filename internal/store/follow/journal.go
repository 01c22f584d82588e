package follow

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/store"
)

// Journal is a file with what a Follower delivered last: a full update, then each change. It serves
// a later start while the store is unavailable. It is not synced: after a crash of the machine it
// may lack the latest changes, but never half of one.
//
//	file    = header, block…
//	header  = block of JSON
//	block   = length, CRC-32C of the payload (4 bytes each, little endian), payload
//	payload = record…, all of whole revisions
//	record  = 't' seconds | 'p' create mod lease key value | 'd' key | 'c' revision
//
// Numbers are uvarints, strings have their length before.
//
// The first block of records is the full update. Each begins with 't', the Unix time of writing,
// and ends with 'c'. What follows the last whole block is ignored.
type Journal struct {
	file  string
	owner string

	open       *os.File
	size, base int64 // of the file: now, and after the last rewrite
	gap        bool  // a change could not be appended
}

// journalFormat is raised when older programs cannot read the files. Files of format 1 have no 't'.
const journalFormat = 2

// mostBlock bounds a block that is read: ample for a full update of some million keys.
const mostBlock = 1 << 30

// leastGrowth is the growth at which a small file is rewritten.
const leastGrowth = 4 << 20

// NewJournal returns the journal with this name in a directory, or nil without a directory. owner
// is its user, such as the host's id: another owner's journal is ignored.
func NewJournal(dir, name, owner string) *Journal {
	if dir == "" {
		return nil
	}
	return &Journal{file: filepath.Join(dir, name+".journal"), owner: owner}
}

// journalHeader is the first block of a file.
type journalHeader struct {
	Format  int
	Owner   string
	Cluster uint64
	Term    uint64
}

// journalContents is the contents of a journal.
type journalContents struct {
	identity  store.Identity
	confirmed time.Time
	keys      map[string]store.KV
	written   time.Time // time of the last whole block; zero in format 1
	whole     int64     // bytes up to the end of it
	lost      int64     // bytes after it
	damaged   bool      // what is lost is more than an end that was not wholly written
}

// read returns the contents of the file, or nil if there is none for this owner.
func (j *Journal) read() (*journalContents, error) {
	f, err := os.Open(j.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	k, err := readJournal(bufio.NewReaderSize(f, 1<<20), j.owner)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.file, err)
	}
	if k == nil {
		return nil, nil
	}
	k.confirmed, k.lost = info.ModTime(), info.Size()-k.whole
	if k.lost > 0 && !k.written.IsZero() {
		k.confirmed = k.written // the file was touched for the sake of what is lost
	}
	return k, nil
}

// readJournal reads a journal up to its last whole block. It returns nil if it has another owner or
// no full update.
func readJournal(r io.Reader, owner string) (*journalContents, error) {
	raw, err := readBlock(r)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var h journalHeader
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if h.Format < 1 || h.Format > journalFormat || h.Owner != owner {
		return nil, nil
	}
	k := &journalContents{identity: store.Identity{Cluster: h.Cluster, Term: h.Term}, keys: map[string]store.KV{}, whole: int64(8 + len(raw))}
	for {
		block, err := readBlock(r)
		if err != nil {
			k.damaged = !isTail(r, err)
			break
		}
		if err := k.apply(block); err != nil {
			return nil, err
		}
		k.whole += int64(8 + len(block))
	}
	if k.identity.Revision == 0 {
		return nil, nil
	}
	return k, nil
}

// isTail reports whether a block that could not be read for err is the last one in the file.
func isTail(r io.Reader, err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	n, _ := io.CopyN(io.Discard, r, 1)
	return n == 0
}

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errChecksum = errors.New("wrong checksum")
	errRecord   = errors.New("not a record")
)

func readBlock(r io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length > mostBlock {
		return nil, fmt.Errorf("block of %d bytes", length)
	}
	// Not all at once, since a broken file may have any length here.
	var payload bytes.Buffer
	if n, err := io.CopyN(&payload, r, int64(length)); n < int64(length) {
		return nil, err
	}
	if crc32.Checksum(payload.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errChecksum
	}
	return payload.Bytes(), nil
}

// block fills in length and checksum of a payload that begins with 8 bytes for them.
func block(payload []byte) []byte {
	binary.LittleEndian.PutUint32(payload, uint32(len(payload)-8))
	binary.LittleEndian.PutUint32(payload[4:], crc32.Checksum(payload[8:], castagnoli))
	return payload
}

// apply applies the records of a block.
func (k *journalContents) apply(b []byte) error {
	r := records{b}
	for len(r.rest) > 0 {
		kind := r.rest[0]
		r.rest = r.rest[1:]
		switch kind {
		case 'p':
			kv := store.KV{CreateRevision: int64(r.number()), ModRevision: int64(r.number()), Lease: store.Lease(r.number())}
			kv.Key, kv.Value = string(r.bytes()), r.bytes()
			k.keys[kv.Key] = kv
		case 'd':
			delete(k.keys, string(r.bytes()))
		case 't':
			k.written = time.Unix(int64(r.number()), 0)
		case 'c':
			k.identity.Revision = int64(r.number())
		default:
			return errRecord
		}
		if r.rest == nil {
			return errRecord
		}
	}
	return nil
}

// records reads the fields of records. rest is nil after an incomplete field.
type records struct{ rest []byte }

func (r *records) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *records) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.rest = nil
	}
	if r.rest == nil {
		return nil
	}
	field := r.rest[:n:n]
	r.rest = r.rest[n:]
	return field
}

// beginBlock returns room for a block's head, and the time.
func beginBlock() []byte {
	return binary.AppendUvarint(append(make([]byte, 8), 't'), uint64(time.Now().Unix()))
}

func appendPut(b []byte, kv store.KV) []byte {
	b = append(b, 'p')
	b = binary.AppendUvarint(b, uint64(kv.CreateRevision))
	b = binary.AppendUvarint(b, uint64(kv.ModRevision))
	b = binary.AppendUvarint(b, uint64(kv.Lease))
	b = appendBytes(b, kv.Key)
	return appendBytes(b, kv.Value)
}

func appendBytes[T string | []byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// replace rewrites the file.
func (j *Journal) replace(id store.Identity, all []store.KV) error {
	header, err := json.Marshal(journalHeader{Format: journalFormat, Owner: j.owner, Cluster: id.Cluster, Term: id.Term})
	if err != nil {
		return err
	}
	b := beginBlock()
	for _, kv := range all {
		b = appendPut(b, kv)
	}
	b = binary.AppendUvarint(append(b, 'c'), uint64(id.Revision))
	if len(b) > mostBlock {
		j.gap = true
		return fmt.Errorf("%s: %d keys take more than %d bytes", j.file, len(all), mostBlock)
	}
	return j.rewrite(block(append(make([]byte, 8), header...)), block(b))
}

func (j *Journal) rewrite(blocks ...[]byte) (err error) {
	j.close()
	j.gap = true // until it is written
	if err := os.MkdirAll(filepath.Dir(j.file), 0o700); err != nil {
		return err
	}
	next, err := os.OpenFile(j.file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, next.Close(), os.Remove(next.Name()))
		}
	}()
	size := int64(0)
	for _, b := range blocks {
		n, err := next.Write(b)
		if err != nil {
			return err
		}
		size += int64(n)
	}
	if err := next.Sync(); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), j.file); err != nil {
		return err
	}
	j.open, j.size, j.base, j.gap = next, size, size, false
	return nil
}

// append adds a change. A file that has outgrown its contents is rewritten from them.
func (j *Journal) append(c store.Change) error {
	if j.gap {
		return nil // already reported; confirm sees to it
	}
	if j.open == nil { // the follower resumed from what was read
		if err := j.resume(); err != nil {
			j.gap = true
			return err
		}
	}
	b := beginBlock()
	for _, e := range c.Events {
		if e.Deleted {
			b = appendBytes(append(b, 'd'), e.Key)
		} else {
			b = appendPut(b, e.KV)
		}
	}
	b = block(binary.AppendUvarint(append(b, 'c'), uint64(c.Revision)))
	if _, err := j.open.WriteAt(b, j.size); err != nil {
		j.gap = true
		return errors.Join(err, j.open.Truncate(j.size))
	}
	j.size += int64(len(b))
	if j.size > leastGrowth+2*j.base {
		return j.shrink()
	}
	return nil
}

// resume opens the file to continue after its last whole block.
func (j *Journal) resume() error {
	f, err := os.OpenFile(j.file, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	whole := int64(0)
	r := bufio.NewReaderSize(f, 1<<20)
	for b, err := readBlock(r); err == nil; b, err = readBlock(r) {
		whole += 8 + int64(len(b))
	}
	if err := f.Truncate(whole); err != nil {
		return errors.Join(err, f.Close())
	}
	j.open, j.size, j.base = f, whole, whole
	return nil
}

// shrink rewrites the file from its own contents.
func (j *Journal) shrink() error {
	k, err := j.read()
	if err == nil && (k == nil || k.lost > 0) {
		err = errRecord
	}
	if err != nil {
		j.gap = true
		return err
	}
	return j.replace(k.identity, byKey(k.keys))
}

// confirm records that the contents are current, and reports whether missing changes could be
// written now.
func (j *Journal) confirm() (relist bool) {
	if !j.gap {
		now := time.Now()
		// Only the age that a later start logs depends on it.
		_ = os.Chtimes(j.file, now, now)
		return false
	}
	probe := j.file + ".new"
	err := os.WriteFile(probe, make([]byte, max(j.size, 1)), 0o600)
	return errors.Join(err, os.Remove(probe)) == nil
}

func (j *Journal) close() {
	if j.open != nil {
		// Nothing is lost if it fails: the file has all that was written.
		_ = j.open.Close()
		j.open = nil
	}
}

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

	"heddle/internal/store/etcd"
)

// Journal is a file that holds what a Follower delivered last: a full update, then each change. It is written without
// waiting for the disk, as it only serves a later start while the store cannot be reached: after a crash of the machine
// it may lack the latest changes, but it never holds half of one.
//
//	file   = header, block…          block  = length, CRC-32C of the payload (4 bytes each, little endian), payload
//	header = block of JSON           payload = record…, all of whole revisions
//	record = 't' seconds | 'p' create mod lease key value | 'd' key | 'c' revision      (numbers are uvarints, strings have their length before)
//
// The first block of records is the full update; each begins with 't', the Unix time at which it was written, and ends with
// 'c'. What follows the last whole block is ignored.
type Journal struct {
	file  string
	owner string

	open       *os.File
	size, base int64 // of the file: now, and when it was last written anew
	gap        bool  // a change could not be appended
}

// journalFormat is raised when older programs cannot read the files any more. Files of format 1 have no 't'.
const journalFormat = 2

// mostBlock bounds a block that is read: a full update of some million keys.
const mostBlock = 1 << 30

// leastGrowth is how much the file may grow before it is written anew, however small its contents are.
const leastGrowth = 4 << 20

// NewJournal returns the journal with this name in a directory, which is made when it is needed; nil without a directory.
// owner says whom it is for, such as the host's id: the journal of another owner is ignored.
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

// kept is the contents of a journal.
type kept struct {
	identity  etcd.Identity
	confirmed time.Time
	keys      map[string]etcd.KV
	written   time.Time // the last whole block; zero if that does not tell
	whole     int64     // bytes up to the end of it
	lost      int64     // bytes after it
	damaged   bool      // what is lost is more than an end that was not wholly written
}

// read returns the contents of the file, or nil if there is none for this owner.
func (j *Journal) read() (*kept, error) {
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

// readJournal reads a journal up to its last whole block. nil: it belongs to another owner or holds no full update.
func readJournal(r io.Reader, owner string) (*kept, error) {
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
	k := &kept{identity: etcd.Identity{Cluster: h.Cluster, Term: h.Term}, keys: map[string]etcd.KV{}, whole: int64(8 + len(raw))}
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

// isTail reports whether a block that could not be read for err is the last thing in the file: the end itself, or a block
// that was not wholly written.
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
	// Not all at once: the length of a broken file says nothing.
	var payload bytes.Buffer
	if n, err := io.CopyN(&payload, r, int64(length)); n < int64(length) {
		return nil, err
	}
	if crc32.Checksum(payload.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errChecksum
	}
	return payload.Bytes(), nil
}

// block puts length and checksum before a payload that begins with 8 bytes of room for them.
func block(payload []byte) []byte {
	binary.LittleEndian.PutUint32(payload, uint32(len(payload)-8))
	binary.LittleEndian.PutUint32(payload[4:], crc32.Checksum(payload[8:], castagnoli))
	return payload
}

// apply applies the records of a block.
func (k *kept) apply(b []byte) error {
	r := records{b}
	for len(r.rest) > 0 {
		kind := r.rest[0]
		r.rest = r.rest[1:]
		switch kind {
		case 'p':
			kv := etcd.KV{CreateRevision: int64(r.number()), ModRevision: int64(r.number()), Lease: etcd.Lease(r.number())}
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

// records reads the fields of records. After a field that is not whole, rest is nil.
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

func appendPut(b []byte, kv etcd.KV) []byte {
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

// replace writes the file anew.
func (j *Journal) replace(id etcd.Identity, all []etcd.KV) error {
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

// append adds a change. When the file has grown far beyond its contents it is written anew from them.
func (j *Journal) append(c etcd.Change) error {
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

// resume opens the file to go on after its last whole block.
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

// shrink writes the file anew from its own contents.
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

// confirm notes that the contents are current, and reports whether changes are missing that could be written now.
func (j *Journal) confirm() (relist bool) {
	if !j.gap {
		now := time.Now()
		// Only the age that a later start reports rests on it.
		_ = os.Chtimes(j.file, now, now)
		return false
	}
	probe := j.file + ".new"
	err := os.WriteFile(probe, make([]byte, max(j.size, 1)), 0o600)
	return errors.Join(err, os.Remove(probe)) == nil
}

func (j *Journal) close() {
	if j.open != nil {
		// What was written is in the file already; there is nothing to lose.
		_ = j.open.Close()
		j.open = nil
	}
}

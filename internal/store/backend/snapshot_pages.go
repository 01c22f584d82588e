package backend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// checkPages reads all keys and values of a database. What bbolt panics at, or finds outside of
// the file that it maps into memory, is an error. The checks of etcd's tools come later: they read
// pages in goroutines of their own, where no panic can be recovered.
func checkPages(file string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("bad page: %v", r)
		}
	}()
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if err := checkTree(file, tx, db.Info().PageSize); err != nil {
			return fmt.Errorf("bad page %w", err)
		}
		read := crc32.NewIEEE()
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			roles := bytes.Equal(name, schema.AuthRoles.Name())
			return b.ForEach(func(key, value []byte) error {
				read.Write(key)
				read.Write(value)
				if roles {
					return proto.Unmarshal(value, new(authpb.Role)) // etcd may read them long after its start
				}
				return nil
			})
		})
	})
}

// checkTree returns an error unless the pages of a database are a tree of sorted keys inside of the
// file.
func checkTree(file string, tx *bbolt.Tx, pageSize int) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if tx.Size() > info.Size() {
		return fmt.Errorf("the database has %d bytes, the file %d", tx.Size(), info.Size())
	}
	tree := pageTree{file: f, pageSize: int64(pageSize), seen: make([]bool, tx.Size()/int64(pageSize))}
	_, err = tree.visit(uint64(tx.Cursor().Bucket().Root()), bounds{}, mostLevels)
	return err
}

// mostLevels bounds the levels of pages, of which a database of terabytes has about ten.
const mostLevels = 64

// pageTree visits a database's pages by their references. bbolt trusts these: it would follow a
// circle for ever, and visit a page as often as others refer to it. It reports keys out of order
// from a goroutine that may outlive its database.
type pageTree struct {
	file     io.ReaderAt
	pageSize int64
	seen     []bool // by page
}

// bounds limit the keys of a page: from low on, and below high. nil: without a limit.
type bounds struct{ low, high []byte }

// visit visits a page and at most so many levels below it. It returns the last key.
func (t *pageTree) visit(id uint64, keys bounds, levels int) (last []byte, err error) {
	page, err := t.read(id)
	if err == nil {
		last, err = t.walk(page, keys, levels)
	}
	if bad := new(badPage); err != nil && !errors.As(err, &bad) {
		err = &badPage{id, err}
	}
	return last, err
}

// badPage is an error of a page, and of none of those above it.
type badPage struct {
	id  uint64
	err error
}

func (b *badPage) Error() string { return fmt.Sprintf("%d: %v", b.id, b.err) }

// walk visits what is below a page that was read.
func (t *pageTree) walk(page []byte, keys bounds, levels int) (last []byte, err error) {
	elements, err := parsePage(page)
	if err != nil {
		return nil, err
	}
	if levels == 0 {
		return nil, errors.New("too many pages are above it")
	}
	last = keys.low
	for i, e := range elements {
		order := bytes.Compare(last, e.key)
		if order > 0 || order == 0 && i > 0 || keys.high != nil && bytes.Compare(e.key, keys.high) >= 0 {
			return nil, fmt.Errorf("key %d is out of order", i)
		}
		last = e.key
		switch {
		case e.child != 0:
			below := bounds{e.key, keys.high}
			if i+1 < len(elements) {
				below.high = elements[i+1].key
			}
			last, err = t.visit(e.child, below, levels-1)
		case e.bucket != 0:
			_, err = t.visit(e.bucket, bounds{}, levels-1)
		case e.inline != nil:
			_, err = t.walk(e.inline, bounds{}, levels-1)
		}
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

// A page of bbolt's is a header and elements, and then what these refer to, by its offset from the
// element. A bucket's value is a header too, with the bucket's first page, or 0 and that page.
//
//	page     id 8, flags 2, count 2, overflow 4: pages that follow and belong to it
//	branch   offset of a key 4, size of the key 4, page 8
//	leaf     flags 4, offset of a key and its value 4, size of the key 4, size of the value 4
//	bucket   page 8, sequence 8
const (
	headerSize  = 16
	elementSize = 16
	branchPage  = 1 // flags of a page
	leafPage    = 2
	bucketFlag  = 1 // of a leaf's element
)

// read returns a page that was not visited before, with those that belong to it.
func (t *pageTree) read(id uint64) ([]byte, error) {
	if id >= uint64(len(t.seen)) {
		return nil, errors.New("it is not in the file")
	}
	header := make([]byte, headerSize)
	if _, err := t.file.ReadAt(header, int64(id)*t.pageSize); err != nil {
		return nil, err
	}
	if own := binary.NativeEndian.Uint64(header); own != id {
		return nil, fmt.Errorf("it says that it is page %d", own)
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(header[12:]))
	if id+pages > uint64(len(t.seen)) {
		return nil, errors.New("its end is not in the file")
	}
	for i := id; i < id+pages; i++ {
		if t.seen[i] {
			return nil, errors.New("two others refer to it, or it to itself")
		}
		t.seen[i] = true
	}
	page := make([]byte, int64(pages)*t.pageSize)
	_, err := t.file.ReadAt(page, int64(id)*t.pageSize)
	return page, err
}

// element is an element of a page.
type element struct {
	key           []byte
	child, bucket uint64 // the page below a branch, and the first one of a bucket; 0: none
	inline        []byte // the only page of a small bucket
}

// parsePage returns the elements of a page.
func parsePage(page []byte) ([]element, error) {
	kind, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	var parse func([]byte) (element, error)
	switch kind {
	case branchPage:
		parse = parseBranch
	case leafPage:
		parse = parseLeaf
	default:
		return nil, fmt.Errorf("its kind, %#x, is not one of a tree", kind)
	}
	if headerSize+count*elementSize > len(page) {
		return nil, fmt.Errorf("%d elements do not fit into it", count)
	}
	if count == 0 && kind == branchPage {
		return nil, errors.New("it is a branch without a page")
	}
	elements := make([]element, count)
	for i := range elements {
		var err error
		if elements[i], err = parse(page[headerSize+i*elementSize:]); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return elements, nil
}

// parseBranch returns the element of a branch at the beginning of a text.
func parseBranch(text []byte) (e element, err error) {
	at, size := word(text, 0), word(text, 4)
	if at+size > uint64(len(text)) {
		return e, errors.New("its key is not in the page")
	}
	e.key, e.child = text[at:at+size], binary.NativeEndian.Uint64(text[8:])
	if e.child == 0 {
		return e, errors.New("it refers to the database's description")
	}
	return e, nil
}

// parseLeaf returns the element of a leaf at the beginning of a text.
func parseLeaf(text []byte) (e element, err error) {
	at, size := word(text, 4), word(text, 8)
	end := at + size + word(text, 12)
	if end > uint64(len(text)) {
		return e, errors.New("its key or value is not in the page")
	}
	e.key = text[at : at+size]
	if word(text, 0)&bucketFlag == 0 {
		return e, nil
	}
	value := text[at+size : end]
	if len(value) < headerSize {
		return e, errors.New("it is a bucket without a header")
	}
	if e.bucket = binary.NativeEndian.Uint64(value); e.bucket != 0 {
		return e, nil
	}
	if e.inline = value[headerSize:]; len(e.inline) < headerSize {
		return e, errors.New("it is a bucket without a page")
	}
	return e, nil
}

// word returns 4 bytes of a text as a number.
func word(text []byte, at int) uint64 { return uint64(binary.NativeEndian.Uint32(text[at:])) }

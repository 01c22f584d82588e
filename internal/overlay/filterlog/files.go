package filterlog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// file is the file of one log, or of one logging resource.
type file struct {
	*os.File
	size int64
}

// Folders of files.
const (
	groupFolder    = "security_group" // a file for each log
	firewallFolder = "firewall"       // a file for each logging resource
)

// fileOf returns the name of the file of a log or logging resource, below the directory of all.
func fileOf(folder, id string) string { return filepath.Join(folder, filepath.Base(id)+".log") }

// file returns the name of the file that the record goes to.
func (e *entry) file() string {
	if e.Resource != "" {
		return fileOf(firewallFolder, e.Resource)
	}
	return fileOf(groupFolder, e.Log)
}

func (w *Writer) path(name string) string { return filepath.Join(w.opts.Dir, name) }

// write writes a record. One that cannot be written is counted with those left out.
func (w *Writer) write(e entry) {
	err := w.tryWrite(&e)
	if err == nil {
		w.written.Add(1)
		w.noteRecovery()
		return
	}
	w.failed.Add(1)
	w.lost++
	w.lastFailure = w.opts.Now()
	w.mu.Lock()
	if s := w.shares[e.Log]; s != nil {
		s.suppressed += e.suppressed + 1
	}
	w.mu.Unlock()
	if now := w.lastFailure; now.Sub(w.warned) >= warnEvery {
		w.warned = now
		w.opts.Log.Warn("cannot write records of logs; packets go on", "log", e.Log, "err", err)
	}
}

// noteRecovery logs that records are written again, once none has failed for a while: on a disk
// that is nearly full some of them fit.
func (w *Writer) noteRecovery() {
	if w.lost == 0 || w.opts.Now().Sub(w.lastFailure) < soundAfter {
		return
	}
	w.opts.Log.Info("records of logs are written again", "lost", w.lost)
	w.lost, w.warned = 0, time.Time{}
}

// probeBytes is more than a disk that is full for records takes.
const probeBytes = 64 << 10

// CheckDir returns an error unless records can be written to a directory, which need not be there
// yet.
func CheckDir(dir string) error {
	f, err := os.CreateTemp(dir, ".check-*")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func (w *Writer) tryWrite(e *entry) error {
	line, err := e.line(w.opts.Host)
	if err != nil {
		return err
	}
	f, err := w.open(e.file())
	if err != nil {
		return err
	}
	if f.size > 0 && f.size+int64(len(line)) > w.fileMost {
		if f, err = w.rotate(e.file()); err != nil {
			return err
		}
	}
	if n, err := f.Write(line); err != nil {
		if n > 0 { // no half of a line stays
			err = errors.Join(err, f.Truncate(f.size))
		}
		return err
	}
	f.size += int64(len(line))
	return nil
}

// open returns the file of that name.
func (w *Writer) open(name string) (*file, error) {
	if f := w.files[name]; f != nil {
		return f, nil
	}
	if len(w.files) >= openMost {
		w.closeAll()
	}
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, err
	}
	size, err := trim(opened)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	f := &file{opened, size}
	w.files[name] = f
	return f, nil
}

// trim removes half of a line from the end of a file, which an agent or a machine has left that
// was killed while it wrote: the next line would continue it. It returns the size in bytes.
func trim(f *os.File) (size int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = st.Size()
	tail := make([]byte, min(size, lineMost))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return 0, err
	}
	half := len(tail) - 1 - bytes.LastIndexByte(tail, '\n')
	if half == 0 || half == lineMost { // no agent has written that
		return size, nil
	}
	size -= int64(half)
	return size, f.Truncate(size)
}

// rotate puts a full file aside, as the first of the older ones, and opens another.
func (w *Writer) rotate(name string) (*file, error) {
	w.close(name)
	path := w.path(name)
	for i := filesMost - 1; i >= 1; i-- {
		for _, tail := range []string{".gz", ""} {
			if err := age(path, i, tail); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
	}
	older := path + ".1"
	if err := os.Rename(path, older); err != nil {
		return nil, err
	}
	if err := compress(older); err != nil { // it stays as it is
		w.opts.Log.Warn("cannot compress a file of records", "file", older, "err", err)
	}
	return w.open(name)
}

// age makes older file i the next one, or removes the last.
func age(path string, i int, tail string) error {
	name := fmt.Sprintf("%s.%d%s", path, i, tail)
	if i == filesMost-1 {
		return os.Remove(name)
	}
	return os.Rename(name, fmt.Sprintf("%s.%d%s", path, i+1, tail))
}

// compress replaces a file by a compressed one.
func compress(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	name := path + ".gz"
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	if err = errors.Join(err, z.Close(), to.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return os.Remove(path)
}

func (w *Writer) close(name string) {
	f := w.files[name]
	if f == nil {
		return
	}
	delete(w.files, name)
	if err := f.Close(); err != nil {
		w.opts.Log.Warn("cannot close a file of records", "file", w.path(name), "err", err)
	}
}

func (w *Writer) closeAll() {
	for name := range w.files {
		w.close(name)
	}
}

// closeSome closes the files of what is gone, and all if they are to be opened again.
func (w *Writer) closeSome() {
	w.mu.Lock()
	gone, all := w.gone, w.reopen
	w.gone, w.reopen = nil, false
	w.mu.Unlock()
	for _, name := range gone {
		w.close(name)
	}
	if all {
		w.closeAll()
	}
}

package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/store"
	"heddle/internal/task"
)

// etcd exits when it cannot write its log or its database. So an embedded store stops accepting
// writes before its disk is full, and reserves blocks for what etcd writes all the same, such as
// the end of a lease: those of its log's segments, which etcd allocates ahead, diskAhead in the
// database, and diskReserve in a file that is released when other programs fill the disk.
const (
	diskStop    = 152 << 20 // free bytes below which nothing is accepted: a segment of the log of 64 MiB may come yet, and leaves diskDelete
	diskDelete  = 72 << 20  // the same for calls that may use the reserve: see [WithReserve]
	diskResume  = 16 << 20  // so much more has to be free before writes are accepted again
	diskReserve = 80 << 20
	diskAhead   = 32 << 20
	diskLast    = 8 << 20 // free bytes below which the reserve is released
	diskEvery   = 500 * time.Millisecond
	// diskFresh bounds the age of a reading of the free space.
	diskFresh = 20 * time.Millisecond
)

// disk watches the file system of an embedded store.
type disk struct {
	dir, database string
	size          func() int64 // of the database
	log           *slog.Logger

	free   atomic.Int64
	readAt atomic.Int64 // Unix time in ns of free
	full   atomic.Bool
	resume atomic.Int64 // free bytes from which writes are accepted again

	allocated int64 // bytes of the database that have blocks
	reserved  bool
}

func newDisk(o Embedded, log *slog.Logger) *disk {
	d := &disk{dir: o.DataDir, database: filepath.Join(o.etcdDir(), "member", "snap", "db"), log: log}
	d.resume.Store(diskStop + diskResume + diskReserve) // no reserve has been made yet
	return d
}

// prepare releases the reserve for etcd's start if the disk is full.
func (d *disk) prepare() error {
	free, err := d.readFree()
	if err != nil {
		return err
	}
	if free < diskStop {
		d.full.Store(true)
		d.log.Error("the disk is nearly full; starting without accepting writes", "directory", d.dir, "free", free)
		return d.release()
	}
	return nil
}

// DiskFree returns how many bytes are free in a directory's file system.
func DiskFree(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// FullDisk returns the free bytes of the disk and those from which writes are accepted again, while
// this server rejects writes because of its disk. ok is false otherwise.
func (s *Etcd) FullDisk() (free, needed int64, ok bool) {
	if s.member == nil || s.member.disk == nil || s.member.checkDisk(context.Background()) == nil {
		return 0, 0, false
	}
	d := s.member.disk
	return d.free.Load(), d.resume.Load(), true
}

// CheckDisk returns an error if a server with this data directory would reject writes.
func CheckDisk(dir string) error {
	free, err := DiskFree(dir)
	if err == nil && free < diskStop {
		err = fmt.Errorf("%w: the disk of %s has %d MiB free; below %d MiB a server accepts no writes: make room there", store.ErrFull, dir, free>>20, diskStop>>20)
	}
	return err
}

// readFree reads the free space.
func (d *disk) readFree() (free int64, err error) {
	if free, err = DiskFree(d.dir); err != nil {
		return 0, err
	}
	d.free.Store(free)
	d.readAt.Store(time.Now().UnixNano())
	return free, nil
}

// check returns an error while the disk is too full for writes.
func (d *disk) check(ctx context.Context) error {
	free := d.free.Load()
	if time.Now().UnixNano()-d.readAt.Load() > int64(diskFresh) {
		if now, err := d.readFree(); err == nil {
			free = now
		}
	}
	reserve := store.UsesReserve(ctx)
	if free >= diskStop && !d.full.Load() || free >= diskDelete && reserve || store.UsesLastReserve(ctx) {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %d MiB free, and below %d MiB reading alone goes on: make room there; once %d MiB are free, writes are accepted again by themselves, a second or two later",
		store.ErrFull, d.dir, free>>20, diskStop>>20, d.resume.Load()>>20)
}

// run keeps the reserves until ctx ends.
func (d *disk) run(ctx context.Context) {
	for more := true; more; more = task.Pause(ctx, diskEvery) {
		if err := d.keep(); err != nil {
			d.log.Debug("cannot keep reserves on the disk", "err", err)
		}
	}
}

// keep adapts the reserves to the free space.
func (d *disk) keep() error {
	free, err := d.readFree()
	if err != nil {
		return err
	}
	missing := int64(0)
	if !d.reserved {
		missing = diskReserve
	}
	d.resume.Store(diskStop + diskResume + missing)
	switch {
	case free < diskLast && d.reserved:
		d.full.Store(true)
		err = d.release()
	case free < diskStop && !d.full.Load():
		d.full.Store(true)
		d.log.Error("the disk is nearly full; accepting no writes", "directory", d.dir, "free", free)
	case free >= d.resume.Load() && d.full.Load():
		err = errors.Join(d.reserve(), d.allocateAhead())
		d.full.Store(false)
		d.log.Info("the disk has space again; accepting writes", "directory", d.dir, "free", free)
	case !d.full.Load() && free >= diskStop+missing:
		err = d.reserve()
	}
	if free >= diskStop {
		err = errors.Join(err, d.allocateAhead())
	}
	return err
}

// reserve makes the reserve unless it exists.
func (d *disk) reserve() error {
	if d.reserved {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(d.dir, "reserve"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = allocate(f, 0, diskReserve)
	d.reserved = err == nil
	return errors.Join(err, f.Close())
}

// release returns the reserve's blocks to the file system.
func (d *disk) release() error {
	d.reserved = false
	err := os.Truncate(filepath.Join(d.dir, "reserve"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// allocateAhead allocates blocks for the database's growth. Defragmenting drops them.
func (d *disk) allocateAhead() error {
	size := d.size()
	if d.allocated-diskAhead <= size && size+diskAhead/2 < d.allocated {
		return nil
	}
	f, err := os.OpenFile(d.database, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = allocate(f, unix.FALLOC_FL_KEEP_SIZE, size+diskAhead)
	if err == nil {
		d.allocated = size + diskAhead
	}
	return errors.Join(err, f.Close())
}

// allocate allocates the first bytes of a file, if the file system can.
func allocate(f *os.File, mode uint32, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), mode, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

package store

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
)

// etcd ends its process when it cannot write its log or its database. So an embedded store stops accepting writes before
// its disk is full, and holds blocks for what etcd writes all the same, such as the end of a lease: those of its log's
// segments, which etcd allocates ahead, diskAhead in the database, and diskReserve in a file of its own, which is
// released when another program has taken the last of the disk: a snapshot and the next segment fit in there.
const (
	diskStop    = 152 << 20 // free bytes below which nothing is accepted: a segment of the log of 64 MiB may come yet, and leaves diskDelete
	diskDelete  = 72 << 20  // the same for calls that may use the reserve: see [WithReserve]
	diskResume  = 16 << 20  // so much more has to be free before writes are accepted again
	diskReserve = 80 << 20
	diskAhead   = 32 << 20
	diskLast    = 8 << 20 // free bytes below which the reserve is released
	diskEvery   = 500 * time.Millisecond
	// diskFresh is how long one look at the disk is believed.
	diskFresh = 20 * time.Millisecond
)

// disk watches the file system of an embedded store.
type disk struct {
	dir, database string
	size          func() int64 // of the database
	log           *slog.Logger

	free   atomic.Int64
	looked atomic.Int64 // Unix time in ns of free
	full   atomic.Bool

	allocated int64 // bytes of the database that have blocks
	reserved  bool
}

func newDisk(o Embedded, log *slog.Logger) *disk {
	return &disk{dir: o.DataDir, database: filepath.Join(o.etcdDir(), "member", "snap", "db"), log: log}
}

// prepare makes room for etcd's start: with a full disk that is what the reserve holds.
func (d *disk) prepare() error {
	free, err := d.look()
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

// DiskFree returns how many bytes are free in the file system of a directory.
func DiskFree(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// CheckDisk returns an error if a server with this data directory would accept no writes, since its disk is nearly full.
func CheckDisk(dir string) error {
	free, err := DiskFree(dir)
	if err == nil && free < diskStop {
		err = fmt.Errorf("%w: the disk of %s has %d MiB free; below %d MiB a server accepts no writes", ErrFull, dir, free>>20, diskStop>>20)
	}
	return err
}

// look asks the file system how much is free.
func (d *disk) look() (free int64, err error) {
	if free, err = DiskFree(d.dir); err != nil {
		return 0, err
	}
	d.free.Store(free)
	d.looked.Store(time.Now().UnixNano())
	return free, nil
}

// check returns an error while the disk is too full for writes.
func (d *disk) check(ctx context.Context) error {
	free := d.free.Load()
	if time.Now().UnixNano()-d.looked.Load() > int64(diskFresh) {
		if now, err := d.look(); err == nil {
			free = now
		}
	}
	reserve := ctx.Value(reserveKey{}) != nil
	if free >= diskStop && !d.full.Load() || free >= diskDelete && reserve {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %d MiB free, and %d MiB are kept for reading to go on: make room there; writes are accepted again by themselves",
		ErrFull, d.dir, free>>20, diskStop>>20)
}

// run keeps the reserves until ctx ends.
func (d *disk) run(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		if err := d.keep(); err != nil {
			d.log.Debug("could not keep reserves on the disk", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keep does what the state of the disk asks for.
func (d *disk) keep() error {
	free, err := d.look()
	if err != nil {
		return err
	}
	missing := int64(0)
	if !d.reserved {
		missing = diskReserve
	}
	switch {
	case free < diskLast && d.reserved:
		d.full.Store(true)
		err = d.release()
	case free < diskStop && !d.full.Load():
		d.full.Store(true)
		d.log.Error("the disk is nearly full; accepting no writes", "directory", d.dir, "free", free)
	case free >= diskStop+diskResume+missing && d.full.Load():
		err = errors.Join(d.reserve(), d.ahead())
		d.full.Store(false)
		d.log.Info("the disk has space again; accepting writes", "directory", d.dir, "free", free)
	case !d.full.Load() && free >= diskStop+missing:
		err = d.reserve()
	}
	if free >= diskStop {
		err = errors.Join(err, d.ahead())
	}
	return err
}

// reserve makes the reserve if it is not there.
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

// release gives the reserve's blocks back to the file system.
func (d *disk) release() error {
	d.reserved = false
	err := os.Truncate(filepath.Join(d.dir, "reserve"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// ahead sees that the database has blocks for what it grows by next. Defragmenting makes it anew.
func (d *disk) ahead() error {
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

// allocate gives the first bytes of a file blocks. A file system that cannot has none kept.
func allocate(f *os.File, mode uint32, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), mode, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

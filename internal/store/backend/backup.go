package backend

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"heddle/internal/store"
)

// Backup writes a snapshot of the store, as etcd's own tools do, and verifies the hash at its end.
func (s *Etcd) Backup(ctx context.Context, w io.Writer) error {
	r, err := s.client.SnapshotWithVersion(s.as(ctx))
	if err != nil {
		return explain(ctx, "snapshot", err)
	}
	defer r.Snapshot.Close()
	check := &hashTail{w: w, sum: sha256.New()}
	if _, err := io.Copy(check, r.Snapshot); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if !bytes.Equal(check.sum.Sum(nil), check.tail) {
		return errors.New("write backup: the snapshot that came from etcd is not whole")
	}
	return nil
}

// hashTail copies a snapshot, whose last bytes are the hash of all before them.
type hashTail struct {
	w    io.Writer
	sum  hash.Hash
	tail []byte
}

func (h *hashTail) Write(p []byte) (int, error) {
	h.tail = append(h.tail, p...)
	if n := len(h.tail) - sha256.Size; n > 0 {
		h.sum.Write(h.tail[:n])
		h.tail = append(h.tail[:0], h.tail[n:]...)
	}
	return h.w.Write(p)
}

// revisionBump raises the revision of a restored store, so that agents that have seen newer
// revisions than the backup's do not wait for them, but list again.
const revisionBump = 1_000_000_000

// Restore makes the store in dataDir from a backup, and starts it once to verify it. It rejects a
// damaged file, and a directory that has a store.
func Restore(ctx context.Context, file, dataDir string, log *slog.Logger) error {
	if _, err := checkSnapshot(file); err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	return restore(ctx, file, dataDir, log, func(*Etcd) error { return nil })
}

// restore is Restore of a file that was checked, with a look at the restored store before it is
// closed.
func restore(ctx context.Context, file, dataDir string, log *slog.Logger, inspect func(*Etcd) error) error {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	o := Embedded{DataDir: dataDir}
	lock, err := o.lock()
	if err != nil {
		return err
	}
	m := &member{lock: lock}
	defer m.close()
	if _, err := os.Stat(o.etcdDir()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("restore into %s: it has a store already: move %s away first", dataDir, o.etcdDir())
	}
	unfinished := o.etcdDir() + ".restoring"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := m.startFrom(ctx, file, unfinished, o.config(log), log); err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	s := m.client(log)
	if err = o.recallAuthority(ctx, s); err == nil {
		err = inspect(s)
	}
	s.client.Close()
	m.etcd.Close()
	m.etcd = nil
	if err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	return os.Rename(unfinished, o.etcdDir())
}

// startFrom makes a member's directory from a file that was checked, and starts it there. etcd
// panics at records of its own that are bad, which it reads in the caller's goroutine.
func (m *member) startFrom(ctx context.Context, file, dir string, config *embed.Config, log *slog.Logger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w (bad record of etcd: %v)", errDamaged, r)
		}
	}()
	err = snapshot.NewV3(zap.New(slogCore{log})).Restore(snapshot.RestoreConfig{
		SnapshotPath:        file,
		Name:                memberName,
		OutputDataDir:       dir,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: memberName,
		RevisionBump:        revisionBump,
		MarkCompacted:       true,
	})
	if err != nil {
		return err
	}
	config.Dir = dir
	config.ListenClientUrls = nil
	if err := m.start(ctx, config); err != nil {
		return fmt.Errorf("the restored store does not start: %w", err)
	}
	return nil
}

// errDamaged is the error about a file that no store can be restored from.
var errDamaged = errors.New("the file is damaged, or no snapshot of a store: use another backup")

// checkSnapshot returns the revision of the store in a file, or an error unless that is a whole
// snapshot: sound pages of a database, and their hash.
func checkSnapshot(file string) (revision int64, err error) {
	if err := checkHash(file); err != nil {
		return 0, err
	}
	if err := checkPages(file); err != nil {
		return 0, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	return status.Revision, nil
}

// checkHash returns an error unless a file ends with the hash of all before it.
func checkHash(file string) error {
	info, err := os.Stat(file) // before it is opened: that of a FIFO waits
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no regular file: name a file that heddle backup has written")
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	check := &hashTail{w: io.Discard, sum: sha256.New()}
	if info.Size()%snapshotUnit == sha256.Size {
		if _, err := io.Copy(check, f); err != nil {
			return err
		}
	}
	if !bytes.Equal(check.sum.Sum(nil), check.tail) {
		return errDamaged
	}
	return nil
}

// snapshotUnit divides the size of a database, as etcd's tools have it.
const snapshotUnit = 512

// OpenDataDir connects to the embedded store in dataDir as root, through its server or else by
// opening it: for commands of the server's machine that need no running server.
func OpenDataDir(ctx context.Context, o Embedded, log *slog.Logger) (*Etcd, error) {
	o.Existing = true
	s, err := Open(ctx, Options{Embedded: &o, Log: log})
	if !errors.Is(err, ErrInUse) {
		return s, err
	}
	return OpenRunning(ctx, o.DataDir, log)
}

// runningTimeout bounds the wait for a store that runs, and may have no majority.
const runningTimeout = 10 * time.Second

// OpenRunning connects as root to the server that has the embedded store in dataDir open: for
// commands on its machine. Errors are those of [Running]; a store that does not answer, as without
// a majority of its members, is [store.ErrUnavailable], too.
func OpenRunning(ctx context.Context, dataDir string, log *slog.Logger) (*Etcd, error) {
	c, err := Running(dataDir)
	if err != nil {
		return nil, err
	}
	attempt, cancel := context.WithTimeout(ctx, runningTimeout)
	defer cancel()
	st, err := Open(attempt, Options{Cluster: &c, Log: log})
	if err != nil && attempt.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("store in %s: %w: it does not answer within %s: of the servers of a cluster more than half must run: heddle status says what to do: %w",
			dataDir, store.ErrUnavailable, runningTimeout, err)
	}
	return st, err
}

// OpenLocal is [OpenRunning] for agents: they use the other members of the server's cluster while
// it is down, or after it was removed. [LocalEndpoints] tells which there are later.
func OpenLocal(ctx context.Context, dataDir string, log *slog.Logger) (*Etcd, error) {
	o := Embedded{DataDir: dataDir}
	others := o.memberStores()
	c, err := Running(dataDir)
	if errors.Is(err, store.ErrUnavailable) && len(others) > 0 {
		c, err = o.secure(), nil
	}
	if err != nil {
		return nil, err
	}
	if c.CAFile != "" {
		c.Endpoints = append(c.Endpoints, others...)
	}
	return Open(ctx, Options{Cluster: &c, Log: log})
}

// LocalEndpoints returns the addresses that [OpenLocal] uses for a server with --agents-listen: of
// its socket, and of the members of its cluster as it has known them last.
func LocalEndpoints(dataDir string) []string {
	o := Embedded{DataDir: dataDir}
	return append(o.secure().Endpoints, o.memberStores()...)
}

// secure returns how programs of this machine reach a store that serves other hosts.
func (o Embedded) secure() Cluster {
	return Cluster{SkipLimits: true, embedded: true, Endpoints: []string{"unixs://" + o.tlsSocket()}, CAFile: o.caCert(), CertFile: o.rootCert(), KeyFile: o.rootKey()}
}

// Running returns how programs of this machine reach the server that has the embedded store in
// dataDir open, as root. Without a server the error is [store.ErrUnavailable], or a [MovedError].
func Running(dataDir string) (Cluster, error) {
	o := Embedded{DataDir: dataDir}
	plain := Cluster{SkipLimits: true, embedded: true, Endpoints: []string{"unix://" + o.socket()}}
	for socket, c := range map[string]Cluster{o.socket(): plain, o.tlsSocket(): o.secure()} {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return c, nil
		}
	}
	if moved := o.readMoved(); moved != nil {
		return Cluster{}, moved
	}
	return Cluster{}, fmt.Errorf("store in %s: %w: no server has it open", dataDir, store.ErrUnavailable)
}

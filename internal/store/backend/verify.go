package backend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Table sums up the keys of a store that begin alike, such as those of all networks.
type Table struct {
	Prefix string   `json:"prefix"` // such as /heddle/neutron/networks/
	Keys   int      `json:"keys"`
	Bytes  int64    `json:"bytes"` // of keys and values
	Sum    [32]byte `json:"-"`     // SHA-256 of keys and values, in their order
}

// pageKeys bounds the keys read at once. A page of the largest records has some 100 MiB.
const pageKeys = 100

// Tables sums up the whole store as it was at a revision, 0 for now, in the order of prefixes.
func (s *Etcd) Tables(ctx context.Context, revision int64) ([]Table, error) {
	sums := tableSums{}
	for kv, err := range s.keys(ctx, revision) {
		if err != nil {
			return nil, err
		}
		sums.add(string(kv.Key), kv.Value)
	}
	return sums.tables(), nil
}

// keys returns all keys as they were at a revision, 0 for now, in order; last an error, if any.
func (s *Etcd) keys(ctx context.Context, revision int64) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		from := "\x00"
		for {
			r, err := s.client.Get(s.as(ctx), from, clientv3.WithFromKey(), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
			if err != nil {
				yield(nil, explain(ctx, fmt.Sprintf("read all keys at revision %d", revision), err))
				return
			}
			if revision == 0 {
				revision = r.Header.Revision // all pages are of the first one's
			}
			for _, kv := range r.Kvs {
				if !yield(kv, nil) {
					return
				}
			}
			if !r.More {
				return
			}
			from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
		}
	}
}

// tableSums sums up tables by their prefixes.
type tableSums map[string]*tableSum

type tableSum struct {
	keys  int
	bytes int64
	hash  hash.Hash
}

// add adds a key, after all keys before it in order.
func (t tableSums) add(key string, value []byte) {
	prefix := tablePrefix(key)
	sum := t[prefix]
	if sum == nil {
		sum = &tableSum{hash: sha256.New()}
		t[prefix] = sum
	}
	sum.keys++
	sum.bytes += int64(len(key) + len(value))
	for _, part := range [][]byte{[]byte(key), value} {
		sum.hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		sum.hash.Write(part)
	}
}

func (t tableSums) tables() (all []Table) {
	for _, prefix := range slices.Sorted(maps.Keys(t)) {
		all = append(all, Table{prefix, t[prefix].keys, t[prefix].bytes, [sha256.Size]byte(t[prefix].hash.Sum(nil))})
	}
	return all
}

// tablePrefix returns the first three parts of a key's path, without its last part.
func tablePrefix(key string) string {
	parts := strings.SplitAfter(key, "/")
	if len(parts) == 1 {
		return key
	}
	return strings.Join(parts[:min(len(parts)-1, 4)], "")
}

// Verified describes a backup that was restored for a trial.
type Verified struct {
	Revision int64   `json:"revision"` // of the store when the backup was made
	Tables   []Table `json:"tables"`
}

// Keys returns the number of keys in all tables.
func (v Verified) Keys() (n int) {
	for _, t := range v.Tables {
		n += t.Keys
	}
	return n
}

// VerifyBackup restores a backup into a temporary directory beside it, starts the store there, and
// sums up what it has. The caller has entered the file's directory by [EnterBackupDir].
func VerifyBackup(ctx context.Context, file string, log *slog.Logger) (v Verified, err error) {
	v.Revision, err = inspectBackup(ctx, file, log, func(s *Etcd) (err error) {
		v.Tables, err = s.Tables(ctx, 0)
		return err
	})
	return v, err
}

// inspectBackup restores a backup into a temporary directory beside it, starts the store there
// without listening anywhere, and calls inspect. It returns the backup's revision.
func inspectBackup(ctx context.Context, file string, log *slog.Logger, inspect func(*Etcd) error) (revision int64, err error) {
	if revision, err = backupRevision(file); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), trialDir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return revision, restore(ctx, file, dir, log, inspect)
}

// CompareBackup verifies a backup that was just made of this store: it restores it for a trial, and
// compares every table with the store's at the backup's revision. before is a revision that the
// store had before: where the last changes were deletions whose history is dropped, the file has no
// trace of them.
func (s *Etcd) CompareBackup(ctx context.Context, file string, before int64, log *slog.Logger) (Verified, error) {
	revision, err := backupRevision(file)
	if err != nil {
		return Verified{}, err
	}
	want, err := s.Tables(ctx, max(revision, before)) // first: the store drops history
	if err != nil {
		return Verified{}, err
	}
	v, err := VerifyBackup(ctx, file, log)
	if err == nil {
		err = compareTables(v.Tables, want)
	}
	return v, err
}

// compareTables returns an error that names the tables which differ.
func compareTables(got, want []Table) error {
	restored := map[string]Table{}
	for _, t := range got {
		restored[t.Prefix] = t
	}
	var wrong []string
	for _, t := range want {
		if r := restored[t.Prefix]; r != t {
			r.Prefix = t.Prefix
			wrong = append(wrong, fmt.Sprintf("%s: %d keys restored, %d in the store, sums %x and %x", t.Prefix, r.Keys, t.Keys, r.Sum[:4], t.Sum[:4]))
		}
		delete(restored, t.Prefix)
	}
	for _, t := range restored {
		wrong = append(wrong, fmt.Sprintf("%s: %d keys restored, none in the store", t.Prefix, t.Keys))
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("what was restored is not what the store has:\n%s", strings.Join(wrong, "\n"))
}

// backupRevision returns the revision of the store that is in a whole backup.
func backupRevision(file string) (int64, error) {
	revision, err := checkSnapshot(file)
	if err != nil {
		return 0, fmt.Errorf("verify %s: %w", file, err)
	}
	return revision, nil
}

// The files of a data directory whose times are those of the last backup made and verified, and of
// the last drill.
const backupMadeFile, backupVerifiedFile, backupDrillFile = "backup-made", "backup-verified", "backup-drill"

// NoteBackup notes in a data directory that its store was backed up now, and whether the backup was
// verified.
func NoteBackup(dataDir string, verified bool) error {
	names := []string{backupMadeFile}
	if verified {
		names = append(names, backupVerifiedFile)
	}
	for _, name := range names {
		if err := writeFile(filepath.Join(dataDir, name), nil); err != nil {
			return err
		}
	}
	return nil
}

// NoteDrill notes in a data directory that a drill with a backup of its store succeeded now.
func NoteDrill(dataDir string) error {
	return errors.Join(writeFile(filepath.Join(dataDir, backupVerifiedFile), nil), writeFile(filepath.Join(dataDir, backupDrillFile), nil))
}

// LastDrill returns when the last drill with a backup of a data directory succeeded. The zero Time
// is never.
func LastDrill(dataDir string) time.Time { return modified(filepath.Join(dataDir, backupDrillFile)) }

// LastBackups returns when the last backup of a data directory was made, and when the last was
// verified. The zero Time is never.
func LastBackups(dataDir string) (made, verified time.Time) {
	return modified(filepath.Join(dataDir, backupMadeFile)), modified(filepath.Join(dataDir, backupVerifiedFile))
}

// modified returns when a file was written, the zero Time if there is none.
func modified(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

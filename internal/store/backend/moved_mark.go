package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/store"
)

// movedKey marks an embedded store that was moved into a cluster. It is not copied.
const movedKey = "/heddle-moved"

// movedFile has a copy of the mark beside the database, for those who do not open the store.
const movedFile = "moved.json"

// MovedError reports that an embedded store was moved into a cluster and is out of date.
type MovedError struct {
	DataDir   string    `json:"-"`
	Endpoints []string  `json:"endpoints"` // of the cluster
	At        time.Time `json:"at"`
}

func (e *MovedError) Error() string {
	to := strings.Join(e.Endpoints, ",")
	return fmt.Sprintf("the store in %s was moved on %s to the etcd cluster at %s and is out of date: start heddle serve with --etcd-endpoints %s, "+
		"and back up the cluster with etcdctl snapshot save; only if the cluster is given up, heddle move --undo --data %s makes this store the current one again",
		e.DataDir, e.At.Format(time.RFC3339), to, to, e.DataDir)
}

// MarkMoved marks an embedded store as moved to a cluster. From then on it opens only with
// [Embedded.Moved].
func (s *Etcd) MarkMoved(ctx context.Context, endpoints []string, at time.Time) error {
	value, err := json.Marshal(MovedError{Endpoints: endpoints, At: at.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if _, err = s.Commit(ctx, nil, []store.Op{{Key: movedKey, Value: value}}); err != nil || s.member == nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.member.etcd.Config().Dir, movedFile), value, 0o600)
}

// UnmarkMoved makes a moved store the current one again. It returns the mark, or nil.
func (s *Etcd) UnmarkMoved(ctx context.Context) (*MovedError, error) {
	moved, err := s.moved(ctx)
	if moved != nil {
		_, err = s.Commit(ctx, nil, []store.Op{{Key: movedKey, Delete: true}})
	}
	if err == nil && s.member != nil {
		err = os.RemoveAll(filepath.Join(s.member.etcd.Config().Dir, movedFile))
	}
	return moved, err
}

// readMoved returns the mark of a moved store that no server has open, or nil.
func (o Embedded) readMoved() *MovedError {
	raw, err := os.ReadFile(filepath.Join(o.etcdDir(), movedFile))
	moved := &MovedError{DataDir: o.DataDir}
	if err != nil || json.Unmarshal(raw, moved) != nil {
		return nil
	}
	return moved
}

// moved returns the mark of a moved store, or nil.
func (s *Etcd) moved(ctx context.Context) (*MovedError, error) {
	kv, err := s.Get(ctx, movedKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	moved := &MovedError{}
	if err == nil {
		err = json.Unmarshal(kv.Value, moved)
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", movedKey, err)
	}
	return moved, nil
}

// checkMoved returns a [MovedError] if the store was moved.
func (o Embedded) checkMoved(ctx context.Context, s *Etcd) error {
	moved, err := s.moved(ctx)
	if moved == nil {
		return err
	}
	moved.DataDir = o.DataDir
	return moved
}

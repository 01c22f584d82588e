package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"heddle/internal/store"
)

// movedKey marks an embedded store that was moved into a cluster. It is not copied.
const movedKey = "/heddle-moved"

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
	_, err = s.Commit(ctx, nil, []store.Op{{Key: movedKey, Value: value}})
	return err
}

// UnmarkMoved makes a moved store the current one again. It returns the mark, or nil.
func (s *Etcd) UnmarkMoved(ctx context.Context) (*MovedError, error) {
	moved, err := s.moved(ctx)
	if moved != nil {
		_, err = s.Commit(ctx, nil, []store.Op{{Key: movedKey, Delete: true}})
	}
	return moved, err
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

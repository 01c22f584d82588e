package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// movedKey marks an embedded store that was moved into a cluster. It lies outside of what is copied.
const movedKey = "/heddle-moved"

// MovedError reports that an embedded store was moved into a cluster, so that what it holds is out of date.
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

// MarkMoved records in an embedded store that it was moved to the cluster at these endpoints. It opens from then on only
// with [Embedded.Moved].
func (s *Etcd) MarkMoved(ctx context.Context, endpoints []string, at time.Time) error {
	value, err := json.Marshal(MovedError{Endpoints: endpoints, At: at.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, nil, []Op{{Key: movedKey, Value: value}})
	return err
}

// UnmarkMoved makes a moved store the current one again, and returns where to and when it was moved; nil: it was not marked.
func (s *Etcd) UnmarkMoved(ctx context.Context) (*MovedError, error) {
	kv, err := s.Get(ctx, movedKey)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	moved := &MovedError{}
	if err := json.Unmarshal(kv.Value, moved); err != nil {
		return nil, fmt.Errorf("key %s: %w", movedKey, err)
	}
	_, err = s.Commit(ctx, nil, []Op{{Key: movedKey, Delete: true}})
	return moved, err
}

// checkMoved returns a [MovedError] if the store was moved.
func (o Embedded) checkMoved(ctx context.Context, s *Etcd) error {
	kv, err := s.Get(ctx, movedKey)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	moved := &MovedError{DataDir: o.DataDir}
	if err := json.Unmarshal(kv.Value, moved); err != nil {
		return fmt.Errorf("key %s: %w", movedKey, err)
	}
	return moved
}

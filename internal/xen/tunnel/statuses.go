package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"

	"heddle/internal/task"
	"heddle/internal/xen/client"
)

// writers is the number of statuses that are written at once.
const writers = 4

// statuses is a queue of tunnels' statuses to write. Its methods may be called from any goroutine.
type statuses struct {
	log   *slog.Logger
	added task.Notice

	mu      sync.Mutex
	queue   []string                     // tunnels, each once
	desired map[string]map[string]string // by tunnel
	written map[string]map[string]string // last, by tunnel, until there is an event
}

func newStatuses(log *slog.Logger) *statuses {
	return &statuses{log: log, added: task.NewNotice(), desired: map[string]map[string]string{}, written: map[string]map[string]string{}}
}

// set has a tunnel's status written if it differs from the actual one, that of the XenAPI.
func (s *statuses) set(tunnel string, desired, actual map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ours := s.written[tunnel]
	if !ours {
		last = actual
	}
	if maps.Equal(desired, last) {
		delete(s.desired, tunnel)
		return
	}
	if _, queued := s.desired[tunnel]; !queued {
		s.queue = append(s.queue, tunnel)
	}
	s.desired[tunnel] = desired
	s.added.Give()
}

// forget drops what was written last to a tunnel, after an event with its status or an error.
func (s *statuses) forget(tunnel string) {
	s.mu.Lock()
	delete(s.written, tunnel)
	s.mu.Unlock()
}

// take returns the next one to write.
func (s *statuses) take() (tunnel string, status map[string]string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		tunnel = s.queue[0]
		s.queue = s.queue[1:]
		if status, ok = s.desired[tunnel]; ok {
			delete(s.desired, tunnel)
			s.written[tunnel] = status
			return tunnel, status, true
		}
	}
	return "", nil, false
}

// write writes through a session until ctx ends or the XenAPI cannot be reached. It calls failed
// for tunnels whose status could not be written.
func (s *statuses) write(ctx context.Context, session *client.Session, failed func(tunnel string)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				tunnel, status, ok := s.take()
				if !ok {
					select {
					case <-ctx.Done():
					case <-s.added:
					}
					continue
				}
				s.wakeNext()
				_, err := session.Call(ctx, "tunnel.set_status", tunnel, status)
				if err == nil {
					continue
				}
				s.forget(tunnel)
				failed(tunnel)
				if client.Code(err) == "" {
					stop(err)
				} else if client.Code(err) != "HANDLE_INVALID" { // it is gone
					s.log.Warn("a status is refused", "tunnel", tunnel, "err", err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// wakeNext wakes another writer, if there is more to write.
func (s *statuses) wakeNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		s.added.Give()
	}
}

package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"heddle/internal/task"
	"heddle/internal/xen/client"
	"heddle/internal/xen/star"
)

// fade is how long a status that says less, without an error, is held back: legs that are made anew are back by then.
const fade = time.Second

// writers is how many statuses are written at once.
const writers = 4

// say has the statuses of a network's tunnels written where they are not true.
func (e *engine) say(n *star.Network, in star.Intent, refs []string, now time.Time) {
	net := e.nets[n.UUID]
	for i, st := range star.Statuses(n, in, e)[:len(refs)] {
		tunnel, want := refs[i], st.Map()
		have := e.pool.status(tunnel)
		if st.Active || st.Error != "" || !n.Members[i].Attached || have["active"] != "true" {
			delete(net.fading, tunnel)
		} else {
			since, ok := net.fading[tunnel]
			if !ok {
				since = now
				net.fading[tunnel] = now
			}
			if now.Before(since.Add(fade)) {
				e.reconsider(n.UUID, since.Add(fade))
				continue
			}
		}
		e.statuses.want(tunnel, want, have)
	}
}

// statuses are to be written. Its methods may be called from any goroutine.
type statuses struct {
	log  *slog.Logger
	kick task.Notice

	mu      sync.Mutex
	queue   []string                     // tunnels, each once
	wanted  map[string]map[string]string // by tunnel
	written map[string]map[string]string // last, by tunnel, until the XenAPI tells
}

func newStatuses(log *slog.Logger) *statuses {
	return &statuses{log: log, kick: task.NewNotice(), wanted: map[string]map[string]string{}, written: map[string]map[string]string{}}
}

// want says what a tunnel's status shall be, and what the XenAPI says it is.
func (s *statuses) want(tunnel string, want, have map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ours := s.written[tunnel]
	if maps.Equal(want, have) && (!ours || maps.Equal(last, have)) {
		delete(s.wanted, tunnel)
		return
	}
	if ours && maps.Equal(want, last) {
		delete(s.wanted, tunnel)
		return
	}
	if _, queued := s.wanted[tunnel]; !queued {
		s.queue = append(s.queue, tunnel)
	}
	s.wanted[tunnel] = want
	s.kick.Give()
}

// told says that the XenAPI has told what a tunnel's status is, or has not taken ours.
func (s *statuses) told(tunnel string) {
	s.mu.Lock()
	delete(s.written, tunnel)
	s.mu.Unlock()
}

// take is the next one to write.
func (s *statuses) take() (tunnel string, status map[string]string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		tunnel = s.queue[0]
		s.queue = s.queue[1:]
		if status, ok = s.wanted[tunnel]; ok {
			delete(s.wanted, tunnel)
			s.written[tunnel] = status
			return tunnel, status, true
		}
	}
	return "", nil, false
}

// write writes through a session until ctx ends or the XenAPI cannot be reached. failed is told of tunnels whose status
// could not be written.
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
					case <-s.kick:
					}
					continue
				}
				s.again()
				_, err := session.Call(ctx, "tunnel.set_status", tunnel, status)
				if err == nil {
					continue
				}
				s.told(tunnel)
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

// again wakes another writer, if there is more to write.
func (s *statuses) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		s.kick.Give()
	}
}

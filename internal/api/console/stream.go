package console

import (
	"net/http"
	"sync"
	"time"

	"heddle/internal/api"
)

const (
	// heartbeat is the longest time without a word to a client of a stream, and streamWait bounds
	// how long it may take to receive one.
	heartbeat  = 15 * time.Second
	streamWait = 30 * time.Second
)

// stream is an answer that goes on: each text goes to the client at once.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// newStream begins an answer of a media type.
func newStream(w http.ResponseWriter, kind string) (*stream, error) {
	s := &stream{w, http.NewResponseController(w)}
	if err := s.control.SetReadDeadline(time.Time{}); err != nil { // of the request, which lasts
		return nil, err
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold it back
	w.WriteHeader(http.StatusOK)
	return s, s.send("")
}

func (s *stream) send(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWait)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// seats bounds the clients of a kind of streams.
type seats struct {
	mu    sync.Mutex
	taken int
}

// take counts a client until leave is called; it refuses those beyond the most.
func (s *seats) take(most int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= most {
		return nil, api.Errorf(http.StatusTooManyRequests, "%d clients read this from the server already: ask again later", most)
	}
	s.taken++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
	}, nil
}

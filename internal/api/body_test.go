package api_test

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"

	"heddle/internal/api"
)

// TestLongCalls: where handlers wait after they have read a body, one client's requests are in them
// at the same time.
func TestLongCalls(t *testing.T) {
	t.Parallel()
	var inside sync.WaitGroup
	inside.Add(2)
	_, addr := serve(t, api.Options{MaxBody: 64 << 10, LongCalls: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			api.WriteError(w, r, err)
			return
		}
		inside.Done()
		inside.Wait()
		api.WriteJSON(w, http.StatusOK, n)
	})})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			res, err := http.Post("http://"+addr, "text/plain", bytes.NewReader(make([]byte, 60<<10)))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || string(body) != "61440" {
				t.Errorf("%d %s, %v", res.StatusCode, body, err)
			}
		})
	}
	clients.Wait()
}

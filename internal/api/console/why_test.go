package console

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"heddle/internal/api"
)

// TestWhoMayAsk: members and readers ask within their project, and users without one or without a
// role do not. Of the port, which has no address, administrators hear that, and tenants that it is
// not there.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	for _, tt := range []struct {
		token string
		want  int
	}{{"admin", http.StatusConflict}, {"member", http.StatusForbidden}, {"tenant", http.StatusNotFound}, {"stranger", http.StatusForbidden}} {
		if status, text := w.postTo(t, "/v1/why", tt.token, `{"from":"`+boundPort+`","to":"198.51.100.7"}`); status != tt.want {
			t.Errorf("as %s: %d, want %d: %s", tt.token, status, tt.want, text)
		}
	}
}

// TestQuestions: a user has few questions in flight, whatever others have.
func TestQuestions(t *testing.T) {
	t.Parallel()
	q := inFlight{byUser: map[string]int{}}
	var ends []func()
	for range mostQuestions {
		end, err := q.begin("u")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	var refused *api.Error
	if _, err := q.begin("u"); !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests {
		t.Errorf("one too many: %v", err)
	}
	if end, err := q.begin("other"); err != nil {
		t.Errorf("another user: %v", err)
	} else {
		end()
	}
	ends[0]()
	if _, err := q.begin("u"); err != nil {
		t.Errorf("after the end of one: %v", err)
	}
}

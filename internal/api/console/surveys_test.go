package console

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// TestQuestionsSideBySide: questions about many machines, about single connections, and changes
// come at any time.
func TestQuestionsSideBySide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	var all sync.WaitGroup
	for path, body := range map[string]string{
		"/v1/reach": `{"by":"network","port":22}`, "/v1/why": `{"from":"` + boundPort + `","to":"198.51.100.7"}`,
		"/v1/reach/assert": `{"rules":[{"never":{"from":{"outside":true},"to":{"project":"none"}}}]}`,
	} {
		all.Go(func() {
			for range 20 {
				if status, answer := w.postTo(t, path, "admin", body); status >= http.StatusInternalServerError {
					t.Errorf("%s: %d %s", path, status, answer)
				}
			}
		})
	}
	for range 20 {
		w.update(t, func(tx *records.Tx) error {
			return schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: "g"}})
		})
	}
	all.Wait()
}

package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/topology/flow"
)

// TestFlowPosts: a host that does not know the secret of a subscription posts nothing to it, and
// one that says twice that it has posted all does not stand for another host.
func TestFlowPosts(t *testing.T) {
	t.Parallel()
	var s FlowStreams
	mux := http.NewServeMux()
	s.Register(mux)
	x := &flowReader{follow: true, queue: make(chan flow.FlowRecord, 2), ends: make(chan string, 2), ended: map[string]bool{}}
	s.add("one", &flowStream{host: "h1", secret: "known", reader: x})
	post := func(id, body string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/flow-subscriptions/"+id, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s to %s: %d %s, want %d", body, id, w.Code, w.Body, want)
		}
	}
	record := `{"secret":"known","records":[{"host":"other","verdict":"drop"}]}`
	post("one", `{"secret":"guessed","records":[{"verdict":"drop"}],"end":true}`, http.StatusNotFound)
	post("none", record, http.StatusNotFound)
	post("one", record, http.StatusOK)
	if r := <-x.queue; r.Host != "h1" || r.Verdict != "drop" {
		t.Errorf("a host posts as %q: %+v", r.Host, r)
	}
	for range 3 {
		post("one", `{"secret":"known","end":true}`, http.StatusOK)
	}
	if len(x.ends) != 1 {
		t.Errorf("one host has ended %d times", len(x.ends))
	}
	for range 4 {
		post("one", record, http.StatusOK)
	}
	if n := x.takeLost(); n != 2 {
		t.Errorf("of four records to a client that has room for two %d are lost", n)
	}
	<-x.queue
	<-x.queue
	for range 2 { // the answer to the first is lost
		post("one", `{"secret":"known","number":7,"records":[{"verdict":"drop"}]}`, http.StatusOK)
	}
	if len(x.queue) != 1 {
		t.Errorf("a post that comes again has %d records shown", len(x.queue))
	}
}

// TestSeats: clients beyond the most are refused until another one leaves.
func TestSeats(t *testing.T) {
	t.Parallel()
	var s seats
	var leave func()
	for range 16 {
		var err error
		if leave, err = s.take(16); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.take(16); err == nil || !strings.Contains(err.Error(), "16 clients read this from the server already") {
		t.Errorf("one more is answered %v", err)
	}
	leave()
	if _, err := s.take(16); err != nil {
		t.Error(err)
	}
}

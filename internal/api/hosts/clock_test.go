package hosts

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestClockSkew: the clock of the first server that answers is compared with.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	var apart time.Duration
	date := func() string { return time.Now().Add(apart).UTC().Format(http.TimeFormat) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date()) }))
	defer server.Close()
	c := Credentials{Pin: "00", Plain: true, Servers: []string{"http://127.0.0.1:1", server.URL}, CAFile: os.DevNull}
	const slack = time.Minute // of a busy machine
	for _, apart = range []time.Duration{0, -time.Hour} {
		skew, from, err := c.ClockSkew(t.Context())
		if err != nil || from != server.URL || (skew+apart).Abs() > slack {
			t.Errorf("a server %s apart: ahead by %s of %s, %v", apart, skew, from, err)
		}
	}
	date = func() string { return "noon" }
	if _, _, err := c.ClockSkew(t.Context()); err == nil {
		t.Error("took noon for a time")
	}
}

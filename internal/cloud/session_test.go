package cloud

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServerAway: an error of a refused connection says where to look.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	client := http.Client{Transport: refusalHint{http.DefaultTransport}}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	server.Close()
	answer, err = client.Get(server.URL)
	if err == nil {
		answer.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "systemctl status heddle") {
		t.Errorf("got %v, want a hint whether the server runs", err)
	}
}

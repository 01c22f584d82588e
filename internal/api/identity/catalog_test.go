package identity

import (
	"net/http/httptest"
	"testing"
)

// TestEndpointURL: a service without a URL is at its port of the host that the client came to, with
// TLS of its own if it has that.
func TestEndpointURL(t *testing.T) {
	r := httptest.NewRequest("GET", "http://192.0.2.1:5000/v3", nil)
	for _, c := range []struct {
		endpoint Endpoint
		want     string
	}{
		{Endpoint{URL: "https://cloud.example"}, "https://cloud.example"},
		{Endpoint{Path: "/v3"}, "http://192.0.2.1:5000/v3"},
		{Endpoint{Port: 9696}, "http://192.0.2.1:9696"},
		{Endpoint{Port: 9698, TLS: true}, "https://192.0.2.1:9698"},
	} {
		if got := c.endpoint.url(r); got != c.want {
			t.Errorf("%+v: %s, want %s", c.endpoint, got, c.want)
		}
	}
}

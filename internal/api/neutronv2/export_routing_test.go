package neutronv2

import "net/http"

// NewWithRouting is New with routers, floating IPs and firewalls.
func NewWithRouting(o Options) http.Handler {
	return New(o)
}

package neutronv2

import "net/http"

// NewWithRouters is New with routers.
func NewWithRouters(o Options) http.Handler { return New(o) }

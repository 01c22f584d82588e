// Package api holds what every HTTP API of Heddle shares: the server (TLS, limits, an orderly end),
// the request id, who is asking, the base URL to build links from, and error bodies in the form
// OpenStack's clients read.
//
// A request passes, in this order: Server (id, proxy headers, body limit, access hook, recovery
// from a panic), then RequireToken where a caller must be known, then the API's own routes.
package api

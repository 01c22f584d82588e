package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"heddle/internal/api"
)

//go:generate go test -count 1 -run ^TestDescription$ . -update
//go:generate web/build

// dist is the page that operators open in a browser, built from the TypeScript in web/src. The
// build is committed, so that building Heddle needs no Node; `make generate` rebuilds it to the
// same bytes.
//
//go:embed web/dist
var dist embed.FS

const distDir = "web/dist"

// pages are the addresses at which the page is served. It shows what its address names.
var pages = []string{"/{$}", "/ask", "/reach", "/changes", "/flows", "/drops", "/topology", "/hosts", "/hosts/{id}", "/ports/{id}", "/networks/{id}", "/routers/{id}", "/groups/{id}"}

// RegisterPage adds the page and the sessions of browsers to mux, which is not behind
// api.RequireToken.
func RegisterPage(mux *http.ServeMux, accounts Accounts) {
	index := newAsset("index.html")
	for _, p := range pages {
		mux.Handle("GET "+p, index)
	}
	entries, err := fs.ReadDir(dist, distDir)
	if err != nil {
		panic(err) // embedded: a mistake in the build
	}
	for _, e := range entries {
		mux.Handle("GET /assets/"+e.Name(), newAsset(e.Name()))
	}
	s := &sessions{accounts}
	mux.HandleFunc("POST /v1/session", api.Answering(guarded(s.logIn)))
	mux.HandleFunc("GET /v1/session", api.Answering(s.show))
	mux.HandleFunc("DELETE /v1/session", api.Answering(guarded(s.logOut)))
}

// protect sets the headers that keep an answer from being used by other pages, or for more than it
// is.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// asset is a file of the page.
type asset struct {
	kind, etag    string
	raw, squeezed []byte
}

func newAsset(name string) *asset {
	raw, err := dist.ReadFile(distDir + "/" + name)
	if err != nil {
		panic(err) // embedded: a mistake in the build
	}
	sum := sha256.Sum256(raw)
	return &asset{kind: mime.TypeByExtension(path.Ext(name)), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, raw: raw, squeezed: squeeze(raw)}
}

func squeeze(raw []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // a level that exists
	_, _ = w.Write(raw)                                   // to memory: no error
	_ = w.Close()
	return b.Bytes()
}

func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	protect(h)
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache") // ask whether it has changed, as it does with an upgrade
	h.Set("ETag", a.etag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := a.raw
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.squeezed
	}
	_, _ = w.Write(body) // a client that has gone is not our error
}

package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"heddle/internal/strictjson"
)

// Bounds on request bodies.
const (
	// freeBody is the size up to which bodies do not pass the gate; any other counts as leastLarge
	// at least, for what becomes of it is larger than it.
	freeBody   = 8 << 10
	leastLarge = 512 << 10
	// A large body waits gateWait for its turn; then the client is asked to retry after gateRetry.
	gateWait  = 10 * time.Second
	gateRetry = 5 * time.Second
	// largeReadTimeout bounds how long a client takes to send a large body, since others wait for
	// its room.
	largeReadTimeout = 20 * time.Second
	// drainBytes and drainTime bound how much of a body is read and thrown away after the answer. A
	// client that sends first and reads later would see a reset connection instead of its answer.
	drainBytes = 64 << 20
	drainTime  = 5 * time.Second
)

// requestBody is a request's body within the server's limits. It is not safe for concurrent use.
type requestBody struct {
	io.ReadCloser
	request *http.Request
	answer  http.ResponseWriter
	gate    *gate
	limit   int64 // bytes
	left    int64 // of the limit
	begun   bool
	touched bool // something was read from the client
	ended   bool // nothing is left to read
	err     error
	visit   *visit // of the gate; nil = not entered, or left
	keep    int    // most bytes of the beginning that are kept
	kept    []byte
	brief   bool        // leave the gate once the body is read
	slow    atomic.Bool // the body was cut off
}

// LimitBody lowers the limit on the size of r's body, before it is read.
func LimitBody(r *http.Request, limit int64) {
	if b, ok := r.Body.(*requestBody); ok && !b.begun && limit < b.limit {
		b.limit, b.left = limit, limit
	}
}

// Read reads the body, or returns *http.MaxBytesError when it is too large; of one that says its
// size without reading it.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.err == nil && !b.begun {
		b.begun = true
		b.err = b.begin()
	}
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	b.touched = true
	n, err := b.ReadCloser.Read(p)
	b.ended = err != nil
	if int64(n) > b.left {
		n, err = int(b.left), b.tooLarge()
	}
	b.left -= int64(n)
	b.kept = append(b.kept, p[:min(n, b.keep-len(b.kept))]...)
	if b.ended && b.visit != nil {
		b.gate.arrived(b.visit)
	}
	if err != nil && err != io.EOF && b.slow.Load() {
		b.ended = false // the client is sending still
		err = &Error{Status: http.StatusServiceUnavailable, RetryAfter: gateRetry,
			Message: "The request body arrived slowly, and other requests were waiting. Nothing was done: try again later."}
		b.giveBack()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = Errorf(http.StatusRequestTimeout, "The request body did not arrive in time. Nothing was done: send it faster, or in smaller requests.")
	}
	b.err = err
	if b.ended && b.brief {
		b.giveBack()
	}
	return n, err
}

// begin checks the size that the client announces and waits for room.
func (b *requestBody) begin() error {
	size := b.request.ContentLength
	if size > b.limit {
		return b.tooLarge()
	}
	if size < 0 {
		size = b.limit
	}
	if size <= freeBody {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.request.Context(), gateWait)
	defer cancel()
	control := http.NewResponseController(b.answer)
	cut := func() {
		b.slow.Store(true)
		_ = control.SetReadDeadline(time.Now())
	}
	visit, err := b.gate.enter(ctx, bodyOwner(b.request.Context()), max(size, leastLarge), cut)
	if err != nil {
		return &Error{Status: http.StatusServiceUnavailable, RetryAfter: gateRetry,
			Message: "The server is busy with other large requests. Nothing was done: try again later."}
	}
	b.visit = visit
	_ = control.SetReadDeadline(time.Now().Add(largeReadTimeout)) // tests' writers have none
	if b.slow.Load() {
		cut() // it was, before that
	}
	return nil
}

func (b *requestBody) tooLarge() error {
	if b.request.ProtoMajor == 1 {
		b.answer.Header().Set("Connection", "close") // what the client still sends is no request
	}
	return &http.MaxBytesError{Limit: b.limit}
}

// bodyOwner returns the key under which bodies share room: the token's project or user, or else the
// client's address.
func bodyOwner(ctx context.Context) string {
	q := of(ctx)
	switch {
	case q.who != nil && q.who.ProjectID != "":
		return "project " + q.who.ProjectID
	case q.who != nil:
		return "user " + q.who.UserID
	}
	return q.client.String()
}

// finish ends a request after its answer: it gives back the room and, when the client may still be
// sending, reads on for a while so that the answer reaches it.
func (b *requestBody) finish() {
	b.giveBack()
	if b.ended || !b.touched && b.announced() {
		return
	}
	control := http.NewResponseController(b.answer)
	if control.Flush() != nil {
		return
	}
	if control.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes) // a client that stops sending has its answer
}

// giveBack leaves the gate.
func (b *requestBody) giveBack() {
	if b.visit != nil {
		b.gate.leave(b.visit)
		b.visit = nil
	}
}

// announced reports whether the client waits for 100 Continue, which it did not get, before it
// sends its body.
func (b *requestBody) announced() bool {
	return strings.EqualFold(b.request.Header.Get("Expect"), "100-continue")
}

// DecodeBody reads a request's body whole, checking it against limits as it arrives, and runs
// decode on it; few decode at once, since a decoded body is many times as large. Its errors are
// decode's, those of [strictjson.Read], *http.MaxBytesError for a body that is too large, and
// *Error for one that did not arrive.
func DecodeBody(r *http.Request, limits strictjson.Limits, decode func(raw []byte) error) error {
	raw, err := strictjson.Read(bodyReader{r.Body}, max(0, min(r.ContentLength, defaultMaxBody)), limits)
	if err != nil {
		return err
	}
	if slots := of(r.Context()).decoding; slots != nil {
		slots <- struct{}{}
		defer func() { <-slots }()
	}
	return decode(raw)
}

// bodyReader turns the errors of a body that did not arrive into answers.
type bodyReader struct{ io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	var (
		own      *Error
		tooLarge *http.MaxBytesError
	)
	if err != nil && err != io.EOF && !errors.As(err, &own) && !errors.As(err, &tooLarge) {
		err = Errorf(http.StatusBadRequest, "The request body could not be read: %v", err)
	}
	return n, err
}

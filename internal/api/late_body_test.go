package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"

	"heddle/internal/strictjson"
)

// TestLateBody: a body that did not arrive in time is the client's error, not the store's.
func TestLateBody(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body = &requestBody{ReadCloser: io.NopCloser(iotest.ErrReader(os.ErrDeadlineExceeded)), request: r,
		answer: httptest.NewRecorder(), limit: 100, left: 100}
	err := DecodeBody(r, strictjson.Limits{}, func([]byte) error { return nil })
	var got *Error
	if !errors.As(err, &got) || got.Status != http.StatusRequestTimeout {
		t.Errorf("%v; want status 408", err)
	}
}

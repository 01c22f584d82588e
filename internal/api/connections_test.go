package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestConnections: connections without a request make room for new ones, the oldest first; those
// with one go on.
func TestConnections(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	s, err := NewServer(Options{Name: "test", Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				close(began)
				<-end
			}
		})})
	if err != nil {
		t.Fatal(err)
	}
	s.conns.most = 4
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	url := "http://" + s.Addr().String()
	long := make(chan error, 1)
	go func() {
		res, err := http.Get(url + "/long")
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("answered %s", res.Status)
		}
		long <- err
	}()
	<-began
	var quiet []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		quiet = append(quiet, c)
	}
	for i, c := range quiet[:17] { // three have a place beside the long request
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open: %v", i, err)
		}
	}
	client := &http.Client{Transport: &http.Transport{}} // with a connection of its own
	defer client.CloseIdleConnections()
	for range 2 {
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	close(end)
	if err := <-long; err != nil {
		t.Error("a request under way: ", err)
	}
}

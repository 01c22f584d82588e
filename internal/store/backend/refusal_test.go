package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"heddle/internal/store"
	"heddle/internal/store/etcd"
)

// TestIsRefusal: only what certainly was not proposed counts as refused.
func TestIsRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{rpctypes.ErrNoSpace, true}, {rpctypes.ErrGRPCNoSpace, true}, {rpctypes.ErrTooManyRequests, true}, {rpctypes.ErrNoLeader, true},
		{fmt.Errorf("x: %w", clientv3.ErrNoAvailableEndpoints), true},
		{rpctypes.ErrTimeout, false}, {rpctypes.ErrTimeoutDueToLeaderFail, false}, {rpctypes.ErrLeaderChanged, false}, {rpctypes.ErrStopped, false},
		{context.DeadlineExceeded, false}, {status.Error(codes.Unavailable, "error reading from server: EOF"), false},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), false},
	} {
		if got := etcd.IsRefusal(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

// TestConnected: where nobody listens the wait ends with the context, and nothing was sent.
func TestConnected(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if connected(ctx, client.ActiveConnection()) {
		t.Error("connected to a port where nobody listens")
	}
	_, err = newEtcd(client, nil, slog.New(slog.DiscardHandler)).Commit(ctx, nil, []store.Op{{Key: "a"}})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("commit: %v, want a refusal", err)
	}
	if !connected(ctx, nil) {
		t.Error("an in-process client needs a connection")
	}
}

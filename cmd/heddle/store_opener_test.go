package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/task"
)

// Agents do not wait for an attempt to open the store: they begin with what they kept, and get the
// store when it is open.
func TestAgentsBeginWhileTheStoreIsOpened(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	o := newOpener(func(ctx context.Context) (*backend.Etcd, error) {
		<-answer // it does not even give up when its time is over
		return backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: t.TempDir(), NoFsync: true}})
	}, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx, o) }()
	if _, err := o.store.Get(t.Context(), "/x"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("while the store is opened: %v", err)
	}
	close(answer)
	<-o.store.Opened()
	if _, err := o.store.Get(t.Context(), "/x"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("once it is open: %v", err)
	}
	stop()
	if err := errors.Join(<-done, o.store.Close()); err != nil {
		t.Error(err)
	}
}

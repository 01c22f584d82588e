package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	storefollow "heddle/internal/store/follow"
	"heddle/internal/task"
)

// controllersFile is the authority of tunnel controllers, beside a host's credentials.
const controllersFile = "controllers-ca.crt"

// controllersPause is the time between attempts to write the authority.
const controllersPause = time.Second

// controllersCA keeps a file with the authority of tunnel controllers as the store has it. It is a task.
type controllersCA struct {
	store   store.Store
	file    string
	log     *slog.Logger
	changed func() // called when the file has come or changed
	ready   chan struct{}
}

func newControllersCA(st store.Store, file string, log *slog.Logger, changed func()) *controllersCA {
	return &controllersCA{store: st, file: file, log: log, changed: changed, ready: make(chan struct{})}
}

func (c *controllersCA) String() string         { return "authority of tunnel controllers" }
func (c *controllersCA) Ready() <-chan struct{} { return c.ready }

// Run follows the store until ctx ends.
func (c *controllersCA) Run(ctx context.Context) error {
	close(c.ready)
	f := storefollow.New(storefollow.Options{Store: c.store, Prefixes: []string{store.ControllersAuthorityKey}, Log: c.log})
	failed := ""
	return f.Run(ctx, func(ctx context.Context, u storefollow.Update) {
		err := c.refresh(u)
		if err == nil {
			failed = ""
			return
		}
		if text := err.Error(); text != failed {
			c.log.Warn("cannot write the authority of tunnel controllers, will try again", "err", err)
			failed = text
		}
		task.Pause(ctx, controllersPause)
		f.Relist()
	})
}

// refresh writes the file if the store has something else. An authority that is gone changes nothing.
func (c *controllersCA) refresh(u storefollow.Update) error {
	var now []byte
	for _, kv := range u.All {
		if kv.Key == store.ControllersAuthorityKey {
			now = kv.Value
		}
	}
	for _, e := range u.Events {
		if e.Key == store.ControllersAuthorityKey {
			now = e.Value
		}
	}
	if len(now) == 0 {
		return nil
	}
	if had, err := os.ReadFile(c.file); err == nil && bytes.Equal(had, now) {
		return nil
	}
	if err := api.WriteFile(c.file, now); err != nil {
		return err
	}
	c.changed()
	return nil
}

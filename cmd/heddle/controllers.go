package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
)

// controllersFile is the authority of tunnel controllers, beside a host's credentials.
const controllersFile = "controllers-ca.crt"

// controllersPause is the time between attempts to read the authority.
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

// refresh writes the file if the store has something else.
func (c *controllersCA) refresh(ctx context.Context) error {
	kv, err := c.store.Get(ctx, store.ControllersAuthorityKey)
	if err != nil {
		return err
	}
	if had, err := os.ReadFile(c.file); err == nil && bytes.Equal(had, kv.Value) {
		return nil
	}
	if err := api.WriteFile(c.file, kv.Value); err != nil {
		return err
	}
	c.changed()
	return nil
}

// Run follows the store until ctx ends.
func (c *controllersCA) Run(ctx context.Context) error {
	close(c.ready)
	said := ""
	for ctx.Err() == nil {
		rev, err := c.store.Revision(ctx)
		if err == nil {
			err = c.refresh(ctx)
		}
		if err == nil {
			said = ""
			watch, stop := context.WithCancel(ctx)
			changes, _ := c.store.Watch(watch, rev, store.ControllersAuthorityKey)
			<-changes
			stop()
			continue
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			c.log.Warn("cannot read the authority of tunnel controllers, will try again", "err", err)
			said = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(controllersPause):
		}
	}
	return nil
}

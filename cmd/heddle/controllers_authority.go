package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	storefollow "heddle/internal/store/follow"
	"heddle/internal/task"
)

// controllersFile holds the authority of tunnel controllers, next to a host's credentials.
const controllersFile = "controllers-ca.crt"

// controllersPause is the pause between attempts to write the file.
const controllersPause = time.Second

// controllersCA keeps a file with the authority of tunnel controllers up to date.
type controllersCA struct {
	file    string
	changed func() // called when the file has come or changed
}

// newControllersCA returns the task that does so.
func newControllersCA(st store.Store, file string, log *slog.Logger, changed func()) task.Task {
	c := controllersCA{file, changed}
	return newLoop("authority of tunnel controllers", func(ctx context.Context) error {
		f := storefollow.New(storefollow.Options{Store: st, Prefixes: []string{backend.ControllersAuthorityKey}, Log: log})
		failed := ""
		return f.Run(ctx, func(ctx context.Context, u storefollow.Update) {
			err := c.refresh(u)
			if err == nil {
				failed = ""
				return
			}
			if text := err.Error(); text != failed {
				log.Warn("cannot write the authority of tunnel controllers, will try again", "err", err)
				failed = text
			}
			task.Pause(ctx, controllersPause)
			f.Relist()
		})
	})
}

// refresh writes the file if the store's authority differs. A missing one changes nothing.
func (c *controllersCA) refresh(u storefollow.Update) error {
	var now []byte
	for _, kv := range u.All {
		if kv.Key == backend.ControllersAuthorityKey {
			now = kv.Value
		}
	}
	for _, e := range u.Events {
		if e.Key == backend.ControllersAuthorityKey {
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

// Package supportbundle collects support bundles of a host and gives them away in parts: the host's
// part of `heddle support --hosts`.
package supportbundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"heddle/internal/sealing"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// mostBytes bounds a bundle: all of it passes through the store, which keeps it for some time.
	mostBytes = 32 << 20
	// partBytes bounds a part. A request of a host to the store has at most 1 MiB, and a part is in
	// base64 there.
	partBytes = 512 << 10
	// mostHours bounds the hours of logs.
	mostHours = 24 * 365
	// collectTime bounds the collection of a bundle.
	collectTime = 90 * time.Second
	// keepTime is the time after its last request until a bundle is removed.
	keepTime = 2 * time.Minute
)

// Command returns the command that writes a bundle into a new file.
type Command func(ctx context.Context, file string, hours int, anonymise bool) (*exec.Cmd, error)

// Collector has the support bundle of a host that was asked for last. It is a task: see Run.
type Collector struct {
	dir     string // of what is being collected
	command Command
	log     *slog.Logger
	begun   chan *bundle // that Run is to collect

	mu   sync.Mutex
	last *bundle
}

// bundle is one that is being collected, or that has an error or a file.
type bundle struct {
	request topology.SupportRequest // its first
	used    time.Time               // when it was asked for last
	done    bool                    // collected, or failed
	file    *os.File                // without a name
	size    int64
	err     error
}

// New returns a Collector without a bundle, which alone uses a directory that need not exist.
// Without a command it refuses all requests.
func New(dir string, command Command, log *slog.Logger) *Collector {
	return &Collector{dir: dir, command: command, log: log, begun: make(chan *bundle, 1)}
}

// Run collects bundles until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	if c.command != nil {
		if err := os.RemoveAll(c.dir); err != nil { // a killed agent has left it
			c.log.Warn("cannot remove an unfinished support bundle", "err", err)
		}
	}
	sweep := time.NewTicker(keepTime / 4)
	defer sweep.Stop()
	defer c.forget(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			c.forget(keepTime)
		case b := <-c.begun:
			c.log.Info("collecting a support bundle", "bundle", b.request.Bundle)
			file, size, err := c.collect(ctx, &b.request)
			if err != nil {
				c.log.Warn("there is no support bundle", "bundle", b.request.Bundle, "err", err)
			}
			c.mu.Lock()
			b.done, b.file, b.size, b.err, b.used = true, file, size, err, time.Now()
			c.mu.Unlock()
		}
	}
}

// Part returns a part of a bundle, and has it collected first. It does not wait for that.
func (c *Collector) Part(r *topology.SupportRequest) *flow.SupportAnswer {
	answer, err := c.part(r)
	if err != nil {
		return &flow.SupportAnswer{Error: err.Error()}
	}
	return answer
}

func (c *Collector) part(r *topology.SupportRequest) (*flow.SupportAnswer, error) {
	if err := c.check(r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.find(r)
	if err != nil {
		return nil, err
	}
	b.used = time.Now()
	if !b.done || b.err != nil {
		return &flow.SupportAnswer{}, b.err
	}
	part := make([]byte, min(partBytes, max(0, b.size-r.Offset)))
	if _, err := b.file.ReadAt(part, r.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	sealed, err := sealing.SealForHost(r.Key, r.Bundle, part)
	return &flow.SupportAnswer{Size: b.size, Part: sealed}, err
}

// check refuses what no server asks for.
func (c *Collector) check(r *topology.SupportRequest) error {
	switch {
	case c.command == nil:
		return errors.New("this agent collects no support bundles")
	case r.Bundle == "" || r.Offset < 0:
		return fmt.Errorf("bundle %q from byte %d: want an id, and 0 or more", r.Bundle, r.Offset)
	case r.Hours < 1 || r.Hours > mostHours:
		return fmt.Errorf("%d hours of logs: want 1 to %d", r.Hours, mostHours)
	}
	return nil
}

// find returns the bundle that is asked for. If this is its first request, Run collects it. c.mu is
// held.
func (c *Collector) find(r *topology.SupportRequest) (*bundle, error) {
	switch {
	case c.last != nil && c.last.request.Bundle == r.Bundle:
		return c.last, nil
	case r.Offset > 0:
		return nil, errors.New("the bundle is gone, since the agent has restarted or another one was asked for: try again")
	case c.last != nil && !c.last.done:
		return nil, errors.New("another support bundle is being collected: try again in a minute")
	}
	c.drop()
	c.last = &bundle{request: *r}
	c.begun <- c.last // Run has taken the one before, which is done
	return c.last, nil
}

// forget drops a bundle that is done and was not asked for in a time.
func (c *Collector) forget(unused time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.last.done && time.Since(c.last.used) >= unused {
		c.drop()
	}
}

// drop removes the last bundle. c.mu is held.
func (c *Collector) drop() {
	if c.last != nil && c.last.file != nil {
		_ = c.last.file.Close() // was only read
	}
	c.last = nil
}

// collect returns the file of a new bundle, which has no name any more and goes with this process.
func (c *Collector) collect(ctx context.Context, r *topology.SupportRequest) (file *os.File, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	name := filepath.Join(c.dir, "bundle.tar.gz")
	cmd, err := c.command(ctx, name, r.Hours, r.Anonymise)
	if err != nil {
		return nil, 0, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	file, err = os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > mostBytes {
		err = fmt.Errorf("the bundle has %d MiB, and at most %d pass through the store: run heddle support on the host, or ask for fewer --hours",
			info.Size()>>20, mostBytes>>20)
	}
	if err != nil {
		_ = file.Close() // was not used
		return nil, 0, err
	}
	return file, info.Size(), nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/storetest"
)

// startCluster runs an etcd cluster with authentication on the underlay.
func (s *site) startCluster(t *testing.T) *storetest.Cluster {
	t.Helper()
	s.ctl.MustIP(t, "addr add 192.0.2.2/32 dev underlay", "addr add 192.0.2.3/32 dev underlay", "addr add 192.0.2.4/32 dev underlay")
	etcd := storetest.Start(t, storetest.Options{
		Addresses: [storetest.Members]string{"192.0.2.2", "192.0.2.3", "192.0.2.4"},
		Start:     func(cmd *exec.Cmd) error { return s.ctl.Start(cmd) },
	})
	etcd.Protect(t)
	return etcd
}

// serveOver are the arguments of a server over a cluster that lets hosts join.
func (s *site) serveOver(etcd *storetest.Cluster) []string {
	return serveAt("127.0.0.1", s.data, append(flags(etcd), "--operator-listen", "192.0.2.1:9698", "--allow-plain-http",
		"--hosts-ca-cert", filepath.Join(etcd.Dir, "ca.crt"), "--hosts-ca-key", filepath.Join(etcd.Dir, "ca.key"))...)
}

// While the cluster is away the API answers that it is unavailable, readiness says why, and the
// agent stays; all go on by themselves when it is back.
func TestClusterAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	etcd := s.startCluster(t)
	server := start(t, s.ctl, s.serveOver(etcd)...)
	h := s.addHost(t, "h1", "192.0.2.11")
	token := s.token(t)
	refuse(t, h.ns, 1, "the server speaks plain HTTP", h.agent("--join", token)...)
	agent := start(t, h.ns, h.agent("--join", token, "--join-plain-http")...)
	admin := login(t, s.ctl, "127.0.0.1", s.data)
	network := admin.mustCreate(t, "network", map[string]any{"name": "before"})

	etcd.Stop()
	var calls sync.WaitGroup
	for _, call := range []func() error{
		func() error {
			_, err := admin.create(t.Context(), "network", map[string]any{"name": "meanwhile"})
			return err
		},
		func() error { return admin.call(t.Context(), http.MethodGet, "/v2.0/networks/"+network.ID, nil, nil) },
		func() error {
			return newClient(s.ctl, "127.0.0.1", "").login(t.Context(), "http://127.0.0.1:5000", readCloud(t, s.data))
		},
	} {
		calls.Go(func() {
			var refused *statusError
			// Of a commit that was under way it is not known whether it was done: 504.
			err := call()
			if !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable && refused.status != http.StatusGatewayTimeout {
				t.Errorf("with the store away: %v, want status 503 or 504", err)
			}
		})
	}
	server.waitFor(t, "/readyz", http.StatusServiceUnavailable, "waiting for the store: ")
	server.waitFor(t, "/healthz", http.StatusOK, "ok")
	for _, r := range []*running{server, agent} {
		r.waitLog(t, "the store does not answer; going on with what was known last")
		r.waitFor(t, "/metrics", http.StatusOK, "heddle_store_answers 0")
	}
	agent.waitFor(t, "/readyz", http.StatusOK, "ready")
	late := launch(t, s.ctl, serveAt("127.0.0.2", t.TempDir(), flags(etcd)...)...)
	late.waitLog(t, "the store cannot be reached; waiting for it")

	calls.Wait()
	etcd.Restart(t)
	late.waitReady(t)
	server.waitFor(t, "/readyz", http.StatusOK, "ready")
	for _, r := range []*running{server, agent} {
		r.waitLog(t, "the store answers again")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := netlab.Until(ctx, "the API to answer again", func() (bool, error) {
		_, err := admin.create(ctx, "network", map[string]any{"name": "after"})
		return err == nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	select {
	case err := <-agent.done:
		agent.done <- err
		t.Errorf("the agent ended: %v", err)
	default:
	}
	verify(t, openCluster(t, etcd))
}

// text is the log so far.
func (r *running) text(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// waitLog waits until the process has logged some words.
func (r *running) waitLog(t *testing.T, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "words in the log", func() (bool, error) { return strings.Contains(r.text(t), words), nil }); err != nil {
		t.Errorf("%v: %q", err, words)
	}
}

// waitFor waits until a page of the process has a status and says some words.
func (r *running) waitFor(t *testing.T, page string, status int, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := ""
	err := netlab.Until(ctx, page, func() (bool, error) {
		code, text, err := r.page(ctx, page)
		last = fmt.Sprint(code, " ", text, err)
		return err == nil && code == status && strings.Contains(text, words), nil
	})
	if err != nil {
		t.Errorf("%v: want %d and the words %q, have %s", err, status, words, last)
	}
}

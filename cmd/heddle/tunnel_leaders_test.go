package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// TestControllersTakeOver kills the tunnel controller that leads, over a store that it has open
// itself and over that of the pool's server: another leads then, and the next after it.
func TestControllersTakeOver(t *testing.T) {
	t.Parallel()
	for what, beside := range map[string]bool{"own store": false, "the server's store": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ns, pool := netlab.ForTest(t).MustNamespace(t, "pool"), t.TempDir()
			start(t, ns, "xapi", "--data", pool, "--tls-listen", "")
			data := pool
			if !beside {
				data = t.TempDir()
			}
			controller := func(metrics string) *running {
				return start(t, ns, "tunnel-controller", "--data", data, "--password-file", filepath.Join(pool, rootPasswordFile), "--ovsdb", "unix:/none/{host}", "--metrics", metrics)
			}
			leads := func(r *running) bool {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, page, err := r.page(ctx, "/metrics")
				return err == nil && strings.Contains(page, "\nheddle_tunnel_leader 1\n")
			}
			awaitLeader := func(r *running) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if err := netlab.Until(ctx, "a controller to lead", func() (bool, error) { return leads(r), nil }); err != nil {
					t.Fatal(err)
				}
			}
			first := controller("127.0.0.1:9693")
			awaitLeader(first)
			second := controller("127.0.0.1:9793")
			if leads(second) {
				t.Error("the second leads beside the first")
			}
			first.kill()
			awaitLeader(second)
			third := controller("127.0.0.1:9693")
			second.stop(t)
			awaitLeader(third)
		})
	}
}

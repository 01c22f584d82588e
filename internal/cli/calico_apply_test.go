package cli

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"heddle/calico"
	"heddle/calico/client"
)

// plainEtcd is an etcd with the limits that it has unless told otherwise.
func plainEtcd(t *testing.T) *client.Client {
	t.Helper()
	dir := t.TempDir()
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s")}
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "d")
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls = []url.URL{socket}, []url.URL{socket}, nil
	c.TickMs, c.ElectionMs = 5, 50
	c.UnsafeNoFsync = true
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	store, err := client.New(client.Options{Endpoints: []string{socket.String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// TestApplyInTransactions: what an etcd takes in one transaction is written in one, and more than
// that in several.
func TestApplyInTransactions(t *testing.T) {
	t.Parallel()
	c, ctx := plainEtcd(t), t.Context()
	var small, large strings.Builder
	for i := range 100 {
		fmt.Fprintf(&small, "---\n{kind: Tier, metadata: {tier: t%d}, spec: {order: %d}}\n", i, i)
		fmt.Fprintf(&large, "---\n{kind: Profile, metadata: {profile: p%d}, spec: {rules: {}, tags: [t], labels: {a: b}}}\n", i)
		fmt.Fprintf(&large, "---\n{kind: bgppeer, metadata: {ip: 192.0.2.%d}, spec: {ip: 192.0.2.%d, as_num: 64512}}\n", i, i)
	}
	for _, text := range []string{small.String(), large.String(), large.String()} {
		manifests, err := readManifests("file", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		results, err := applyAll(ctx, c, manifests)
		if err != nil || len(results) != len(manifests) {
			t.Fatalf("%d of %d applied: %v", len(results), len(manifests), err)
		}
	}
	tiers, err := c.List(ctx, calico.TierKey{})
	if err != nil || len(tiers.Entries) != 100 {
		t.Fatalf("%d tiers, %v", len(tiers.Entries), err)
	}
	for _, e := range tiers.Entries {
		if e.Revision != tiers.Entries[0].Revision {
			t.Fatal("the small file was written in several transactions")
		}
	}
	profiles, err := c.ListProfiles(ctx)
	if err != nil || len(profiles) != 100 {
		t.Errorf("%d profiles, %v", len(profiles), err)
	}
	targets, err := readManifests("file", []byte(large.String()))
	if err != nil {
		t.Fatal(err)
	}
	if results, err := deleteAll(ctx, c, targets, false); err != nil || len(results) != len(targets) {
		t.Errorf("%d of %d deleted: %v", len(results), len(targets), err)
	}
}

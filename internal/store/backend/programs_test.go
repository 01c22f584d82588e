package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"heddle/internal/store"
	"heddle/internal/store/etcd"
)

// TestPrograms: a program has its prefix and nothing else, by any of its certificates, until it is
// removed.
func TestPrograms(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	if _, err := OpenAuthority(ctx, dir, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	running := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	mustCommit(t, running, put("/calico/x", "1"), put("/heddle/secret", "1"))
	root, err := OpenAuthority(ctx, dir, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := root.AllowProgram(ctx, "a/b", "/calico/"); err == nil {
		t.Error("a name with a slash was taken")
	}
	var programs []*clientv3.Client
	for range 2 {
		given, err := root.AllowProgram(ctx, "plugin", "/calico/")
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program(t, running.Endpoint(), given))
	}
	for _, p := range programs {
		if r, err := p.Get(ctx, "/calico/x"); err != nil || len(r.Kvs) != 1 {
			t.Errorf("reading its own: %v", err)
		}
		if _, err := p.Put(ctx, "/calico/y", "2"); err != nil {
			t.Errorf("writing its own: %v", err)
		}
		if _, err := p.Get(ctx, "/heddle/secret"); etcd.Kind(err) != store.ErrDenied {
			t.Errorf("reading others': %v", err)
		}
		if _, err := p.Put(ctx, "/heddle/secret", ""); etcd.Kind(err) != store.ErrDenied {
			t.Errorf("writing others': %v", err)
		}
	}
	if err := root.RemoveProgram(ctx, "plugin"); err != nil {
		t.Fatal(err)
	}
	if err := root.RemoveProgram(ctx, "plugin"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removing it twice: %v", err)
	}
	if _, err := programs[0].Get(ctx, "/calico/x"); etcd.Kind(err) != store.ErrDenied {
		t.Errorf("reading after it was removed: %v", err)
	}
	plain := openTest(t, Embedded{DataDir: t.TempDir()})
	if _, err := plain.AllowProgram(ctx, "plugin", "/calico/"); err == nil {
		t.Error("a store that knows nobody gave credentials")
	}
}

// program is a client with these credentials.
func program(t *testing.T, endpoint string, c Credentials) *clientv3.Client {
	t.Helper()
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(c.CA) {
		t.Fatal("credentials", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Logger: zap.NewNop(), TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/presence"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// describeEvery is the interval between looks at how this server is reached and what it lacks: its
// certificate is renewed, its machine gets other addresses.
const describeEvery = 5 * time.Second

// newMembership returns a task that reports in the store that this server, called name, is alive,
// which formats it knows, and what describe adds: how hosts reach it.
func newMembership(st store.Store, name, role string, describe func(*schema.Server), log *slog.Logger) task.Task {
	newest := schema.KnownFormats().Newest()
	server := schema.Server{ID: uuid.NewString(), Name: name, Role: role, Version: version, Reads: newest, Writes: newest, StartedAt: time.Now().UTC().Truncate(time.Second)}
	return newLoop("membership", func(ctx context.Context) error {
		key := schema.Servers.KeyOf(&server)
		p := presence.New(presence.Options{Store: st, Prefix: key, TTL: schema.HostLease, Leave: true, Log: log.With("part", "membership")})
		describe(&server)
		if err := p.SetRecord(key, server); err != nil {
			return err
		}
		p.Complete()
		running, ctx := errgroup.WithContext(ctx)
		running.Go(func() error { return p.Run(store.WithLastReserve(ctx)) })
		running.Go(func() error {
			for task.Pause(ctx, describeEvery) {
				now := server
				if describe(&now); !reflect.DeepEqual(now, server) {
					server = now
					if err := p.SetRecord(key, server); err != nil {
						return err
					}
				}
			}
			return nil
		})
		return running.Wait()
	})
}

// describe fills in what other servers, hosts and operators should know about this server.
func (s *server) describe(own *schema.Server) {
	own.Reach, own.MissingKey, own.FullDisk, own.Journalled = s.reach(), s.missingKey(), s.fullDisk(), s.journal.Recorded()
}

// fullDisk returns the full disk of this server for the other servers of its cluster; nil if it has
// space, or this server is alone.
func (s *server) fullDisk() *schema.FullDisk {
	free, needed, full := s.store.FullDisk()
	if !full || !s.config.cluster.on {
		return nil
	}
	return &schema.FullDisk{Dir: s.config.data, FreeMiB: free >> 20, NeededMiB: needed >> 20}
}

// reach returns how hosts reach this server and its store; nothing if no host can join by it.
func (s *server) reach() schema.Reach {
	c, o := s.config, s.hosts
	if o.CA == nil {
		return schema.Reach{}
	}
	scheme := "http://"
	r := schema.Reach{Pin: o.Pin(), StoreURLs: c.etcd.urls(), StoreCA: string(o.CA())}
	if r.Pin != "" {
		scheme = "https://"
	}
	r.URLs = c.reachableURLs(scheme, c.operator)
	if len(r.StoreURLs) == 0 {
		r.StoreURLs = c.reachableURLs("https://", c.agents)
		r.Trust = s.trust()
	}
	r.HostSigner = s.store.Authority().KeyID()
	return r
}

// trust returns this server's part in a rotation of the embedded store's authority.
func (s *server) trust() *schema.Trust {
	a := s.store.Authority()
	t := &schema.Trust{Authorities: a.TrustedFingerprints(), Peers: s.store.PeersTrust()}
	file, _ := backend.ServerCertificate(s.config.data)
	raw, err := os.ReadFile(file)
	if err != nil {
		return t
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return t
	}
	if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
		t.Until = cert.NotAfter.UTC()
		if presented := s.config.tlsCert != "" || s.hosts.Pin() == a.Fingerprint(); presented && a.Signed(cert) {
			t.SignedBy = a.Fingerprint() // and the API, which reads the files now and then, presents it
		}
	}
	return t
}

// reachableURLs returns the URLs of a listen address for other machines: by the public name, and by
// the address itself or, if it stands for all, each of this machine.
func (c *serveConfig) reachableURLs(scheme, listen string) (urls []string) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil
	}
	for _, name := range append([]string{c.publicHost}, listenHosts(host)...) {
		if name != "" {
			urls = append(urls, scheme+net.JoinHostPort(name, port))
		}
	}
	return slices.Compact(urls)
}

// listenHosts returns the host of a listen address, or all of this machine's addresses if it stands
// for them.
func listenHosts(host string) []string {
	if ip := net.ParseIP(cmp.Or(host, "::")); ip != nil && ip.IsUnspecified() {
		return slices.DeleteFunc(backend.MachineAddresses(), func(a string) bool { return net.ParseIP(a).IsLoopback() })
	}
	return []string{host}
}

// machineName returns this machine's name, or "".
func machineName() string {
	name, _ := os.Hostname()
	return name
}

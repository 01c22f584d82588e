package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"heddle/internal/api/servers"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// clusterConfig makes the embedded store a member of a cluster of such stores.
type clusterConfig struct {
	on       bool
	name     string // of this server
	listen   string // for other members; "" = port 2380 of agents-listen's address
	joinFile string
}

func (c *clusterConfig) flags(f *pflag.FlagSet) {
	hostname, _ := os.Hostname() // without one, --name is required with --cluster
	f.BoolVar(&c.on, "cluster", false, "form a cluster of embedded stores: the first server makes it, others join by a token (--join-file); needs --agents-listen")
	f.StringVar(&c.name, "name", hostname, "`name` of this server in the cluster and in lists")
	f.StringVar(&c.listen, "peer-listen", "", "with --cluster: IP `address` and port for the other servers' stores (default port 2380 of the address of --agents-listen)")
	f.StringVar(&c.joinFile, "join-file", "", "with --cluster: `file` with a token of heddle cluster token, by which this server joins; removed once it has")
}

// peer returns how the store is a member of a cluster, after this server has joined it; nil if it
// is alone.
func (c *serveConfig) peer(ctx context.Context, log *slog.Logger) (*backend.Peer, error) {
	if !c.cluster.on {
		if c.cluster.joinFile != "" || c.cluster.listen != "" {
			return nil, usagef("--join-file and --peer-listen go with --cluster")
		}
		return nil, nil
	}
	peer, err := c.checkCluster()
	if err != nil {
		return nil, err
	}
	past, joining := backend.ReadPast(c.data), servers.Joining(c.data)
	switch {
	case c.cluster.joinFile == "" && !past.Store && past.Removed != "":
		return nil, usagef("this server was removed from its cluster: give it a token by --join-file, a file with what `heddle cluster token %s` prints; "+
			"or, to begin with an empty store, move %s away", peer.Name, past.Removed)
	case c.cluster.joinFile == "", past.Store && !joining:
		return peer, c.checkToken(past)
	case past.Log: // joining: the others may lack a majority without its vote, and could not answer
		return peer, nil
	}
	if err := checkListen(c.agents, peer.Listen); err != nil {
		return nil, err
	}
	peer.Join, err = servers.JoinRetrying(ctx, c.clusterToken, servers.JoinOptions{Name: peer.Name, PeerURL: peer.URL(), DataDir: c.data}, log.With("part", "cluster"))
	return peer, err
}

// checkCluster checks the settings of a member.
func (c *serveConfig) checkCluster() (*backend.Peer, error) {
	if len(c.etcd.Endpoints) > 0 {
		return nil, usagef("--cluster is for embedded stores: with --etcd-endpoints the store is a cluster already")
	}
	host, _, err := net.SplitHostPort(c.agents)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return nil, usagef("--cluster: --agents-listen %q: want an IP address of this machine and a port, such as 192.0.2.1:2379, by which other machines reach it", c.agents)
	}
	peer := &backend.Peer{Name: c.cluster.name, Listen: cmp.Or(c.cluster.listen, net.JoinHostPort(host, "2380"))}
	host, _, err = net.SplitHostPort(peer.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return nil, usagef("--peer-listen %q: want an IP address of this machine and a port, such as 192.0.2.1:2380, by which other servers reach it", peer.Listen)
	}
	if err := peer.CheckName(); err != nil {
		return nil, usagef("--name: %w", err)
	}
	return peer, nil
}

// checkListen returns an error unless this machine can listen at both addresses of a server that is
// about to join: as a member that cannot be reached, it would keep others from joining.
func checkListen(agents, peers string) error {
	for _, at := range [][2]string{{"--agents-listen", agents}, {"--peer-listen", peers}} {
		setting, address := at[0], at[1]
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("%s %s: this machine cannot listen there, so it has not joined the cluster and its token is not used up: give a free port of an address that this machine has (%w)",
				setting, address, err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%s %s: %w", setting, address, err)
		}
	}
	return nil
}

// checkToken refuses a token beside a store that is in no cluster with others: it would have to be
// thrown away to join.
func (c *serveConfig) checkToken(past backend.Past) error {
	if c.cluster.joinFile == "" {
		return nil
	}
	if _, err := os.Stat(c.cluster.joinFile); err != nil || len(past.Members) > 1 {
		return nil
	}
	return usagef("--join-file %s: this server has a store of its own, in %s, and no other server: to join another one's cluster, stop it and move that directory away; "+
		"to go on with this store, remove the file", c.cluster.joinFile, filepath.Join(c.data, "etcd"))
}

// clusterToken returns the token in the file as it is now.
func (c *serveConfig) clusterToken() (string, error) {
	raw, err := os.ReadFile(c.cluster.joinFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("--join-file %[1]s: there is no such file, and this server has no store: run `heddle cluster token %[2]s` on a server of the cluster and put its token there; "+
			"if this server, or an earlier one of its name, is a member, run `heddle cluster remove %[2]s` there first", c.cluster.joinFile, c.cluster.name)
	} else if errors.Is(err, os.ErrPermission) {
		return "", fmt.Errorf("--join-file: %w: give the file to the server's user: chown heddle: %s", err, c.cluster.joinFile)
	} else if err != nil {
		return "", fmt.Errorf("--join-file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// joinedCluster removes what is no longer needed once the store is a member of the cluster.
func (c *serveConfig) joinedCluster(log *slog.Logger) error {
	if !c.cluster.on || !servers.Joining(c.data) {
		return nil
	}
	if err := os.Remove(c.cluster.joinFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("cannot remove the file of the used join token", "err", err)
	}
	return servers.Joined(c.data) // last: a start that finds no token goes by it
}

// clusterOptions returns the options of the API by which servers join.
func (s *server) clusterOptions() servers.Options {
	o := servers.Options{DB: s.db, Servers: s.serverURLs, Pin: s.hosts.Pin, Files: s.sharedFiles, Log: s.log.With("part", "cluster")}
	if s.config.cluster.on {
		o.Cluster = s.store
	}
	return o
}

// serverURLs returns the URLs of the operators' API of this server, and then of all others.
func (s *server) serverURLs() []string {
	urls := s.reach().URLs
	for other := range schema.Servers.All(records.Over(s.replica.Snapshot())) {
		for _, url := range other.URLs {
			if !slices.Contains(urls, url) {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

// sharedFiles returns the files that all servers have the same: those by which commands on their
// machines log in, and the key of what is sealed in the store.
func (s *server) sharedFiles() map[string]string {
	files := map[string]string{}
	for _, name := range []string{"clouds.yaml", "openrc", secretsKeyFile} {
		if raw, err := os.ReadFile(filepath.Join(s.config.data, name)); err == nil {
			files[name] = string(raw)
		}
	}
	return files
}

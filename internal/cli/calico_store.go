package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"heddle/calico/client"
	"heddle/internal/command"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// calicoStore locates the store of Calico's data.
type calicoStore struct {
	data         string
	etcd         backend.Cluster
	readPassword func() error // of etcd
}

// calicoStoreFlags adds the flags that locate the store.
func calicoStoreFlags(cmd *cobra.Command) *calicoStore {
	s := &calicoStore{}
	f := cmd.Flags()
	DataFlag(f, &s.data, "data `directory` of a heddle serve on this machine, whose embedded store is used unless --etcd-endpoints is given")
	s.readPassword = serverClusterFlags(f, &s.etcd)
	return s
}

// do calls f with a client of the store.
func (s *calicoStore) do(f func(*client.Client) error) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// open returns a client of the store.
func (s *calicoStore) open() (*client.Client, error) {
	if err := s.readPassword(); err != nil {
		return nil, err
	}
	c := s.etcd
	if len(c.Endpoints) == 0 {
		if c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.User != "" {
			return nil, &command.Exit{Code: 2, Text: "--etcd-ca, --etcd-cert, --etcd-key and --etcd-user are for a cluster: name it with --etcd-endpoints"}
		}
		var err error
		if c, err = backend.Running(s.data); errors.Is(err, store.ErrUnavailable) {
			err = fmt.Errorf("%w: start heddle serve, name its data directory with --data, or a cluster with --etcd-endpoints", err)
		}
		if err != nil {
			return nil, nameSettings(err)
		}
		c.Password = s.etcd.Password
	}
	return client.New(client.Options{Endpoints: c.Endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, User: c.User, Password: c.Password})
}

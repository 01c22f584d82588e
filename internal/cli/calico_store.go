package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico/client"
	"heddle/internal/store"
)

// calicoStore says where the objects of Calico's data model are.
type calicoStore struct {
	data         string
	etcd         client.Options
	passwordFile string
}

// calicoStoreFlags adds the flags that say where the store is.
func calicoStoreFlags(cmd *cobra.Command) *calicoStore {
	s := &calicoStore{}
	f := cmd.Flags()
	dataFlag(f, &s.data, "data `directory` of a heddle serve on this machine, whose embedded store is used unless --etcd-endpoints is given")
	f.StringSliceVar(&s.etcd.Endpoints, "etcd-endpoints", nil, "`addresses` of an etcd cluster, host:port, joined by commas")
	f.StringVar(&s.etcd.CAFile, "etcd-ca", "", "PEM `file` with the authority of the cluster's certificates")
	f.StringVar(&s.etcd.CertFile, "etcd-cert", "", "PEM `file` with a client certificate")
	f.StringVar(&s.etcd.KeyFile, "etcd-key", "", "PEM `file` with its key")
	f.StringVar(&s.etcd.User, "etcd-user", "", "etcd user, where the certificate does not tell it")
	f.StringVar(&s.passwordFile, "etcd-password-file", "", "`file` with the user's password")
	return s
}

// open makes the client of the store.
func (s *calicoStore) open() (*client.Client, error) {
	o := s.etcd
	if len(o.Endpoints) == 0 {
		if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.User != "" {
			return nil, &Exit{Code: 2, Text: "--etcd-ca, --etcd-cert, --etcd-key and --etcd-user are for a cluster: name it with --etcd-endpoints"}
		}
		running, err := store.Running(s.data)
		if errors.Is(err, store.ErrUnavailable) {
			return nil, fmt.Errorf("%w: start heddle serve, name its data directory with --data, or a cluster with --etcd-endpoints", err)
		}
		if err != nil {
			return nil, err
		}
		o.Endpoints, o.CAFile, o.CertFile, o.KeyFile = running.Endpoints, running.CAFile, running.CertFile, running.KeyFile
	}
	if s.passwordFile != "" {
		raw, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return nil, &Exit{Code: 2, Text: "--etcd-password-file: " + err.Error()}
		}
		o.Password = strings.TrimSpace(string(raw))
	}
	return client.New(o)
}

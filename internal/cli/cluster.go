package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"heddle/internal/command"
	"heddle/internal/store/backend"
)

// ClusterFlags adds the flags of access to an etcd cluster; endpointsUsage describes
// --etcd-endpoints. complete reads the password's file.
func ClusterFlags(f *pflag.FlagSet, to *backend.Cluster, endpointsUsage string) (complete func() error) {
	var passwordFile string
	f.StringSliceVar(&to.Endpoints, "etcd-endpoints", nil, endpointsUsage)
	f.StringVar(&to.CAFile, "etcd-ca", "", "PEM `file` with the authority of the cluster's certificates")
	f.StringVar(&to.CertFile, "etcd-cert", "", "PEM `file` with a client certificate")
	f.StringVar(&to.KeyFile, "etcd-key", "", "PEM `file` with its key")
	f.StringVar(&to.User, "etcd-user", "", "etcd user, where the certificate does not name it")
	f.StringVar(&passwordFile, "etcd-password-file", "", "`file` with the user's password")
	return func() error {
		if passwordFile == "" {
			return nil
		}
		raw, err := os.ReadFile(passwordFile)
		if err != nil {
			return &command.Exit{Code: 2, Text: "--etcd-password-file: " + err.Error()}
		}
		to.Password = strings.TrimSpace(string(raw))
		return nil
	}
}

// serverClusterFlags is [ClusterFlags] for a command that uses the cluster of this machine's server
// unless it is given another.
func serverClusterFlags(f *pflag.FlagSet, to *backend.Cluster) (complete func() error) {
	complete = ClusterFlags(f, to, "`addresses` of the cluster, host:port, joined by commas; default those of heddle serve")
	for _, name := range []string{"etcd-endpoints", "etcd-ca", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file"} {
		ofServer(f, name)
	}
	return complete
}

// nameSettings adds to the error of a store that was moved how a command of [serverClusterFlags]
// finds the cluster.
func nameSettings(err error) error {
	if moved := new(backend.MovedError); errors.As(err, &moved) {
		return fmt.Errorf("%w; for this command name the cluster as heddle serve has it: --config with its settings, such as /etc/heddle/heddle.yaml, or --etcd-endpoints and those that go with it", err)
	}
	return err
}

// clusterTimeout bounds a command's wait for a cluster. Servers and agents wait for ever instead.
const clusterTimeout = 10 * time.Second

// openCluster opens a cluster, or returns an error if it does not answer in time.
func openCluster(ctx context.Context, to backend.Cluster) (*backend.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return backend.Open(ctx, backend.Options{Cluster: &to})
}

package cli

import (
	"context"
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

// clusterTimeout bounds a command's wait for a cluster. Servers and agents wait for ever instead.
const clusterTimeout = 10 * time.Second

// openCluster opens a cluster, or returns an error if it does not answer in time.
func openCluster(ctx context.Context, to backend.Cluster) (*backend.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return backend.Open(ctx, backend.Options{Cluster: &to})
}

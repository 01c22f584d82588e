package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/store"
)

// backupCommand copies the embedded store into a file.
func backupCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the embedded store into a file",
		Long:  "Writes a snapshot of the embedded store, as etcd makes it, while the server runs or not. Run it on the server's machine.\nA cluster of its own is backed up with etcdctl snapshot save.",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&data, "data", DefaultDataDir, "data `directory` of heddle serve")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st, err := store.OpenDataDir(cmd.Context(), data, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer st.Close()
		n, err := writeBackup(cmd.Context(), st, args[0])
		if err != nil {
			return fmt.Errorf("backup %s: %w", args[0], err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d bytes in %s; restore with: heddle restore %s --data NEW-DIRECTORY\n", n, args[0], args[0])
		return nil
	}
	return cmd
}

// writeBackup writes the snapshot beside its name and renames it when it is whole.
func writeBackup(ctx context.Context, st *store.Etcd, name string) (n int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = st.Backup(ctx, f)
	if err == nil {
		n, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), name)
}

// restoreCommand makes a data directory from a backup.
func restoreCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the embedded store from a backup",
		Long:  "Makes the store in --data, which must not have one, from a file that heddle backup (or etcdctl snapshot save) has written.\nThen start heddle serve with the same --data.",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&data, "data", DefaultDataDir, "data `directory` for heddle serve")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := store.Restore(cmd.Context(), args[0], data, slog.New(slog.DiscardHandler)); err != nil {
			return stopFirst(err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "restored; start the server with: heddle serve --data %s\n", data)
		return nil
	}
	return cmd
}

// moveCommand copies the embedded store into an etcd cluster.
func moveCommand() *cobra.Command {
	var data, user, passwordFile string
	var to store.Cluster
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move the embedded store into an etcd cluster",
		Long: `Copies every key of the embedded store in --data into the cluster, which must hold none of them yet, and compares. Stop
heddle serve first, and start it with the same --etcd flags after. The embedded store stays as it was.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", DefaultDataDir, "data `directory` of heddle serve")
	f.StringSliceVar(&to.Endpoints, "etcd-endpoints", nil, "`addresses` of the cluster, host:port, joined by commas")
	f.StringVar(&to.CAFile, "etcd-ca", "", "PEM `file` with the authority of the cluster's certificates")
	f.StringVar(&to.CertFile, "etcd-cert", "", "PEM `file` with a client certificate")
	f.StringVar(&to.KeyFile, "etcd-key", "", "PEM `file` with its key")
	f.StringVar(&user, "etcd-user", "", "etcd user, where the certificate does not tell it")
	f.StringVar(&passwordFile, "etcd-password-file", "", "`file` with the user's password")
	if err := cmd.MarkFlagRequired("etcd-endpoints"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		to.User = user
		if passwordFile != "" {
			raw, err := os.ReadFile(passwordFile)
			if err != nil {
				return &Exit{Code: 2, Text: "--etcd-password-file: " + err.Error()}
			}
			to.Password = strings.TrimSpace(string(raw))
		}
		if err := moveStore(cmd.Context(), data, to, cmd.ErrOrStderr()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "copied and compared; start the server with: heddle serve --etcd-endpoints %s\n", strings.Join(to.Endpoints, ","))
		return nil
	}
	return cmd
}

// stopFirst says what to do about a store that is in use.
func stopFirst(err error) error {
	if errors.Is(err, store.ErrInUse) {
		return fmt.Errorf("%w: stop heddle serve first", err)
	}
	return err
}

func moveStore(ctx context.Context, data string, to store.Cluster, progress io.Writer) error {
	quiet := slog.New(slog.DiscardHandler)
	// Opened for ourselves alone: with a server still running, what it writes meanwhile would be lost.
	from, err := store.Open(ctx, store.Options{Embedded: &store.Embedded{DataDir: data, Existing: true}, Log: quiet})
	if err != nil {
		return stopFirst(err)
	}
	defer from.Close()
	cluster, err := store.Open(ctx, store.Options{Cluster: &to, Log: quiet})
	if err != nil {
		return err
	}
	defer cluster.Close()
	return store.Copy(ctx, from, cluster, func(done, all int) { fmt.Fprintf(progress, "%d of %d keys\n", done, all) })
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/terminal"
)

// storeCommand shows the tables and the last changes of the store, and administers its space.
func storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Look at the store, and manage its space: status, tables, changes, compact, defragment, disarm, reclaim",
		Long: `Works on the embedded store in --data, while its server runs or not, or on the cluster named by --etcd-endpoints,
here or in the server's settings. A store that is full accepts deletions and log-ins only. The embedded store's server
reclaims space by itself.`,
	}
	var data string
	var quotaMiB int64
	var cluster backend.Cluster
	f := cmd.PersistentFlags()
	DataFlag(f, &data, "data `directory` of heddle serve")
	f.Int64Var(&quotaMiB, "store-quota", DefaultStoreQuotaMiB, "the server's --store-quota in `MiB`; a running server reports its own")
	ofServer(f, "store-quota")
	complete := serverClusterFlags(f, &cluster)
	clusterQuotaMiB := f.Int64("etcd-quota", 0, EtcdQuotaUsage)
	ofServer(f, "etcd-quota")
	open := func(ctx context.Context) (*backend.Etcd, error) {
		if len(cluster.Endpoints) == 0 {
			st, err := backend.OpenDataDir(ctx, backend.Embedded{DataDir: data, Quota: quotaMiB << 20}, nil)
			return st, nameSettings(err)
		}
		if err := complete(); err != nil {
			return nil, err
		}
		cluster.SkipLimits, cluster.Quota = true, *clusterQuotaMiB<<20
		return openCluster(ctx, cluster)
	}
	cmd.AddCommand(storeStatusCommand(open, func() bool {
		return len(cluster.Endpoints) == 0 && errors.Is(backend.CheckDisk(data), store.ErrFull)
	}))
	cmd.AddCommand(storeTablesCommand(open), storeChangesCommand(open))
	for _, c := range []struct {
		use, short, done string
		do               func(*backend.Etcd, context.Context) error
	}{
		{"compact", "Forget what keys were before now", "compacted", (*backend.Etcd).CompactAll},
		{"defragment", "Return free space, one member after the other; a member does not answer meanwhile, some seconds for each GiB", "defragmented", (*backend.Etcd).Defragment},
		{"disarm", "End the alarm by which etcd refuses all writes; refused while there is no space", "disarmed", (*backend.Etcd).Disarm},
		{"reclaim", "Compact, defragment and disarm", "reclaimed", (*backend.Etcd).Reclaim},
	} {
		cmd.AddCommand(&cobra.Command{Use: c.use, Short: c.short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer st.Close()
			ctx := store.WithReserve(cmd.Context())
			if err := c.do(st, ctx); errors.Is(err, store.ErrFull) && len(cluster.Endpoints) == 0 {
				return cmp.Or(backend.CheckDisk(data), err)
			} else if err != nil {
				return err
			}
			space, err := st.Space(ctx)
			if err != nil {
				return err
			}
			for _, m := range space {
				terminal.Fprintf(cmd.OutOrStdout(), "%s; %s\n", c.done, m)
			}
			return nil
		}})
	}
	return cmd
}

// storeStatusCommand prints how full the store is; diskFull reports an embedded store's full disk.
func storeStatusCommand(open func(context.Context) (*backend.Etcd, error), diskFull func() bool) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Print how full the store is", Args: cobra.NoArgs}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		space, err := st.Space(cmd.Context())
		if err != nil {
			return err
		}
		var rows [][]string
		for i := range space {
			m := &space[i]
			m.DiskFull = diskFull()
			state := "ok"
			switch {
			case m.DiskFull:
				state = "disk full: accepts no writes"
			case m.NoSpace:
				state = "alarm: refuses all writes"
			case m.Full():
				state = "full: accepts deletions and log-ins"
			case m.NearlyFull():
				state = "nearly full"
			}
			mib := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
			quota := mib(m.Quota)
			if m.Assumed {
				quota += " (assumed: give --etcd-quota)"
			}
			rows = append(rows, []string{m.Member, state, mib(m.Size), mib(m.InUse), quota})
		}
		return command.PrintTable(cmd.OutOrStdout(), *format, space, []string{"MEMBER", "STATE", "SIZE MIB", "IN USE MIB", "QUOTA MIB"}, rows)
	}
	return cmd
}

// storeTablesCommand prints what each table of the store has.
func storeTablesCommand(open func(context.Context) (*backend.Etcd, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tables", Short: "Print how many keys each table has, and their size", Args: cobra.NoArgs,
		Long: "Reads the whole store, a page at a time, and prints for each table, such as that of all ports, its keys and the bytes of keys and values.\n" +
			"The database is larger: it has their history, and free space, as heddle store status shows.",
	}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		tables, err := st.Tables(cmd.Context(), 0)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, t := range tables {
			rows = append(rows, []string{t.Prefix, strconv.Itoa(t.Keys), strconv.FormatInt(t.Bytes, 10)})
		}
		return command.PrintTable(cmd.OutOrStdout(), *format, tables, []string{"TABLE", "KEYS", "BYTES"}, rows)
	}
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/store/backend"
	"heddle/internal/store/journal"
	"heddle/internal/terminal"
)

// backupCommand copies the embedded store into a file.
func backupCommand() *cobra.Command {
	var data string
	var verify, withJournal bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the embedded store into a file",
		Long: `Writes a snapshot of the embedded store, as etcd makes it, while the server runs or not. Run it on the server's machine.
With --verify it restores the file for a trial, in a directory beside it that it removes again, and compares each table
with the store's. With --journal it copies the server's journal, which heddle history reads, into FILE.journal beside it.
A cluster of its own is backed up with etcdctl snapshot save.`,
		Args: wantArgs(1, "backup: want one FILE to write"),
	}
	DataFlag(cmd.Flags(), &data, "data `directory` of heddle serve")
	cmd.Flags().BoolVar(&verify, "verify", false, "restore the file for a trial and compare it with the store; it appears only if they are the same")
	cmd.Flags().BoolVar(&withJournal, "journal", false, "copy the journal, too, into FILE.journal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		defer EnterBackupDir(cmd, args[0])()
		st, err := backend.OpenDataDir(cmd.Context(), backend.Embedded{DataDir: data}, nil)
		if err != nil {
			return err
		}
		defer st.Close()
		verified := func(context.Context, string, int64) error { return nil }
		if verify {
			verified = func(ctx context.Context, file string, before int64) error {
				v, err := st.CompareBackup(ctx, file, before, nil)
				if err == nil {
					terminal.Fprintf(cmd.OutOrStdout(), "restored for a trial at revision %d: %d keys in %d tables, as in the store\n", v.Revision, v.Keys(), len(v.Tables))
				}
				return err
			}
		}
		n, err := writeBackup(cmd.Context(), st, args[0], verified)
		if err != nil {
			return fmt.Errorf("backup %s: %w", args[0], err)
		}
		flag := ""
		if withJournal {
			flag = " --journal"
			if err := backupJournal(cmd.OutOrStdout(), data, args[0]+journalSuffix); err != nil {
				return fmt.Errorf("backup %s is made, but not that of its journal: %w", args[0], err)
			}
		}
		terminal.Fprintf(cmd.OutOrStdout(), "%d bytes in %s; restore with: heddle restore %s --data NEW-DIRECTORY%s\n", n, args[0], args[0], flag)
		if err := backend.NoteBackup(data, verify); err != nil {
			return fmt.Errorf("backup %s is made, but its time cannot be noted for the metrics: %w", args[0], err)
		}
		return nil
	}
	return cmd
}

// EnterBackupDir enters the directory of a backup, as [backend.EnterBackupDir] does, and prints
// what stays there.
func EnterBackupDir(cmd *cobra.Command, file string) (leave func()) {
	leave, err := backend.EnterBackupDir(filepath.Dir(file))
	if err != nil {
		terminal.Fprintln(cmd.ErrOrStderr(), err)
	}
	return leave
}

// writeBackup writes the snapshot to a temporary file and renames it when it is whole. verify
// verifies that file; the revision is one that the store had before.
func writeBackup(ctx context.Context, st *backend.Etcd, name string, verify func(ctx context.Context, file string, before int64) error) (n int64, err error) {
	before, err := st.Revision(ctx)
	if err != nil {
		return 0, err
	}
	return writeWhole(name, func(f *os.File) error { return st.Backup(ctx, f) }, func(file string) error { return verify(ctx, file, before) })
}

// writeWhole writes a file that appears once it is whole and verified, and returns its size.
func writeWhole(name string, write func(f *os.File) error, verify func(file string) error) (n int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), backend.UnfinishedBackup)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = write(f)
	if err == nil {
		n, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = verify(f.Name())
	}
	if err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), name)
}

// journalSuffix ends the name of the file with the journal of a backup.
const journalSuffix = ".journal"

// backupJournal copies the journal in a data directory into a file.
func backupJournal(out io.Writer, data, file string) error {
	segments := 0
	n, err := writeWhole(file, func(f *os.File) (err error) {
		if segments, err = journal.Export(journal.Dir(data), f); err == nil && segments == 0 {
			err = fmt.Errorf("%s has no journal: heddle serve has never run there", data)
		}
		return err
	}, func(string) error { return nil })
	if err == nil {
		terminal.Fprintf(out, "%d bytes in %s: %d segments of the journal\n", n, file, segments)
	}
	return err
}

// restoreJournal puts the journal of a backup into a data directory that has none, around the
// restore of the store: if that fails there is none either.
func restoreJournal(data, file string, restore func() error) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%w: restore without --journal, or name a backup that was made with it", err)
	}
	defer in.Close()
	dir := journal.Dir(data)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there already: move it away, or restore without --journal", dir)
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	begun := dir + ".new"
	if err := os.RemoveAll(begun); err != nil { // of a restore that was killed
		return err
	}
	if _, err := journal.Import(in, begun); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := restore(); err != nil {
		return errors.Join(err, os.RemoveAll(begun))
	}
	return os.Rename(begun, dir)
}

// restoreCommand makes a data directory from a backup.
func restoreCommand() *cobra.Command {
	var data string
	var trial, withJournal bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the embedded store from a backup",
		Long: `Makes the store in --data, which must not have one, from a file that heddle backup (or etcdctl snapshot save) has written.
Then start heddle serve with the same --data. With --trial it restores into a directory beside the file that it removes
again, and prints what each table has. With --journal the journal in FILE.journal, of heddle backup --journal, is restored, too.`,
		Args: wantArgs(1, "restore: want one FILE that heddle backup has written"),
	}
	DataFlag(cmd.Flags(), &data, "data `directory` for heddle serve")
	cmd.Flags().BoolVar(&trial, "trial", false, "restore into a temporary directory beside the file, and print what each table has")
	cmd.Flags().BoolVar(&withJournal, "journal", false, "restore the journal, too, from FILE.journal")
	cmd.MarkFlagsMutuallyExclusive("trial", "journal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if trial {
			return printTrial(cmd, args[0])
		}
		restore := func() error { return backend.Restore(cmd.Context(), args[0], data, nil) }
		err := error(nil)
		if withJournal {
			err = restoreJournal(data, args[0]+journalSuffix, restore)
		} else {
			err = restore()
		}
		if err != nil {
			return stopFirst(err)
		}
		terminal.Fprintf(cmd.OutOrStdout(), "restored; start the server with: heddle serve --data %s\n", data)
		return nil
	}
	return cmd
}

// printTrial restores a backup for a trial and prints its tables.
func printTrial(cmd *cobra.Command, file string) error {
	defer EnterBackupDir(cmd, file)()
	v, err := backend.VerifyBackup(cmd.Context(), file, nil)
	if err != nil {
		return err
	}
	printTables(cmd.OutOrStdout(), v)
	return nil
}

func printTables(out io.Writer, v backend.Verified) {
	for _, t := range v.Tables {
		terminal.Fprintf(out, "%8d  %s\n", t.Keys, t.Prefix)
	}
	terminal.Fprintf(out, "restored for a trial at revision %d: %d keys in %d tables\n", v.Revision, v.Keys(), len(v.Tables))
}

// moveCommand copies the embedded store into an etcd cluster.
func moveCommand() *cobra.Command {
	var data string
	var to backend.Cluster
	var undo bool
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move the embedded store into an etcd cluster",
		Long: `Copies every key of the embedded store in --data into the cluster, which must hold none of them yet, and compares. Stop
heddle serve first, and start it with the same --etcd-endpoints, and the flags that go with them, after. The embedded store keeps
its data and is marked as moved: heddle serve and heddle backup refuse it from then on. With --undo the mark is taken away again.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	DataFlag(f, &data, "data `directory` of heddle serve")
	access := ClusterFlags(f, &to, "`addresses` of the cluster, host:port, joined by commas")
	f.BoolVar(&undo, "undo", false, "make the embedded store the current one again; what was written to the cluster since the move is not in it")
	cmd.MarkFlagsOneRequired("etcd-endpoints", "undo")
	cmd.MarkFlagsMutuallyExclusive("etcd-endpoints", "undo")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if undo {
			return undoMove(cmd.Context(), data, cmd.OutOrStdout())
		}
		if err := access(); err != nil {
			return err
		}
		if err := moveStore(cmd.Context(), data, to, cmd.ErrOrStderr()); err != nil {
			return err
		}
		terminal.Fprintf(cmd.OutOrStdout(), "copied and compared; start the server with: heddle serve --etcd-endpoints %s\n", strings.Join(to.Endpoints, ","))
		return nil
	}
	return cmd
}

// stopFirst adds a hint to an error of a store that is in use.
func stopFirst(err error) error {
	if errors.Is(err, backend.ErrInUse) {
		return fmt.Errorf("%w: stop heddle serve first", err)
	}
	return err
}

func moveStore(ctx context.Context, data string, to backend.Cluster, progress io.Writer) error {
	// Opened exclusively: what a running server writes meanwhile would be lost.
	from, err := backend.Open(ctx, backend.Options{Embedded: &backend.Embedded{DataDir: data, Existing: true}})
	if err != nil {
		return stopFirst(err)
	}
	defer from.Close()
	cluster, err := openCluster(ctx, to)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := backend.Copy(ctx, from, cluster, func(done, all int) { terminal.Fprintf(progress, "%d of %d keys\n", done, all) }); err != nil {
		return err
	}
	return from.MarkMoved(ctx, to.Endpoints, time.Now())
}

// undoMove makes a moved store the current one again.
func undoMove(ctx context.Context, data string, out io.Writer) error {
	st, err := backend.Open(ctx, backend.Options{Embedded: &backend.Embedded{DataDir: data, Existing: true, Moved: true}})
	if err != nil {
		return stopFirst(err)
	}
	defer st.Close()
	moved, err := st.UnmarkMoved(ctx)
	switch {
	case err != nil:
		return err
	case moved == nil:
		return fmt.Errorf("the store in %s was not moved", data)
	}
	terminal.Fprintf(out, "the store in %s is the current one again; start the server without --etcd-endpoints\n"+
		"what servers have written to the cluster at %s since %s is not in it: if any has run there, keep the cluster's data with etcdctl snapshot save and heddle restore instead\n",
		data, strings.Join(moved.Endpoints, ","), moved.At.Format(time.RFC3339))
	return nil
}

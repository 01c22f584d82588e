package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api/hosts"
	"heddle/internal/api/servers"
	"heddle/internal/cli"
	"heddle/internal/command"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/terminal"
)

// drillReport is the outcome of a drill.
type drillReport struct {
	File     string    `json:"file"`
	Written  time.Time `json:"written"`  // when the file was
	Revision int64     `json:"revision"` // of the store when the backup was made
	// Records counts those that a server would start with.
	Records int `json:"records"`
	// Ignored are records of hosts' own that a server would ignore. Hosts write theirs anew.
	Ignored []string             `json:"ignored,omitempty"`
	Tables  []backend.Difference `json:"tables"`
}

func drillCommand() *cobra.Command {
	var data, dir, file string
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Rehearse a restore, and show what it would lose",
		Long: `Restores the newest backup into a temporary directory beside it, starts the store there out of the reach of clients, and
reads all records as a server does when it starts. Then it shows how the backup differs from the store now: what a
restore would lose and bring back. The store in use is only read, and the restored one removed.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	cli.DataFlag(f, &data, "data `directory` of heddle serve")
	f.StringVar(&dir, "backups", "/var/backups/heddle", "`directory` of the backups, of which the newest is taken")
	f.StringVar(&file, "file", "", "the backup to take instead: a `file` that heddle backup has written")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			var err error
			if file, err = newestBackup(dir); err != nil {
				return err
			}
		}
		defer cli.EnterBackupDir(cmd, file)()
		report, err := runDrill(cmd.Context(), data, file)
		if err != nil {
			return err
		}
		if *format == "text" {
			err = report.print(cmd.OutOrStdout())
		} else {
			err = command.PrintTable(cmd.OutOrStdout(), *format, report, nil, nil)
		}
		if err != nil {
			return err
		}
		if err := backend.NoteDrill(data); err != nil {
			return fmt.Errorf("the drill succeeded, but its time cannot be noted for the metrics: %w", err)
		}
		return nil
	}
	return cmd
}

// runDrill rehearses a restore of a file.
func runDrill(ctx context.Context, data, file string) (r drillReport, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return r, err
	}
	st, err := backend.OpenDataDir(ctx, backend.Embedded{DataDir: data}, nil)
	if err != nil {
		return r, err
	}
	defer st.Close()
	r.File, r.Written = file, info.ModTime().UTC().Truncate(time.Second)
	r.Revision, r.Tables, err = st.Drill(ctx, file, nil, func(restored *backend.Etcd) (err error) {
		r.Records, r.Ignored, err = readAsServer(ctx, restored)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("drill: %w", err)
	}
	return r, nil
}

// newestBackup returns the backup in a directory that was written last.
func newestBackup(dir string) (newest string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil {
		return "", err
	}
	var last time.Time
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile
		}
		if info.ModTime().After(last) {
			newest, last = file, info.ModTime()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("drill: no backup *.db in %s: make one with heddle backup, or name one with --file", dir)
	}
	return newest, nil
}

// readAsServer reads all records of a restored store as a server does at its start, and returns how
// many there are. It fails if this version cannot work with the store, or if a record is invalid.
// Those that a host has written, and any host could, are ignored as a server does.
func readAsServer(ctx context.Context, st *backend.Etcd) (records int, ignored []string, err error) {
	if err := schema.KnownFormats().Verify(ctx, st); err != nil {
		return 0, nil, err
	}
	tables := snapshot.Of(slices.Concat(schema.All(), hosts.Tables(), servers.Tables())...)
	all, revision, err := st.List(ctx, schema.Root)
	if err != nil {
		return 0, nil, err
	}
	update, invalid := tables.Replace(tables.Empty(), all, revision, false)
	var errs []error
	for _, i := range invalid {
		err := fmt.Errorf("%s: %w", terminal.Escape(i.Key), i.Err)
		if backend.OfHost(i.Key) {
			ignored = append(ignored, err.Error())
		} else {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return 0, nil, fmt.Errorf("a server would ignore %d records, such as: %w", len(errs), errors.Join(errs[:min(len(errs), mostInvalid)]...))
	}
	return len(update.Changed), ignored, nil
}

// mostInvalid bounds the invalid records that are named.
const mostInvalid = 3

// print prints the tables that differ, and what that means.
func (r drillReport) print(w io.Writer) error {
	terminal.Fprintf(w, "restored %s of %s, at revision %d: a server would start with %d records\n", r.File, r.Written.Format(time.DateTime+" MST"), r.Revision, r.Records)
	if len(r.Ignored) > 0 {
		terminal.Fprintf(w, "it would ignore %d records of hosts' own, which they write anew, such as: %s\n", len(r.Ignored), r.Ignored[0])
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	terminal.Fprintf(table, "TABLE\tSAME\tCHANGED\tONLY IN THE BACKUP\tONLY IN THE STORE\tSUCH AS\n")
	same, topology := 0, 0
	for _, t := range r.Tables {
		same += t.Same
		differs := t.Changed + t.OnlyBackup + t.OnlyStore
		if differs == 0 {
			continue
		}
		if strings.HasPrefix(t.Prefix, schema.TopologyPrefix) {
			topology += differs
		}
		terminal.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\n", t.Prefix, t.Same, t.Changed, t.OnlyBackup, t.OnlyStore,
			strings.TrimPrefix(t.Examples[0], t.Prefix))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	terminal.Fprintf(w, "%d keys are the same; of the topology, which decides what reaches what, %d differ\n", same, topology)
	return nil
}

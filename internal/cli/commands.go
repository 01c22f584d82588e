// Package cli holds the commands that people type. They talk to the APIs over HTTP, and to Calico's objects in etcd as
// the public bindings do, so what they do to a running system any program can do; beside that they may run the offline
// commands.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cloud"
)

// DefaultDataDir is where `heddle serve` keeps the embedded store, its keys and the first clouds.yaml.
const DefaultDataDir = "/var/lib/heddle"

// DefaultStoreQuotaMiB is the size at which an embedded store is full, unless --store-quota says otherwise.
const DefaultStoreQuotaMiB = 8192

// EtcdQuotaUsage describes --etcd-quota.
const EtcdQuotaUsage = "the members' quota-backend-bytes in `MiB`, for a cluster that does not report it: etcd before 3.6; default: etcd's, 2048, is assumed"

// ServerSections is the annotation of flags that repeat a setting of the server: the sections of the configuration file,
// in order, that give their values where a command's own section does not.
const ServerSections = "heddle_server_sections"

// dataFlag adds --data, the server's data directory.
func dataFlag(f *pflag.FlagSet, data *string, usage string) {
	f.StringVar(data, "data", DefaultDataDir, usage)
	ofServer(f, "data")
}

// ofServer marks a flag as a setting of the server.
func ofServer(f *pflag.FlagSet, name string) {
	if err := f.SetAnnotation(name, ServerSections, []string{"serve", "xapi"}); err != nil {
		panic(err) // no such flag
	}
}

// Exit is an error that ends the process with a code of its own. An empty Text has been said already.
type Exit struct {
	Code int
	Text string
}

func (e *Exit) Error() string { return e.Text }

// ExitCode is what the process ends with: 1 failed, 2 wrong usage or input.
func (e *Exit) ExitCode() int { return e.Code }

// Commands are the commands of this package. Main adds the roles, the demo and the benchmarks.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		hostCommand(), translateCommand(), traceCommand(), backupCommand(), restoreCommand(), moveCommand(), storeCommand(), calicoCommand(),
	}
}

// cloudFlags adds the flags that say where the APIs are.
func cloudFlags(cmd *cobra.Command) *cloud.Config {
	c := &cloud.Config{}
	dataFlag(cmd.PersistentFlags(), &c.DataDir, "`directory` of a local heddle serve, whose clouds.yaml is used unless OS_CLOUD or OS_AUTH_URL is set")
	return c
}

// OutputFlag adds -o.
func OutputFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("output", "o", "text", "text or json")
}

// printTable writes rows in columns, or v as JSON when format is json.
func printTable(w io.Writer, format string, v any, header []string, rows [][]string) error {
	switch format {
	case "json":
		return PrintJSON(w, v)
	case "text":
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		printRow(tw, header)
		for _, r := range rows {
			printRow(tw, r)
		}
		return tw.Flush()
	}
	return &Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text or json", format)}
}

func printRow(w io.Writer, cells []string) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, c)
	}
	fmt.Fprintln(w)
}

// PrintJSON writes v, indented.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // selectors have &&
	return e.Encode(v)
}

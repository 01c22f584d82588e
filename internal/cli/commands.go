// Package cli holds the commands that people type. They use the APIs over HTTP, and Calico's
// objects in etcd by the public bindings, as any program can. Some run offline.
package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cloud"
)

// DefaultDataDir holds the embedded store of `heddle serve`, its keys and clouds.yaml.
const DefaultDataDir = "/var/lib/heddle"

// DefaultStoreQuotaMiB is the default of --store-quota.
const DefaultStoreQuotaMiB = 8192

// EtcdQuotaUsage describes --etcd-quota.
const EtcdQuotaUsage = "the members' quota-backend-bytes in `MiB`, for a cluster that does not report it: etcd before 3.6; default: etcd's, 2048, is assumed"

// OtherSections is an annotation of flags that repeat a setting of the server or the agent: the
// sections of the configuration file that provide values which a command's own section lacks.
const OtherSections = "heddle_other_sections"

// DataFlag adds --data, the data directory of the server, which is a setting of it, too.
func DataFlag(f *pflag.FlagSet, data *string, usage string) {
	f.StringVar(data, "data", DefaultDataDir, usage)
	ofServer(f, "data")
}

// ofServer marks a flag as a setting of the server.
func ofServer(f *pflag.FlagSet, name string) { ofSections(f, name, "serve", "xapi") }

func ofSections(f *pflag.FlagSet, name string, sections ...string) {
	if err := f.SetAnnotation(name, OtherSections, sections); err != nil {
		panic(err) // no such flag
	}
}

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return append(resourceCommands(),
		hostCommand(), plugCommand(), unplugCommand(), libvirtHookCommand(), metadataCommand(), bgpCommand(), translateCommand(), traceCommand(), whyCommand(), reachCommand(), diffCommand(), historyCommand(), dropsCommand(), flowsCommand(), backupCommand(), restoreCommand(), moveCommand(), clusterCommand(), caCommand(), storeCommand(), upgradeCommand(), calicoCommand(), statusCommand(), connectivityCommand(), reloadCommand(), logLevelCommand(),
	)
}

// cloudFlags adds the flags that locate the APIs.
func cloudFlags(cmd *cobra.Command) *cloud.Config {
	c := &cloud.Config{TokenDir: cloud.UserTokenDir()}
	DataFlag(cmd.PersistentFlags(), &c.DataDir, "`directory` of a local heddle serve, whose clouds.yaml is used unless OS_CLOUD or OS_AUTH_URL is set")
	return c
}

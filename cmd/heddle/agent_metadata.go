package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"heddle/internal/metadata"
	"heddle/internal/sealing"
)

// metadataConfig holds the settings of a host's metadata service.
type metadataConfig struct {
	novaURL, secretFile string
	hopLimit            int

	nova   *url.URL // parsed from novaURL; nil: Heddle answers itself
	secret string   // read from secretFile
}

func (c *metadataConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.novaURL, "nova-metadata-url", "", "`URL` of Nova's metadata service, which answers this host's machines in place of Heddle, such as http://controller:8775")
	f.StringVar(&c.secretFile, "metadata-secret-file", "", "`file` with Nova's metadata_proxy_shared_secret, for --nova-metadata-url")
	f.IntVar(&c.hopLimit, "metadata-hop-limit", 0, "`hops` that answers for machines make: with 1, containers behind a machine that routes get none (default the kernel's, 64)")
}

// check reads the secret.
func (c *metadataConfig) check() (err error) {
	switch {
	case c.hopLimit < 0 || c.hopLimit > 255:
		return usagef("--metadata-hop-limit %d: want a number of hops from 1 to 255, or 0 for the kernel's default", c.hopLimit)
	case c.novaURL == "" && c.secretFile == "":
		return nil
	case c.novaURL == "":
		return usagef("--metadata-secret-file goes with --nova-metadata-url")
	case c.secretFile == "":
		return usagef("--nova-metadata-url goes with --metadata-secret-file: Nova believes no request that is not signed with its metadata_proxy_shared_secret")
	}
	if c.nova, err = metadata.ParseNovaURL(c.novaURL); err != nil {
		return usagef("--nova-metadata-url %w", err)
	}
	raw, err := os.ReadFile(c.secretFile)
	if err != nil {
		return usagef("--metadata-secret-file: %w", err)
	}
	if c.secret = strings.TrimSpace(string(raw)); c.secret == "" {
		return usagef("--metadata-secret-file %s: the file is empty: put Nova's metadata_proxy_shared_secret there", c.secretFile)
	}
	return nil
}

// metadataKeyFile is the file in the state directory with the key for which servers seal machines'
// secrets.
const metadataKeyFile = "metadata.key"

// metadataProxy returns what answers this host's workloads, the same for agents of all roles; nil
// if the store may be another system's, in which no port is this host's.
func (t *agents) metadataProxy() (*metadata.Proxy, error) {
	c := &t.config.metadata
	if t.proxy != nil || !t.config.inHeddle() {
		return t.proxy, nil
	}
	key, err := sealing.LoadHostKey(filepath.Join(t.config.state, metadataKeyFile))
	if err != nil {
		return nil, fmt.Errorf("key of machines' metadata: %w", err)
	}
	log := t.log.With("part", "metadata")
	machines := metadata.NewMachines(metadata.MachinesOptions{Store: t.store, HostID: t.id, Key: key, Snapshots: t.config.snapshots(), Log: log})
	t.following = append(t.following, machines)
	var source metadata.Source = metadata.NewOwn(machines.Find, log)
	if c.nova != nil {
		source = metadata.NewNova(machines.Find, c.nova, c.secret, log)
	}
	t.proxy = metadata.NewProxy(source, log)
	t.proxy.HopLimit = c.hopLimit
	t.metrics.Register(t.proxy.Metrics)
	return t.proxy, nil
}

package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"heddle/internal/dnsupdate"
)

// dnsUpdateConfig names a DNS server on which names are published.
type dnsUpdateConfig struct {
	server                     string
	zones                      []string
	key, secretFile, algorithm string
}

func (c *dnsUpdateConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.server, "dns-update-server", "", "`address` of a DNS server on which the names of floating IPs and ports are published (RFC 2136); default port 53")
	f.StringSliceVar(&c.zones, "dns-update-zone", nil, "`zones` that may be updated there, joined by commas, those for reverse lookups too; repeatable")
	f.StringVar(&c.key, "dns-update-key", "", "`name` of the TSIG key that signs updates; none: they are not signed")
	f.StringVar(&c.secretFile, "dns-update-secret-file", "", "`file` with the key's secret in base64")
	f.StringVar(&c.algorithm, "dns-update-algorithm", "hmac-sha256", "the key's `algorithm`: hmac-sha256, hmac-sha384 or hmac-sha512")
}

// check rejects parts of the configuration without the rest.
func (c *dnsUpdateConfig) check() error {
	switch {
	case c.server == "" && (len(c.zones) > 0 || c.key != "" || c.secretFile != ""):
		return usagef("--dns-update-zone, --dns-update-key and --dns-update-secret-file need --dns-update-server")
	case (c.key == "") != (c.secretFile == ""):
		return usagef("--dns-update-key and --dns-update-secret-file go together")
	}
	return nil
}

// tsigKey returns the key that signs updates; the zero Key without one.
func (c *dnsUpdateConfig) tsigKey() (dnsupdate.Key, error) {
	if c.key == "" {
		return dnsupdate.Key{}, nil
	}
	secret, err := os.ReadFile(c.secretFile)
	if err != nil {
		return dnsupdate.Key{}, usagef("--dns-update-secret-file: %w", err)
	}
	return dnsupdate.Key{Name: c.key, Algorithm: c.algorithm, Secret: strings.TrimSpace(string(secret))}, nil
}

// addDNSUpdates adds the publisher of names, if there is a server for them.
func (s *server) addDNSUpdates() error {
	c := s.config.dnsUpdate
	if c.server == "" {
		return nil
	}
	key, err := c.tsigKey()
	if err != nil {
		return err
	}
	p, err := dnsupdate.New(dnsupdate.Options{
		Store: s.store, Objects: s.replica, Server: c.server, Zones: c.zones, Key: key, Log: s.log.With("part", "dns updates"),
	})
	if err != nil {
		return usagef("--dns-update-server %s: %w", c.server, err)
	}
	s.tasks = append(s.tasks, p)
	s.metrics.Register(p.Metrics)
	return nil
}

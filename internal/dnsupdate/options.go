package dnsupdate

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// Options of the publisher.
type Options struct {
	Store   store.Store
	Objects *replica.Replica // of schema's tables
	Server  string           // address, with or without a port
	Zones   []string         // that the server lets be updated
	Key     Key              // zero: updates are not signed
	TTL     time.Duration    // after which another server publishes when this one is gone; 0 = 15 s
	Log     *slog.Logger
}

// Key is a TSIG key (RFC 8945).
type Key struct {
	Name      string
	Algorithm string // such as hmac-sha256
	Secret    string // in base64
}

// algorithms returns the names of the TSIG algorithms.
func algorithms() []string { return []string{"hmac-sha256", "hmac-sha384", "hmac-sha512"} }

// complete checks the options and brings names into their canonical form.
func (o Options) complete() (Options, error) {
	if _, _, err := net.SplitHostPort(o.Server); err != nil {
		o.Server = net.JoinHostPort(strings.Trim(o.Server, "[]"), "53")
	}
	if len(o.Zones) == 0 {
		return o, errors.New("no zone to publish names in")
	}
	zones := make([]string, len(o.Zones))
	for i, z := range o.Zones {
		if _, ok := dns.IsDomainName(z); !ok || strings.Trim(z, ".") == "" {
			return o, fmt.Errorf("%q is no zone", z)
		}
		zones[i] = strings.ToLower(dns.Fqdn(z))
	}
	o.Zones = zones
	if o.TTL == 0 {
		o.TTL = 15 * time.Second
	}
	if o.Key == (Key{}) {
		return o, nil
	}
	return o, o.Key.complete()
}

func (k *Key) complete() error {
	if _, ok := dns.IsDomainName(k.Name); !ok || k.Name == "" {
		return fmt.Errorf("%q is no name of a TSIG key", k.Name)
	}
	if !slices.Contains(algorithms(), k.Algorithm) {
		return fmt.Errorf("TSIG algorithm %q is none of %s", k.Algorithm, strings.Join(algorithms(), ", "))
	}
	if b, err := base64.StdEncoding.DecodeString(k.Secret); err != nil || len(b) == 0 {
		return errors.New("the secret of the TSIG key is not in base64")
	}
	k.Name, k.Algorithm = strings.ToLower(dns.Fqdn(k.Name)), dns.Fqdn(k.Algorithm)
	return nil
}

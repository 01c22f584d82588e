package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/cli"
	"heddle/internal/store/backend"
	"heddle/internal/telemetry"
)

// certificateFiles names files (PEM) of certificates that a process uses. Keys are the values of
// the metric's label, and the words of heddle doctor.
type certificateFiles map[string]string

// Certificates that end sooner than this were not renewed as they should. A host renews its own,
// which is good for a week, at half of that.
const (
	certificateLeft     = 14 * 24 * time.Hour
	hostCertificateLeft = 2 * 24 * time.Hour
	// What an authority has signed ends with it.
	authorityLeft = 180 * 24 * time.Hour
)

// serverCertificates returns the files of a server. Those of the embedded store are there once it
// was opened with --agents-listen.
func (c *serveConfig) serverCertificates() certificateFiles {
	f := certificateFiles{"api": c.tlsCert, "etcd-client": c.etcd.CertFile, "etcd-authority": c.etcd.CAFile, "hosts-authority": c.hostsCACert}
	if len(c.etcd.Endpoints) == 0 && c.agents != "" {
		f["store"], _ = backend.ServerCertificate(c.data)
		f["hosts-authority"] = backend.AuthorityFile(c.data)
	}
	return f
}

// hostCertificates returns the files of a host that joined with the credentials in dir, or of one
// that was given files for its etcd.
func (c *agentConfig) hostCertificates(dir string) certificateFiles {
	f := certificateFiles{"etcd-client": c.etcd.CertFile, "etcd-authority": c.etcd.CAFile}
	if joined, err := hosts.Load(dir); err == nil {
		f["host"], f["store-authority"] = joined.CertFile, joined.CAFile
	}
	return f
}

// metrics returns the ends of the certificates that can be read.
func (f certificateFiles) metrics() (values []telemetry.Value) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if f[name] == "" {
			continue
		}
		if end, err := certificateEnd(f[name]); err == nil {
			values = append(values, telemetry.Gauge.Of("heddle_certificate_end_timestamp_seconds",
				"End of a certificate that this process uses, or the earliest of a file's, in seconds since 1970.", int(end.Unix())).With("certificate", name))
		}
	}
	return values
}

// certificateChecks returns heddle doctor's checks that the certificates of a machine's server and
// agent do not end soon.
func certificateChecks(server cli.Server, agent cli.Agent) []cli.Check {
	c := serveConfig{data: server.Data, tlsCert: server.TLSCert, agents: "any"}
	c.etcd.Cluster = server.Cluster
	a := agentConfig{}
	return append(c.serverCertificates().checks("serve"), a.hostCertificates(agent.State).checks("agent")...)
}

// checks returns a check of each certificate, for a part of Heddle. Files that are not there are
// no matter of theirs.
func (f certificateFiles) checks(part string) (all []cli.Check) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if f[name] == "" {
			continue
		}
		left, fix := certificateLeft, "renew "+f[name]+": Heddle does not; see docs/runbooks/HeddleCertificateEnds.md"
		switch name {
		case "host":
			left, fix = hostCertificateLeft, "let the agent reach the operators' API, by which it renews its certificate; after 30 days without one it has to join again"
		case "hosts-authority", "store-authority":
			left, fix = authorityLeft, "exchange the authority: heddle ca rotate, or as docs/guides/authority.md says for files of your own"
		case "store":
			fix = "start heddle serve, which renews it"
		}
		all = append(all, cli.Check{Name: "certificate " + name, For: part, Fix: fix, Run: func(context.Context) error {
			return checkCertificateEnd(f[name], time.Now().Add(left))
		}})
	}
	return all
}

// checkCertificateEnd returns an error if a certificate in the file ends before a time.
func checkCertificateEnd(file string, before time.Time) error {
	end, err := certificateEnd(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && end.Before(before) {
		err = fmt.Errorf("%s ends on %s", file, end.UTC().Format(time.RFC3339))
	}
	return err
}

// certificateEnd returns the earliest end of the certificates in a file (PEM).
func certificateEnd(file string) (end time.Time, err error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return end, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return end, fmt.Errorf("%s: %w", file, err)
		}
		if end.IsZero() || cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	if end.IsZero() {
		return end, fmt.Errorf("%s: no certificate in PEM found", file)
	}
	return end, nil
}

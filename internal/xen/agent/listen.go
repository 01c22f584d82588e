package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"heddle/internal/xen/ovs"
)

// Listen has Open vSwitch's database listen on a network for tunnel controllers. Whoever has a
// certificate signed by CA may set up this host's switch, so CA is an authority that signs for
// controllers alone: ovsdb-server looks at nothing else.
type Listen struct {
	Address netip.Addr
	// PEM files that ovsdb-server can read. It follows changes of CA; it reads Certificate and Key
	// again only when both have changed.
	Certificate, Key, CA string
}

// controllerPort is the port of OVSDB, by IANA: controllers connect to a host's database there.
const controllerPort = 6640

func (l *Listen) check() error {
	if !l.Address.IsValid() {
		return errors.New("agent of a pool's host: Open vSwitch's database is to listen, but no address is given")
	}
	for _, file := range []string{l.Certificate, l.Key, l.CA} {
		if !filepath.IsAbs(file) {
			return fmt.Errorf("agent of a pool's host: certificate file %q: want an absolute path, ovsdb-server runs elsewhere", file)
		}
		if file == l.CA {
			continue // it comes with the store
		}
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("agent of a pool's host: Open vSwitch's database is to listen with a certificate: %w", err)
		}
	}
	return nil
}

// ready reports whether the authority is there: without it the database would accept no client.
func (l *Listen) ready() bool {
	_, err := os.Stat(l.CA)
	return err == nil
}

// target is the Manager's, as ovs-vswitchd.conf.db(5) has it.
func (l *Listen) target() string {
	if l.Address.Is6() {
		return fmt.Sprintf("pssl:%d:[%s]", controllerPort, l.Address)
	}
	return fmt.Sprintf("pssl:%d:%s", controllerPort, l.Address)
}

// edit has the database listen, and no more where it listened before.
func (l *Listen) edit(edit *ovs.Edit) error {
	edit.KeepManagers(l.target())
	if err := edit.EnsureSSL(l.Key, l.Certificate, l.CA); err != nil {
		return fmt.Errorf("%w: take it away with ovs-vsctl del-ssl, or do without --xen-ovsdb-listen", err)
	}
	edit.EnsureManager(l.target())
	return nil
}

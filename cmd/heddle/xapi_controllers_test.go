package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/netlab"
	"heddle/internal/store/backend"
)

// TestSwitchesTrustControllersAlone: a host's certificate opens no other host's switch; a
// controller's does, before and after the hosts' certificates are renewed, which the switches
// present at once.
func TestSwitchesTrustControllersAlone(t *testing.T) {
	t.Parallel()
	p := startPool(t, 2, "--host-certificate-life", "30s")
	first, second := p.lab.Hosts()[0], p.lab.Hosts()[1]
	state := filepath.Join(p.data, first.Name)
	joined, err := hosts.Load(state)
	if err != nil {
		t.Fatal(err)
	}
	other, err := hosts.Load(filepath.Join(p.data, second.Name))
	if err != nil {
		t.Fatal(err)
	}
	host, err := tls.LoadX509KeyPair(joined.CertFile, joined.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := openData(t, p.data).NewController(t.Context(), "tunnel-controller")
	if err != nil {
		t.Fatal(err)
	}
	controller, err := certificate.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(backend.AuthorityFile(p.data))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	// ask has the second host's switch list its databases, and returns the serial number of its
	// certificate.
	ask := func(with *tls.Certificate) (serial *big.Int, err error) {
		err = p.lab.Fabric.Do(func() error {
			d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: backend.CertificateName(other.HostID), Certificates: []tls.Certificate{*with}}}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(second.Address.String(), "6640"))
			if err != nil {
				return err
			}
			defer conn.Close()
			serial = conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber
			if _, err := conn.Write([]byte(`{"id":0,"method":"list_dbs","params":[]}`)); err != nil {
				return err
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				return err
			}
			var answer struct{ Result []string }
			return json.NewDecoder(conn).Decode(&answer)
		})
		return serial, err
	}
	var before *big.Int
	p.until("the switch to answer a controller", func() bool {
		before, err = ask(controller)
		return err == nil
	})
	if _, err := ask(&host); err == nil {
		t.Error("a host's certificate opens the switch of another")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = netlab.Until(ctx, "the switch to present the renewed certificate", func() (bool, error) {
		now, err := ask(controller)
		return err == nil && now.Cmp(before) != 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := ask(&host); err == nil {
		t.Error("a host's certificate opens the switch of another after a renewal")
	}
}

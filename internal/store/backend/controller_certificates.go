package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"heddle/internal/store"
)

// Certificates (PEM) of authorities that hosts and controllers may read, and servers write.
const (
	authoritiesPrefix = "/heddle/authorities/"
	// ControllersAuthorityKey holds that of tunnel controllers, the only one that switches trust.
	ControllersAuthorityKey = authoritiesPrefix + "controllers"
	// hostsAuthorityKey holds that of hosts, by which controllers verify hosts' switches.
	hostsAuthorityKey = authoritiesPrefix + "hosts"
)

// controllersKey holds the authority of controllers with its private key. Only root can read it.
const controllersKey = "/heddle-controllers"

// controllerLife is the validity of a controller's certificate. It is renewed at half of that.
const controllerLife = 7 * 24 * time.Hour

// PublishAuthorities publishes the certificates of the authority of tunnel controllers, which it
// makes if need be, and of hosts (PEM). They differ so that no host can open another's switch.
func (s *Etcd) PublishAuthorities(ctx context.Context, hosts []byte) error {
	controllers, err := s.controllers(ctx)
	if err != nil {
		return err
	}
	for key, value := range map[string][]byte{ControllersAuthorityKey: controllers.pem, hostsAuthorityKey: hosts} {
		if err := s.set(ctx, key, value); err != nil {
			return err
		}
	}
	return nil
}

// HostsAuthority returns the certificate (PEM) of hosts' authority, or ErrNotFound.
func (s *Etcd) HostsAuthority(ctx context.Context) ([]byte, error) {
	kv, err := s.Get(ctx, hostsAuthorityKey)
	return kv.Value, err
}

// controllers returns the authority of controllers, and makes it if there is none.
func (s *Etcd) controllers(ctx context.Context) (*Authority, error) {
	for {
		kv, err := s.Get(ctx, controllersKey)
		if err == nil {
			var stored storedAuthority
			var a *Authority
			if err = json.Unmarshal(kv.Value, &stored); err == nil {
				a, err = parseAuthority([]byte(stored.Certificate), []byte(stored.Key))
			}
			if err != nil {
				return nil, fmt.Errorf("authority of controllers: %w", err)
			}
			return a, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		cert, key, err := newAuthority("Heddle tunnel controllers", time.Now())
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(storedAuthority{Certificate: string(cert), Key: string(key)})
		if err != nil {
			return nil, err
		}
		if _, err := s.Commit(ctx, []store.Cond{{Key: controllersKey}}, []store.Op{{Key: controllersKey, Value: value}}); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// Controller is a tunnel controller's certificate, which is renewed in memory.
type Controller struct {
	name      string
	authority *Authority
	now       func() time.Time

	mu   sync.Mutex
	pair *tls.Certificate
}

// NewController returns a controller's certificate. Only root may call it.
func (s *Etcd) NewController(ctx context.Context, name string) (*Controller, error) {
	a, err := s.controllers(ctx)
	if err != nil {
		return nil, err
	}
	c := &Controller{name: name, authority: a, now: time.Now}
	_, err = c.Certificate(nil)
	return c, err
}

// Certificate returns the current certificate, for tls.Config.GetClientCertificate.
func (c *Controller) Certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.pair != nil && now.Before(c.pair.Leaf.NotAfter.Add(-controllerLife/2)) {
		return c.pair, nil
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	certPEM, err := c.authority.sign(certificate(c.name, now, controllerLife, x509.ExtKeyUsageClientAuth), key.Public())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	c.pair = &pair
	return c.pair, nil
}

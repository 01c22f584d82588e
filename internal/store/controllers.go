package store

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Certificates of authorities that hosts and controllers may read, as PEM. Servers write them.
const (
	authoritiesPrefix = "/heddle/authorities/"
	// ControllersAuthorityKey holds that of tunnel controllers: the only one that hosts' switches trust.
	ControllersAuthorityKey = authoritiesPrefix + "controllers"
	// hostsAuthorityKey holds that of hosts, by which controllers know hosts' switches.
	hostsAuthorityKey = authoritiesPrefix + "hosts"
)

// controllersKey holds the authority of controllers with its private key. Like authorityKey it is beside /heddle/: no role
// reaches it, only root.
const controllersKey = "/heddle-controllers"

// controllerLife is how long a controller's certificate is good. It is made anew at half of it.
const controllerLife = 7 * 24 * time.Hour

// PublishAuthorities sees that the store has an authority of tunnel controllers, and that its certificate and the given one
// of hosts (PEM) can be read by those who verify by them. A host's certificate is not one of a controller, so that no host
// can open another's switch.
func (s *Etcd) PublishAuthorities(ctx context.Context, hosts []byte) error {
	controllers, err := s.controllers(ctx)
	if err != nil {
		return err
	}
	for key, value := range map[string][]byte{ControllersAuthorityKey: controllers.pem, hostsAuthorityKey: hosts} {
		kv, err := s.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if string(kv.Value) == string(value) {
			continue
		}
		if _, err := s.Commit(ctx, nil, []Op{{Key: key, Value: value}}); err != nil {
			return err
		}
	}
	return nil
}

// HostsAuthority returns the certificate (PEM) of the authority of hosts, or ErrNotFound where hosts cannot join.
func (s *Etcd) HostsAuthority(ctx context.Context) ([]byte, error) {
	kv, err := s.Get(ctx, hostsAuthorityKey)
	return kv.Value, err
}

// controllers returns the authority of controllers. The first to ask makes it.
func (s *Etcd) controllers(ctx context.Context) (*Authority, error) {
	for {
		kv, err := s.Get(ctx, controllersKey)
		if err == nil {
			var stored storedAuthority
			if err := json.Unmarshal(kv.Value, &stored); err != nil {
				return nil, fmt.Errorf("authority of controllers: %w", err)
			}
			return parseAuthority([]byte(stored.Certificate), []byte(stored.Key))
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		cert, key, err := newAuthority("Heddle tunnel controllers", time.Now())
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(storedAuthority{string(cert), string(key)})
		if err != nil {
			return nil, err
		}
		if _, err := s.Commit(ctx, []Cond{{Key: controllersKey}}, []Op{{Key: controllersKey, Value: value}}); err != nil && !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
}

func parseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("authority of controllers: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("authority of controllers: a key that cannot sign")
	}
	return &Authority{pair.Leaf, certPEM, signer}, nil
}

// Controller is the certificate of a tunnel controller, renewed in memory for as long as the process runs.
type Controller struct {
	name      string
	authority *Authority
	now       func() time.Time

	mu   sync.Mutex
	pair *tls.Certificate
}

// NewController returns a controller's certificate, signed by the store's authority of controllers. Only root gets one.
func (s *Etcd) NewController(ctx context.Context, name string) (*Controller, error) {
	a, err := s.controllers(ctx)
	if err != nil {
		return nil, err
	}
	c := &Controller{name: name, authority: a, now: time.Now}
	_, err = c.Certificate(nil)
	return c, err
}

// Certificate returns the certificate to present now, for tls.Config.GetClientCertificate.
func (c *Controller) Certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.pair != nil && now.Before(c.pair.Leaf.NotAfter.Add(-controllerLife/2)) {
		return c.pair, nil
	}
	key, _, err := newKey()
	if err != nil {
		return nil, err
	}
	certPEM, err := c.authority.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: c.name},
		NotBefore:   now.Add(-ClockSkew),
		NotAfter:    now.Add(controllerLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certPEM)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	c.pair = &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key, Leaf: leaf}
	return c.pair, nil
}

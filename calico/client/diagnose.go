package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"
)

// diagnoseTimeout bounds the attempt to reach one endpoint.
const diagnoseTimeout = time.Second

// explain is as the function of this name, and says of an etcd that cannot be reached what stands in the way: etcd's
// own client tells only that time was up.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	err = explain(ctx, what, err)
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if cause := diagnose(c.endpoints, c.tls); cause != nil {
		return fmt.Errorf("%w; %w", err, cause)
	}
	return err
}

// diagnose says which endpoints cannot be reached, and why.
func diagnose(endpoints []string, config *tls.Config) error {
	var all []error
	for _, e := range endpoints {
		if err := reach(e, config); err != nil {
			all = append(all, fmt.Errorf("%s: %w", e, err))
		}
	}
	return errors.Join(all...)
}

// reach connects to an endpoint, and shakes hands if that is to be with TLS.
func reach(endpoint string, config *tls.Config) error {
	network, address := "tcp", endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		address = rest
		if strings.HasPrefix(scheme, "unix") {
			network = "unix"
		}
	}
	conn, err := net.DialTimeout(network, address, diagnoseTimeout)
	if err != nil || config == nil {
		if err == nil {
			conn.Close()
		}
		return err
	}
	defer conn.Close()
	config = config.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			config.ServerName = path.Base(address) // of a unix socket, as etcd's client has it
		}
	}
	if err := conn.SetDeadline(time.Now().Add(diagnoseTimeout)); err != nil {
		return err
	}
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		return err
	}
	// A server that does not like the client's certificate says so only after the handshake.
	if _, err = secure.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

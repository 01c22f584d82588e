package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"heddle/internal/netlab"
)

// cloud holds the credentials that the first start has written.
type cloud struct {
	Auth struct {
		AuthURL  string `json:"auth_url"`
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

func readCloud(t testing.TB, data string) cloud {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(data, "clouds.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Clouds map[string]cloud `json:"clouds"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return file.Clouds["heddle"]
}

// client calls the APIs of one server, from inside its namespace.
type client struct {
	http  *http.Client
	base  string // URL; of Neutron, if nothing else is said
	token string
}

// dialer opens connections inside a namespace.
func dialer(ns *netlab.Namespace) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// newClient is a client of the server at this address, with a token or without.
func newClient(ns *netlab.Namespace, address, token string) *client {
	return &client{
		http:  &http.Client{Transport: &http.Transport{DialContext: dialer(ns), MaxIdleConnsPerHost: 16}},
		base:  "http://" + address + ":9696",
		token: token,
	}
}

// trust makes the client know servers by an authority in a PEM file.
func (c *client) trust(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatalf("%s: no certificate", file)
	}
	c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
}

// login logs in as the first administrator of a server at an address, whose data directory has his
// password.
func login(t testing.TB, ns *netlab.Namespace, address, data string) *client {
	t.Helper()
	c, who := newClient(ns, address, ""), readCloud(t, data)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := netlab.Until(ctx, "a log-in", func() (bool, error) {
		err := c.login(ctx, "http://"+address+":5000", who)
		var refused *statusError
		if errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable {
			return false, nil // a store on a busy disk
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// login takes a token for the project admin.
func (c *client) login(ctx context.Context, identity string, who cloud) error {
	type m = map[string]any
	domain := m{"id": "default"}
	ask := m{"auth": m{
		"identity": m{"methods": []string{"password"}, "password": m{"user": m{"name": who.Auth.Username, "password": who.Auth.Password, "domain": domain}}},
		"scope":    m{"project": m{"name": "admin", "domain": domain}},
	}}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, identity+"/v3/auth/tokens", bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		raw, _ := io.ReadAll(res.Body)
		return &statusError{res.StatusCode, fmt.Sprintf("log in: %s: %s", res.Status, raw)}
	}
	c.token = res.Header.Get("X-Subject-Token")
	return nil
}

// statusError is an answer other than success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// timeout bounds one call. It exceeds the time in which a cluster elects a leader on a busy
// machine.
const timeout = 20 * time.Second

// call sends body as JSON, unless nil, and reads the answer into out, unless nil. A refusal is a
// *statusError.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("X-Auth-Token", c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return &statusError{res.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, res.Status, raw)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// object is any of Neutron's, as far as these tests look.
type object struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	NetworkID string `json:"network_id"`
}

// create makes one object and returns it. kind is its name in the body, as "port"; its path is that
// with an s and dashes.
func (c *client) create(ctx context.Context, kind string, attributes map[string]any) (object, error) {
	var answer map[string]object
	err := c.call(ctx, http.MethodPost, "/v2.0/"+strings.ReplaceAll(kind, "_", "-")+"s", map[string]any{kind: attributes}, &answer)
	return answer[kind], err
}

// mustCreate is create for what must not fail.
func (c *client) mustCreate(t testing.TB, kind string, attributes map[string]any) object {
	t.Helper()
	o, err := c.create(t.Context(), kind, attributes)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// list is all objects of a kind, by id.
func (c *client) list(t *testing.T, kind string) map[string]object {
	t.Helper()
	var answer map[string][]object
	if err := c.call(t.Context(), http.MethodGet, "/v2.0/"+kind+"s", nil, &answer); err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, o := range answer[kind+"s"] {
		all[o.ID] = o
	}
	return all
}

// unlimited lifts the quotas of the project admin.
func (c *client) unlimited(t testing.TB) {
	t.Helper()
	network := c.mustCreate(t, "network", map[string]any{"name": "to learn the project"})
	var answer struct {
		Network struct {
			ProjectID string `json:"project_id"`
		} `json:"network"`
	}
	if err := c.call(t.Context(), http.MethodGet, "/v2.0/networks/"+network.ID, nil, &answer); err != nil {
		t.Fatal(err)
	}
	limits := map[string]any{"quota": map[string]int{"network": -1, "subnet": -1, "port": -1}}
	if err := c.call(t.Context(), http.MethodPut, "/v2.0/quotas/"+answer.Network.ProjectID, limits, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.call(t.Context(), http.MethodDelete, "/v2.0/networks/"+network.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
}

package xe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/internal/xen/client"
)

// Defaults of the connection.
const (
	defaultServer = "127.0.0.1"
	defaultUser   = "root"
	// plainPort is the port of `heddle xapi` without TLS, on loopback alone, and securePort that
	// with TLS. A foreign pool's hosts answer on foreignPort.
	plainPort, securePort, foreignPort = "8080", "8443", "443"
)

// callTimeout bounds one call: starting a VM or joining a pool may take minutes.
const callTimeout = 10 * time.Minute

// loginTimeout bounds the login, which every server answers soon.
const loginTimeout = 30 * time.Second

// connection holds the pool's address and the credentials.
type connection struct {
	server, port, user, password string
	authorities, fingerprint     string // by which the server's certificate is known: a file, as client.Authorities reads it, and a fingerprint
	plain                        bool   // no TLS
	timeout                      time.Duration
}

// settings are those of the connection: of the command line, else of XE_EXTRA_ARGS, else of ~/.xe.
func settings(a *arguments, env Environment) (map[string]string, error) {
	all, err := fileSettings(env.Home)
	if err != nil {
		return nil, err
	}
	extra, err := extraSettings(env.ExtraArgs)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, extra)
	maps.Copy(all, a.connection)
	return all, nil
}

// fileSettings reads ~/.xe: lines key=value, and comments after #. Unknown keys are ignored.
func fileSettings(home string) (map[string]string, error) {
	all := map[string]string{}
	if home == "" {
		return all, nil
	}
	text, err := os.ReadFile(filepath.Join(home, ".xe"))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && slices.Contains(connectionKeys, key) {
			all[key] = value
		}
	}
	return all, nil
}

// connectionOf checks settings.
func connectionOf(ctx context.Context, s map[string]string, env Environment) (connection, error) {
	c := connection{server: s["server"], port: s["port"], user: s["username"], password: s["password"], plain: isTrue(s["nossl"]),
		authorities: s["ca"], fingerprint: s["fingerprint"], timeout: loginTimeout}
	c.server = cmp.Or(c.server, defaultServer)
	if file := s["passwordfile"]; file != "" {
		user, password, err := readPasswordFile(file)
		if err != nil {
			return c, err
		}
		c.user, c.password = user, password
	}
	c.user = cmp.Or(c.user, defaultUser)
	if _, given := s["password"]; given || s["passwordfile"] != "" {
		return c, nil
	}
	if c.user == defaultUser && client.Loopback(c.server) {
		if c.password = ownPassword(env.RootPasswordFile); c.password != "" && !c.plain && c.authorities == "" && c.fingerprint == "" {
			c.authorities = env.AuthorityFile // anyone on this machine could listen where no server does
		}
	}
	if c.password == "" && env.AskPassword != nil {
		var err error
		if c.password, err = env.AskPassword(ctx); err != nil {
			return c, fmt.Errorf("password: %w", err)
		}
	}
	return c, nil
}

// readPasswordFile reads a file of two lines: user and password.
func readPasswordFile(file string) (user, password string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("password file: %w", err)
	}
	user, rest, ok := strings.Cut(string(text), "\n")
	password, _, _ = strings.Cut(rest, "\n")
	if user = strings.TrimSpace(user); user == "" || !ok {
		return "", "", fmt.Errorf("password file %s: want two lines, user and password", file)
	}
	return user, strings.TrimRight(password, "\r"), nil
}

// ownPassword returns root's from the server's file on this machine, "" if it cannot be read.
func ownPassword(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "" // the login says what is missing
	}
	return strings.TrimSpace(string(text))
}

// urls returns the URLs at which the pool may answer, the likeliest first.
func (c connection) urls() []string {
	host := strings.Trim(c.server, "[]")
	at := func(scheme, port string) string {
		return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}).String()
	}
	trusting := c.authorities != "" || c.fingerprint != ""
	switch {
	case c.plain && c.port == "":
		return []string{at("http", plainPort), at("http", "80")}
	case c.plain, c.port == plainPort && client.Loopback(host) && !trusting:
		return []string{at("http", c.port)}
	case c.port != "":
		return []string{at("https", c.port)}
	case client.Loopback(host) && !trusting:
		return []string{at("http", plainPort), at("https", securePort), at("https", foreignPort)}
	}
	return []string{at("https", securePort), at("https", foreignPort)}
}

// dial logs in at the first URL where something answers.
func (c connection) dial(ctx context.Context) (*client.Session, error) {
	o := client.Options{User: c.user, Password: c.password, Fingerprint: c.fingerprint, JSON: true, Timeout: callTimeout, Originator: "xe"}
	if c.authorities != "" {
		var err error
		if o.TLS, err = client.Authorities(c.authorities); err != nil {
			return nil, err
		}
	}
	var unreachable error
	for _, o.URL = range c.urls() {
		s, err := c.dialOne(ctx, o)
		if err == nil {
			return s, nil
		}
		if err = explain(err); !isRefused(err) {
			return nil, err
		}
		if unreachable == nil {
			unreachable = err
		}
	}
	return nil, unreachable
}

// dialOne logs in at one URL.
func (c connection) dialOne(ctx context.Context, o client.Options) (*client.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer in %s", c.timeout))
	defer cancel()
	return client.Dial(ctx, o)
}

// isRefused reports whether nothing answers at an address.
func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// explain makes one line of why a server cannot be reached, naming its address: it may be the
// coordinator that another named. Other errors name it already.
func explain(err error) error {
	var request *url.Error
	if !errors.As(err, &request) {
		return err
	}
	_, place, _ := strings.Cut(request.URL, "://")
	place, _, _ = strings.Cut(place, "/")
	if print := client.Presented(err); print != "" {
		return fmt.Errorf("cannot connect to %s: %w; if it is known to you by the fingerprint %s, say fingerprint=%s, here or in ~/.xe; or name its authority with ca=FILE", place, request.Err, print, print)
	}
	return fmt.Errorf("cannot connect to %s: %w", place, request.Err)
}

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxAnswer bounds the answers that a client reads, bytes: profiles and metrics are smaller.
const maxAnswer = 64 << 20

// Client calls the socket of a role.
type Client struct {
	Role string
	path string
	http *http.Client
}

// Dial returns a client of a role's socket, which it connects to at each call.
func Dial(dir, role string) *Client {
	path := Path(dir, role)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{Role: role, path: path, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Roles returns the roles that have a socket in dir, also of a process that was killed.
func Roles(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var roles []string
	for _, p := range paths {
		roles = append(roles, strings.TrimSuffix(filepath.Base(p), suffix))
	}
	slices.Sort(roles)
	return roles, nil
}

// ErrNotRunning: no process serves the socket.
var ErrNotRunning = errors.New("not running")

// Status returns the role's state.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Reload has the role read its settings and certificates again.
func (c *Client) Reload(ctx context.Context) (r Reloaded, err error) {
	return r, c.call(ctx, http.MethodPost, "/v1/reload", nil, &r)
}

// LogLevels returns the levels of the role's log.
func (c *Client) LogLevels(ctx context.Context) (l LogLevels, err error) {
	return l, c.call(ctx, http.MethodGet, "/v1/log-level", nil, &l)
}

// SetLogLevel changes one, and returns all.
func (c *Client) SetLogLevel(ctx context.Context, change LogLevelChange) (l LogLevels, err error) {
	return l, c.call(ctx, http.MethodPut, "/v1/log-level", change, &l)
}

// Get returns what the role serves at a path: /metrics, or a profile below /debug/pprof/.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := c.do(ctx, method, path, raw)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("heddle %s: %s: %w", c.Role, path, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Role+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(got) > maxAnswer {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("heddle %s: %s: %w", c.Role, path, err)
	}
	if res.StatusCode == http.StatusOK {
		return got, nil
	}
	var failed answerError
	if err := json.Unmarshal(got, &failed); err != nil || failed.Error == "" {
		return nil, fmt.Errorf("heddle %s: %s: %s", c.Role, path, res.Status)
	}
	return nil, fmt.Errorf("heddle %s: %s", c.Role, failed.Error)
}

// explain says why a socket cannot be reached.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("heddle %s: %w: no process serves %s", c.Role, ErrNotRunning, c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("heddle %s: %s: permission denied: run this as root, or as the user of the service", c.Role, c.path)
	}
	return fmt.Errorf("heddle %s: %w", c.Role, err)
}

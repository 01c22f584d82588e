// Package cloud logs in to the APIs of a server over HTTP, like OpenStack's clients: with a
// clouds.yaml, the variables of an openrc, or the file that `heddle serve` leaves in its data
// directory.
package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"sigs.k8s.io/yaml"

	"heddle/internal/terminal"
	"heddle/internal/topology/flow"
)

// operatorService is the type of Heddle's own API (hosts, traces) in the catalog.
const operatorService = "heddle"

// Config holds the place of the APIs, and the user's credentials.
type Config struct {
	// File is a clouds.yaml. "" uses OS_CLOUD, then OS_AUTH_URL and the like, then DataDir.
	File string
	// DataDir is the data directory of `heddle serve`, with its clouds.yaml.
	DataDir string
	// TokenDir is the directory in which the token is kept for the next login with the same
	// settings; "": it is not kept. See [UserTokenDir].
	TokenDir string
	// Dial, when set, opens the connections: the demo dials from inside a network namespace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Session is a login. It renews its token when that expires.
type Session struct {
	provider *gophercloud.ProviderClient
	region   string
}

// Login authenticates with the settings of Config, the environment or the server's own file.
func (c Config) Login(ctx context.Context) (*Session, error) { return c.login(ctx, nil) }

// LoginAs authenticates as another user at the same identity service.
func (c Config) LoginAs(ctx context.Context, who gophercloud.AuthOptions) (*Session, error) {
	return c.login(ctx, &who)
}

func (c Config) login(ctx context.Context, other *gophercloud.AuthOptions) (*Session, error) {
	auth, endpoint, transport, err := c.settings()
	if err != nil {
		return nil, err
	}
	if other != nil {
		other.IdentityEndpoint = auth.IdentityEndpoint
		auth = *other
	}
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	auth.AllowReauth = true
	provider, err := openstack.NewClient(auth.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("identity service: %w", err)
	}
	provider.HTTPClient = http.Client{Transport: connectionHint{transport, c.origin()}}
	authenticate := openstack.Authenticate
	if c.TokenDir != "" && other == nil {
		authenticate = newTokenCache(c.TokenDir, auth).authenticate
	}
	if err := authenticate(ctx, provider, auth); err != nil {
		var answer gophercloud.ErrUnexpectedResponseCode
		if errors.As(err, &answer) && len(answer.Body) > 0 {
			return nil, &Refused{answer.Actual, fmt.Sprintf("log in at %s: %d %s: %s%s", auth.IdentityEndpoint, answer.Actual, http.StatusText(answer.Actual), errorText(answer.Body), plainHint(answer.Body, c.origin()))}
		}
		return nil, fmt.Errorf("log in at %s: %w", auth.IdentityEndpoint, err)
	}
	return &Session{provider: provider, region: endpoint.Region}, nil
}

// project returns the id of the project that the login is for, "" if there is none.
func (s *Session) project() string {
	result, ok := s.provider.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return ""
	}
	p, err := result.ExtractProject()
	if err != nil || p == nil {
		return ""
	}
	return p.ID
}

func (c Config) settings() (auth gophercloud.AuthOptions, endpoint gophercloud.EndpointOpts, transport *http.Transport, err error) {
	var opts []clouds.ParseOption
	file := c.File
	switch {
	case c.File != "":
		opts = append(opts, clouds.WithLocations(c.File), clouds.WithCloudName("heddle"))
	case os.Getenv("OS_CLOUD") != "":
	case os.Getenv("OS_AUTH_URL") != "":
		text, err := environmentCloud()
		if err != nil {
			return auth, endpoint, nil, err
		}
		opts = append(opts, clouds.WithCloudsYAML(bytes.NewReader(text)), clouds.WithCloudName(environment))
	default:
		file = filepath.Join(c.DataDir, "clouds.yaml")
		if _, err := os.Stat(file); err != nil {
			return auth, endpoint, nil, fmt.Errorf("where is the server? set OS_CLOUD, source an openrc, or name the data directory of `heddle serve` with --data (%w)", err)
		}
		opts = append(opts, clouds.WithLocations(file), clouds.WithCloudName("heddle"))
	}
	transport = boundedTransport(dialTimeout, answerTimeout)
	auth, endpoint, transport.TLSClientConfig, err = clouds.Parse(opts...)
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty: put it back from a copy, or source an openrc")
	}
	if err != nil && file != "" {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return auth, endpoint, transport, err
}

// environment names the cloud that an openrc describes.
const environment = "environment"

// environmentCloud returns a clouds.yaml of an openrc's variables: each setting is named like its
// variable, in lower case.
func environmentCloud() ([]byte, error) {
	auth := map[string]string{}
	for _, name := range []string{
		"auth_url", "username", "user_id", "password", "token", "project_id", "project_name", "user_domain_id", "user_domain_name",
		"project_domain_id", "project_domain_name", "domain_id", "domain_name",
		"application_credential_id", "application_credential_name", "application_credential_secret",
	} {
		if v := os.Getenv("OS_" + strings.ToUpper(name)); v != "" {
			auth[name] = v
		}
	}
	cloud := map[string]any{"auth": auth, "region_name": os.Getenv("OS_REGION_NAME")}
	return yaml.Marshal(map[string]any{"clouds": map[string]any{environment: cloud}})
}

// Network returns a client of the Neutron API.
func (s *Session) Network() (*gophercloud.ServiceClient, error) {
	return openstack.NewNetworkV2(s.provider, gophercloud.EndpointOpts{Region: s.region})
}

// Identity returns a client of the Keystone API.
func (s *Session) Identity() (*gophercloud.ServiceClient, error) {
	return openstack.NewIdentityV3(s.provider, gophercloud.EndpointOpts{Region: s.region})
}

// Operator calls Heddle's own API. It sends body as JSON unless nil, and decodes the answer into
// out unless nil.
func (s *Session) Operator(ctx context.Context, method, path string, body, out any) error {
	base, err := s.operatorURL()
	if err != nil {
		return err
	}
	answer, err := s.operator(ctx, s.provider.HTTPClient, method, base, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	raw, err := io.ReadAll(io.LimitReader(answer, maxOperatorAnswer))
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// OperatorStream calls Heddle's own API for an answer that lasts, until ctx ends or the caller
// closes it.
func (s *Session) OperatorStream(ctx context.Context, path string) (io.ReadCloser, error) {
	base, err := s.operatorURL()
	if err != nil {
		return nil, err
	}
	client := s.provider.HTTPClient
	client.Timeout = 0
	return s.operator(ctx, client, http.MethodGet, base, path, nil)
}

// maxOperatorAnswer bounds an answer of Heddle's own API, bytes.
const maxOperatorAnswer = 64 << 20

func (s *Session) operatorURL() (string, error) {
	base, err := s.provider.EndpointLocator(gophercloud.EndpointOpts{Type: operatorService, Availability: gophercloud.AvailabilityPublic, Region: s.region})
	if err != nil {
		return "", fmt.Errorf("the catalog lists no service of type %s: is this a Heddle server? %w", operatorService, err)
	}
	return base, nil
}

// operator sends a request to Heddle's own API, and returns the body of an answer that is no error.
func (s *Session) operator(ctx context.Context, client http.Client, method, base, path string, body any) (io.ReadCloser, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Auth-Token", s.provider.Token())
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res.Body, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxOperatorAnswer))
	if err != nil {
		return nil, err
	}
	return nil, &Refused{res.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, res.Status, errorText(raw))}
}

// TraceRequest is a frame to trace, and where it comes in: by a port, or from the LAN of a network
// at a host.
type TraceRequest struct {
	Port    string `json:"port,omitempty"`    // its id
	Network string `json:"network,omitempty"` // its id
	Host    string `json:"host,omitempty"`    // of a network, by id or name
	Frame   []byte `json:"frame"`
}

// Trace simulates a frame. If the simulation fails the error names its host.
func (s *Session) Trace(ctx context.Context, request TraceRequest) (*flow.TraceAnswer, error) {
	var answer flow.TraceAnswer
	if err := s.Operator(ctx, http.MethodPost, "/v1/traces", request, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("host %s: %s", answer.HostID, terminal.Escape(answer.Error))
	}
	return &answer, nil
}

// errorText returns the message in an error body, or the body itself.
func errorText(raw []byte) string {
	var e struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(raw, &e) == nil && e.Error.Message != "" {
		return terminal.Escape(e.Error.Message) // a line break in it is part of a name
	}
	return strings.TrimSpace(string(raw))
}

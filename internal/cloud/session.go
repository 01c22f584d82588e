// Package cloud logs in to the APIs of a server over HTTP, as OpenStack's clients do: with a clouds.yaml, the variables of
// an openrc, or the file that `heddle serve` leaves in its data directory.
package cloud

import (
	"bytes"
	"context"
	"encoding/json"
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
	"sigs.k8s.io/yaml"

	"heddle/internal/topology/flow"
)

// operatorService is the type under which the catalog lists Heddle's own API (hosts, traces).
const operatorService = "heddle"

// Config says where the APIs are and who is asking.
type Config struct {
	// File is a clouds.yaml; "" looks at OS_CLOUD, then OS_AUTH_URL and its companions, then DataDir.
	File string
	// DataDir is where `heddle serve` keeps its clouds.yaml.
	DataDir string
	// Dial, when set, opens the connections: the demo dials from inside a network namespace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Session is a login. It renews its token when that expires.
type Session struct {
	provider *gophercloud.ProviderClient
	region   string
}

// Login authenticates with what Config, the environment or the server's own file say.
func (c Config) Login(ctx context.Context) (*Session, error) {
	auth, endpoint, transport, err := c.settings()
	if err != nil {
		return nil, err
	}
	s, err := c.authenticate(ctx, auth, transport)
	if err != nil {
		return nil, err
	}
	s.region = endpoint.Region
	return s, nil
}

// LoginAs authenticates as another user at the same identity service.
func (c Config) LoginAs(ctx context.Context, who gophercloud.AuthOptions) (*Session, error) {
	auth, endpoint, transport, err := c.settings()
	if err != nil {
		return nil, err
	}
	who.IdentityEndpoint = auth.IdentityEndpoint
	s, err := c.authenticate(ctx, who, transport)
	if err != nil {
		return nil, err
	}
	s.region = endpoint.Region
	return s, nil
}

func (c Config) authenticate(ctx context.Context, auth gophercloud.AuthOptions, transport *http.Transport) (*Session, error) {
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	auth.AllowReauth = true
	provider, err := openstack.NewClient(auth.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("identity service: %w", err)
	}
	provider.HTTPClient = http.Client{Transport: transport}
	if err := openstack.Authenticate(ctx, provider, auth); err != nil {
		return nil, fmt.Errorf("log in at %s: %w", auth.IdentityEndpoint, err)
	}
	return &Session{provider: provider}, nil
}

func (c Config) settings() (gophercloud.AuthOptions, gophercloud.EndpointOpts, *http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	var opts []clouds.ParseOption
	switch {
	case c.File != "":
		opts = append(opts, clouds.WithLocations(c.File), clouds.WithCloudName("heddle"))
	case os.Getenv("OS_CLOUD") != "":
	case os.Getenv("OS_AUTH_URL") != "":
		text, err := environmentCloud()
		if err != nil {
			return gophercloud.AuthOptions{}, gophercloud.EndpointOpts{}, nil, err
		}
		opts = append(opts, clouds.WithCloudsYAML(bytes.NewReader(text)), clouds.WithCloudName(environment))
	default:
		own := filepath.Join(c.DataDir, "clouds.yaml")
		if _, err := os.Stat(own); err != nil {
			return gophercloud.AuthOptions{}, gophercloud.EndpointOpts{}, nil,
				fmt.Errorf("where is the server? set OS_CLOUD, source an openrc, or name the data directory of `heddle serve` with --data (%w)", err)
		}
		opts = append(opts, clouds.WithLocations(own), clouds.WithCloudName("heddle"))
	}
	auth, endpoint, tlsConfig, err := clouds.Parse(opts...)
	if err != nil {
		return auth, endpoint, nil, err
	}
	transport.TLSClientConfig = tlsConfig
	return auth, endpoint, transport, nil
}

// environment names the cloud that an openrc describes.
const environment = "environment"

// environmentCloud is a clouds.yaml of what an openrc sets: every setting there is a variable's name in small letters.
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

// Operator calls Heddle's own API: body is sent as JSON unless nil, the answer is read into out unless nil.
func (s *Session) Operator(ctx context.Context, method, path string, body, out any) error {
	base, err := s.provider.EndpointLocator(gophercloud.EndpointOpts{Type: operatorService, Availability: gophercloud.AvailabilityPublic, Region: s.region})
	if err != nil {
		return fmt.Errorf("the catalog lists no service of type %s: is this a Heddle server? %w", operatorService, err)
	}
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("X-Auth-Token", s.provider.Token())
	req.Header.Set("Content-Type", "application/json")
	res, err := s.provider.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, errorText(raw))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// Trace has the server simulate a frame that enters by a port. If the simulation fails the error names its host.
func (s *Session) Trace(ctx context.Context, port string, frame []byte) (*flow.TraceAnswer, error) {
	var answer flow.TraceAnswer
	request := map[string]any{"port": port, "frame": frame}
	if err := s.Operator(ctx, http.MethodPost, "/v1/traces", request, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("host %s: %s", answer.HostID, answer.Error)
	}
	return &answer, nil
}

// errorText is the message in an error body, or the body itself.
func errorText(raw []byte) string {
	var e struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(raw, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return strings.TrimSpace(string(raw))
}

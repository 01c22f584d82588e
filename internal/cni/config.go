package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"heddle/internal/strictjson"
)

// Defaults of the settings.
const (
	defaultCredentials = "/etc/heddle/cni-clouds.yaml"
	defaultState       = "/var/lib/heddle-agent"
)

// config is a network configuration, as the runtime hands it over.
type config struct {
	CNIVersion   string          `json:"cniVersion"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`

	// Network and SecurityGroups are names or ids in Neutron; without a Network it is Name.
	Network        string   `json:"network"`
	SecurityGroups []string `json:"securityGroups"`
	// Port is the id or name of a port to plug instead of a new one.
	Port string `json:"port"`
	// IPs and MAC are the addresses of the new port; without them Neutron chooses.
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
	// Credentials is a clouds.yaml with the cloud "heddle", which its owner alone may read.
	Credentials string `json:"credentials"`
	// State is the state directory of this host's agent, and Host its name.
	State string `json:"state"`
	Host  string `json:"host"`

	// What the runtime adds.
	RuntimeConfig    json.RawMessage      `json:"runtimeConfig"`
	Args             json.RawMessage      `json:"args"`
	PrevResult       map[string]any       `json:"prevResult"`
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
	Attachments      []types.GCAttachment `json:"cni.dev/attachments"` // what libcni 1.2 called them

	// What CNI_ARGS has. Who starts containers may set them: they reach this project's objects
	// alone.
	podName      string
	portOfArgs   bool // Port is from there
	groupsOfArgs bool // and SecurityGroups
}

// readConfig reads a network configuration with the values of CNI_ARGS, and fills in defaults.
// Its errors have the codes that CNI defines.
func readConfig(text []byte, args string) (*config, *types.Error) {
	var c config
	if err := strictjson.Unmarshal(text, &c); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "")
	}
	if err := c.readRuntimeConfig(); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: runtimeConfig: "+err.Error(), "")
	}
	if err := c.readArgs(args); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: "+err.Error(), "")
	}
	c.Network = cmp.Or(c.Network, c.Name)
	c.Credentials = cmp.Or(c.Credentials, defaultCredentials)
	c.State = cmp.Or(c.State, defaultState)
	if err := c.check(); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "")
	}
	return &c, nil
}

// readRuntimeConfig takes what the runtime gives for the capabilities "ips" and "mac"; others are
// those of plug-ins after this one.
func (c *config) readRuntimeConfig() error {
	var given struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	}
	if c.RuntimeConfig == nil {
		return nil
	}
	if err := json.Unmarshal(c.RuntimeConfig, &given); err != nil {
		return err
	}
	if len(given.IPs) > 0 {
		c.IPs = given.IPs
	}
	c.MAC = cmp.Or(given.MAC, c.MAC)
	return nil
}

// readArgs takes the values of CNI_ARGS: KEY=VALUE;KEY=VALUE…
func (c *config) readArgs(args string) error {
	var unknown []string
	ignore := false
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("%q: want KEY=VALUE", pair)
		}
		switch key {
		case "IgnoreUnknown":
			var err error
			if ignore, err = strconv.ParseBool(value); err != nil {
				return fmt.Errorf("IgnoreUnknown=%q: want 1 or 0", value)
			}
		case "K8S_POD_NAME":
			c.podName = value
		case "IP":
			c.IPs = strings.Split(value, ",")
		case "MAC":
			c.MAC = value
		case "HEDDLE_PORT":
			c.Port, c.portOfArgs = value, true
		case "HEDDLE_SECURITY_GROUPS":
			c.SecurityGroups, c.groupsOfArgs = strings.Split(value, ","), true
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !ignore {
		return fmt.Errorf("unknown %s: want IP, MAC, HEDDLE_PORT, HEDDLE_SECURITY_GROUPS, or IgnoreUnknown=1", strings.Join(unknown, ", "))
	}
	return nil
}

// check refuses what cannot be done.
func (c *config) check() error {
	if c.Port != "" && (len(c.IPs) > 0 || c.MAC != "" || c.SecurityGroups != nil) {
		return fmt.Errorf("port %s has its addresses and security groups already: leave out ips, mac and securityGroups", c.Port)
	}
	for i, address := range c.IPs {
		ip, err := parseAddress(address)
		if err != nil {
			return fmt.Errorf("ips[%d]: %q is no IP address", i, address)
		}
		c.IPs[i] = ip.String()
	}
	if c.MAC != "" {
		if mac, err := net.ParseMAC(c.MAC); err != nil || len(mac) != 6 {
			return fmt.Errorf("mac: %q is no MAC address", c.MAC)
		}
	}
	if slices.Contains(c.SecurityGroups, "") {
		return fmt.Errorf("securityGroups: a name is empty")
	}
	return nil
}

// parseAddress reads an address, which runtimes may write with the length of its subnet's prefix;
// the subnet has it anyway.
func parseAddress(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	return netip.ParseAddr(text)
}

package xapi

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"heddle/internal/strictjson"
)

// The file of heddle xapi --simulate (docs/xenapi.md).
type simulatedFile struct {
	Pools []simulatedPool `json:"pools"`
}

type simulatedPool struct {
	Name     string          `json:"name"`
	Password string          `json:"password"` // of root
	HA       bool            `json:"ha"`
	Hosts    []simulatedHost `json:"hosts"` // the first is the coordinator
	VMs      []simulatedVM   `json:"vms"`
}

type simulatedHost struct {
	Name    string         `json:"name"`
	Address string         `json:"address"`
	Backend string         `json:"backend"`
	Live    *bool          `json:"live"` // nil: true
	PIFs    []simulatedPIF `json:"pifs"`
}

type simulatedPIF struct {
	Device     string   `json:"device"`
	Network    string   `json:"network"` // by name; made when it is first named; "": one of its own
	Bridge     string   `json:"bridge"`
	Mode       string   `json:"mode"` // "": Static with an address, else None
	IP         string   `json:"ip"`
	Netmask    string   `json:"netmask"`
	Gateway    string   `json:"gateway"`
	VLAN       int      `json:"vlan"`
	MAC        string   `json:"mac"` // "": one made of the names
	Management bool     `json:"management"`
	Attached   *bool    `json:"attached"` // nil: true
	BondSlaves []string `json:"bond_slaves"`
}

type simulatedVM struct {
	Name       string `json:"name"`
	Host       string `json:"host"`        // "": the coordinator, if it runs
	PowerState string `json:"power_state"` // "": Halted
}

// parseSimulated reads a file, YAML or JSON, and checks it. Errors name the place.
func parseSimulated(text []byte) ([]simulatedPool, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	var file simulatedFile
	err = strictjson.Unmarshal(raw, &file)
	if wrong := (*strictjson.Error)(nil); errors.As(err, &wrong) {
		wrong.Path = append([]string{"file"}, wrong.Path...)
	}
	if err != nil {
		return nil, err
	}
	if len(file.Pools) == 0 {
		return nil, fmt.Errorf("file.pools: want at least one pool")
	}
	names := map[string]bool{}
	for i := range file.Pools {
		place := fmt.Sprintf("file.pools[%d]", i)
		p := &file.Pools[i]
		if err := once(names, place+".name", p.Name); err != nil {
			return nil, err
		}
		if err := p.check(place); err != nil {
			return nil, err
		}
	}
	return file.Pools, nil
}

// once refuses names that are empty or there already.
func once(names map[string]bool, place, name string) error {
	if name == "" || strings.ContainsAny(name, " \t\n") {
		return fmt.Errorf("%s: want a name without spaces", place)
	}
	if names[name] {
		return fmt.Errorf("%s: %s is there twice", place, name)
	}
	names[name] = true
	return nil
}

// oneOf refuses values but those wanted.
func oneOf(place, value string, wanted ...string) error {
	if slices.Contains(wanted, value) {
		return nil
	}
	return fmt.Errorf("%s: is %q, want %s", place, value, strings.Join(wanted, ", "))
}

func (p *simulatedPool) check(place string) error {
	if p.Password == "" {
		return fmt.Errorf("%s.password: want the password of root", place)
	}
	if len(p.Hosts) == 0 {
		return fmt.Errorf("%s.hosts: want at least one host", place)
	}
	hosts, bridges := map[string]bool{}, map[string]string{}
	for i := range p.Hosts {
		h, at := &p.Hosts[i], fmt.Sprintf("%s.hosts[%d]", place, i)
		if err := once(hosts, at+".name", h.Name); err != nil {
			return err
		}
		if err := h.check(at, bridges); err != nil {
			return err
		}
	}
	for i := range p.VMs {
		vm, at := &p.VMs[i], fmt.Sprintf("%s.vms[%d]", place, i)
		if vm.Name == "" {
			return fmt.Errorf("%s.name: want a name", at)
		}
		vm.PowerState = cmp.Or(vm.PowerState, "Halted")
		if err := oneOf(at+".power_state", vm.PowerState, "Halted", "Paused", "Running", "Suspended"); err != nil {
			return err
		}
		if vm.Host != "" && !hosts[vm.Host] {
			return fmt.Errorf("%s.host: the pool has no host %s", at, vm.Host)
		}
	}
	return nil
}

// check completes a host. Bridges are those of the pool's networks so far.
func (h *simulatedHost) check(place string, bridges map[string]string) error {
	if _, err := netip.ParseAddr(h.Address); err != nil {
		return fmt.Errorf("%s.address: %q is no IP address", place, h.Address)
	}
	h.Backend = cmp.Or(h.Backend, "openvswitch")
	if err := oneOf(place+".backend", h.Backend, "openvswitch", "bridge"); err != nil {
		return err
	}
	h.complete()
	networks, managed, seen := map[string]bool{}, false, map[string]bool{}
	for i := range h.PIFs {
		pif, at := &h.PIFs[i], fmt.Sprintf("%s.pifs[%d]", place, i)
		if err := once(seen, at+".device", fmt.Sprintf("%s.%d", pif.Device, pif.VLAN)); err != nil {
			return err
		}
		if pif.Network != "" && networks[pif.Network] {
			return fmt.Errorf("%s.network: another PIF of the host is on network %s", at, pif.Network)
		}
		networks[pif.Network] = true
		if pif.Bridge != "" && pif.Network != "" {
			if other := cmp.Or(bridges[pif.Network], pif.Bridge); other != pif.Bridge {
				return fmt.Errorf("%s.bridge: network %s has the bridge %s already", at, pif.Network, other)
			}
			bridges[pif.Network] = pif.Bridge
		}
		if pif.Management && managed {
			return fmt.Errorf("%s.management: another PIF of the host is the management's", at)
		}
		managed = managed || pif.Management
		if err := pif.check(at, h.Name); err != nil {
			return err
		}
	}
	return nil
}

// complete adds the PIFs that others are on and the file leaves out, and gives a bond's members
// networks of their own.
func (h *simulatedHost) complete() {
	listed, members, uses := map[string]bool{}, map[string]bool{}, map[string]int{}
	var named []string
	for i := range h.PIFs {
		pif := &h.PIFs[i]
		pif.VLAN = max(0, pif.VLAN) // -1, as a PIF has it, is none
		uses[pif.Network]++
		if pif.VLAN == 0 {
			listed[pif.Device] = true
		} else {
			named = append(named, pif.Device)
		}
		for _, m := range pif.BondSlaves {
			members[m] = true
			named = append(named, m)
		}
	}
	for i := range h.PIFs {
		if pif := &h.PIFs[i]; members[pif.Device] && pif.VLAN == 0 && uses[pif.Network] > 1 {
			pif.Network = ""
		}
	}
	for _, device := range named {
		if device != "" && !listed[device] {
			h.PIFs = append(h.PIFs, simulatedPIF{Device: device})
			listed[device] = true
		}
	}
}

// check completes a PIF.
func (p *simulatedPIF) check(place, host string) error {
	if p.Device == "" {
		return fmt.Errorf("%s.device: want an interface's name", place)
	}
	if p.Mode == "" && p.IP != "" {
		p.Mode = "Static"
	}
	p.Mode = cmp.Or(p.Mode, "None")
	if err := oneOf(place+".mode", p.Mode, "None", "DHCP", "Static"); err != nil {
		return err
	}
	for _, a := range []struct{ name, text string }{{"ip", p.IP}, {"netmask", p.Netmask}, {"gateway", p.Gateway}} {
		if address, err := netip.ParseAddr(a.text); a.text != "" && (err != nil || !address.Is4()) {
			return fmt.Errorf("%s.%s: %q is no IPv4 address", place, a.name, a.text)
		}
	}
	if p.VLAN > maxTag {
		return fmt.Errorf("%s.vlan: want 1 to %d, or none", place, maxTag)
	}
	for i, member := range p.BondSlaves {
		if member == "" || member == p.Device {
			return fmt.Errorf("%s.bond_slaves[%d]: want another interface", place, i)
		}
	}
	if p.MAC == "" {
		p.MAC = namedMAC(host, p.Device)
		if p.VLAN > 0 {
			p.MAC = vlanMAC
		}
	} else if !validMAC(p.MAC) {
		return fmt.Errorf("%s.mac: %q is no MAC address", place, p.MAC)
	}
	return nil
}

// namedMAC is the same address for the same interface, whenever the file is read.
func namedMAC(host, device string) string {
	sum := sha256.Sum256([]byte(host + "/" + device))
	return net.HardwareAddr{0x02, 0x16, 0x3e, sum[0], sum[1], sum[2]}.String()
}

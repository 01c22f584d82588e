package metadata

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/topology"
)

// Versions of OpenStack's metadata, by what they brought.
const (
	folsom    = "2012-08-10"
	grizzly   = "2013-04-04" // random_seed
	havana    = "2013-10-17" // vendor_data.json
	liberty   = "2015-10-15" // network_data.json, project_id
	newton    = "2016-06-30" // devices
	newtonTwo = "2016-10-06" // vendor_data2.json
	ocata     = "2017-02-22"
	rocky     = "2018-08-27"
)

// openStackVersions returns them, oldest first.
func openStackVersions() []string {
	return []string{folsom, grizzly, havana, liberty, newton, newtonTwo, ocata, rocky}
}

// openStack returns what a path below /openstack leads to.
func (m *Machine) openStack(at string) (content, bool) {
	version, rest, _ := strings.Cut(at, "/")
	switch {
	case version == "":
		return text(strings.Join(append(openStackVersions(), latest), "\n")), true
	case version == latest:
		version = rocky
	case !slices.Contains(openStackVersions(), version):
		return content{}, false
	}
	files := map[string]func(version string) content{"meta_data.json": m.metaData}
	if len(m.UserData) > 0 {
		files["user_data"] = func(string) content { return m.userData() }
	}
	for name, f := range map[string]struct {
		since string
		make  func(version string) content
	}{
		"vendor_data.json":  {havana, m.vendorData},
		"vendor_data2.json": {newtonTwo, func(string) content { return asJSON(map[string]any{}) }},
		"network_data.json": {liberty, m.networkData},
	} {
		if version >= f.since { // versions are dates, which sort as text
			files[name] = f.make
		}
	}
	if rest == "" {
		names := make([]string, 0, len(files))
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		return text(strings.Join(names, "\n")), true
	}
	file, ok := files[rest]
	if !ok {
		return content{}, false
	}
	return file(version), true
}

// asJSON returns an object as Nova would write it: without escapes that only browsers need.
func asJSON(v any) content {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // texts, numbers and lists can always be written
	}
	return content{"application/json", bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}

// keyPair is a key in meta_data.json.
type keyPair struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Data string `json:"data"`
}

// metaData is meta_data.json.
func (m *Machine) metaData(version string) content {
	data := map[string]any{
		"uuid": m.uuid(), "hostname": m.hostname(), "name": m.displayName(), "launch_index": 0, "availability_zone": m.Zone, "meta": map[string]string{},
	}
	if keys := m.keys(); len(keys) > 0 {
		public, pairs := map[string]string{}, []keyPair{}
		for _, k := range keys {
			public[k.name] = k.data
			pairs = append(pairs, keyPair{k.name, "ssh", k.data})
		}
		data["public_keys"], data["keys"] = public, pairs
	}
	if version >= grizzly {
		seed := make([]byte, 512)
		rand.Read(seed)
		data["random_seed"] = seed
	}
	if version >= liberty {
		data["project_id"] = m.ProjectID
	}
	if version >= newton {
		data["devices"] = []string{} // Nova lists tagged ones
	}
	return asJSON(data)
}

// displayName returns the machine's name for people.
func (m *Machine) displayName() string {
	if m.Name != "" {
		return m.Name
	}
	name, _, _ := strings.Cut(m.hostname(), ".")
	return name
}

// vendorData is vendor_data.json: the password, as configuration of cloud-init, which user data
// may overrule.
func (m *Machine) vendorData(string) content {
	if m.PasswordHash == "" {
		return asJSON(map[string]any{})
	}
	hash, err := json.Marshal(m.PasswordHash) // a text of JSON is one of YAML
	if err != nil {
		panic(err) // a text can always be written
	}
	return asJSON(map[string]any{"cloud-init": "#cloud-config\npassword: " + string(hash) + "\nchpasswd: {expire: false}\n"})
}

type networkData struct {
	Links    []networkLink    `json:"links"`
	Networks []networkAddress `json:"networks"`
	Services []networkService `json:"services"`
}

type networkLink struct {
	ID   string `json:"id"`
	VIF  string `json:"vif_id"`
	Type string `json:"type"`
	MTU  int    `json:"mtu"`
	MAC  string `json:"ethernet_mac_address"`
}

type networkAddress struct {
	ID        string           `json:"id"`
	Type      string           `json:"type"` // ipv4, ipv4_dhcp, ipv6, ipv6_slaac …
	Link      string           `json:"link"`
	Address   string           `json:"ip_address,omitempty"`
	Netmask   string           `json:"netmask,omitempty"`
	Routes    []networkRoute   `json:"routes,omitzero"` // a list whenever there is an address
	NetworkID string           `json:"network_id"`
	Services  []networkService `json:"services,omitzero"` // likewise
}

type networkRoute struct {
	Network string `json:"network"`
	Netmask string `json:"netmask"`
	Gateway string `json:"gateway"`
}

type networkService struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// networkData is network_data.json. Like Nova's it has an interface's first subnet of each IP
// version.
func (m *Machine) networkData(string) content {
	data := networkData{Links: []networkLink{}, Networks: []networkAddress{}, Services: []networkService{}}
	for i := range m.Links {
		l := &m.Links[i]
		if len(l.Subnets) == 0 {
			continue
		}
		link := networkLink{ID: linkName(l.PortID), VIF: l.PortID, Type: "tap", MTU: l.MTU, MAC: l.MAC.String()}
		data.Links = append(data.Links, link)
		for _, is4 := range []bool{true, false} {
			of := slices.IndexFunc(l.Subnets, func(s topology.InstanceSubnet) bool { return s.Address.Addr().Is4() == is4 })
			if of < 0 {
				continue
			}
			s := &l.Subnets[of]
			data.Networks = append(data.Networks, addressOn(s, "network"+strconv.Itoa(len(data.Networks)), link.ID, l.NetworkID))
			for _, dns := range dnsServices(s) {
				if !slices.Contains(data.Services, dns) {
					data.Services = append(data.Services, dns)
				}
			}
		}
	}
	return asJSON(data)
}

// linkName returns the name of a port's tap, which Nova has as the interface's id.
func linkName(port string) string { return "tap" + port[:min(len(port), 11)] }

// addressOn returns an address of an interface in network_data.json. Where the machine asks by
// DHCP for it, nothing more is said.
func addressOn(s *topology.InstanceSubnet, id, link, network string) networkAddress {
	a := networkAddress{ID: id, Type: "ipv4", Link: link, NetworkID: network}
	everywhere := "0.0.0.0"
	if s.Address.Addr().Is6() {
		a.Type, everywhere = "ipv6", "::"
		if s.Mode != "" {
			a.Type += "_" + s.Mode
		}
	} else if s.DHCP {
		a.Type = "ipv4_dhcp"
		return a
	}
	a.Address, a.Netmask = s.Address.Addr().String(), netmask(s.Address)
	a.Routes = []networkRoute{}
	if s.Gateway.IsValid() {
		a.Routes = append(a.Routes, networkRoute{everywhere, everywhere, s.Gateway.String()})
	}
	for _, r := range s.Routes {
		a.Routes = append(a.Routes, networkRoute{r.DstSubnet.Addr().String(), netmask(r.DstSubnet), r.Gateway.String()})
	}
	a.Services = dnsServices(s)
	return a
}

func dnsServices(s *topology.InstanceSubnet) []networkService {
	all := []networkService{}
	for _, a := range s.DNS {
		all = append(all, networkService{"dns", a.String()})
	}
	return all
}

// netmask returns the mask of a prefix as an address.
func netmask(p netip.Prefix) string {
	mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	a, _ := netip.AddrFromSlice(mask)
	return a.String()
}

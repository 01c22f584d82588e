package neutron

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/topology/packet"
)

// MaxAddressPairs bounds the allowed address pairs of a port (neutron-api §5).
const MaxAddressPairs = 10

// Lengths that the reference allows for extra DHCP options, characters.
const (
	maxOptName  = 64
	maxOptValue = 255
)

func portTable(domain string) *Table[*PortView] {
	std := func(o *PortView) *Standard { return &o.Standard }
	cols := []column[*PortView]{
		idColumn(std),
		nameColumn(std),
		row(Attribute{Name: "network_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid", parse: uuid},
			textValue(func(o *PortView) string { return o.NetworkID })),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false stops the port's traffic", parse: flag},
			flagValue(func(o *PortView) bool { return o.AdminStateUp })),
		row(Attribute{Name: "mac_address", Create: true, Update: true, Default: unset{}, Filter: true, Sort: true, Policed: true,
			CreateBy: NetworkOwnerOrService, UpdateBy: AdvancedService, Type: "mac", Doc: "random in fa:16:3e unless given; null = choose another",
			parse: orNull(mac)}, macValue()),
		row(Attribute{Name: "fixed_ips", Create: true, Update: true, Default: unset{}, Filter: true, Policed: true,
			CreateBy: NetworkOwnerOrService, UpdateBy: NetworkOwnerOrService, Type: "list of {subnet_id, ip_address}",
			Doc:   "at most 100; absent: one address of each IP version; filter: ip_address=, subnet_id=, ip_address_substr=",
			parse: fewer(fixedIPs)},
			value[*PortView]{
				append: func(b []byte, o *PortView) []byte { return appendList(b, o.FixedIPs, appendFixedIP) },
				match:  matchFixedIPs,
			}),
		row(Attribute{Name: "device_id", Create: true, Update: true, Default: "", Filter: true, Sort: true, Type: "string", parse: text(maxName)},
			textValue(func(o *PortView) string { return o.DeviceID })),
		row(Attribute{Name: "device_owner", Create: true, Update: true, Default: "", Filter: true, Sort: true, Policed: true,
			CreateBy: NetworkOwnerOrService, UpdateBy: NetworkOwnerOrService, Type: "string", Doc: "network:… only by these, others by everyone",
			parse: text(maxName)},
			textValue(func(o *PortView) string { return o.DeviceOwner })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "status", Filter: true, Sort: true, Computed: true, Type: "string",
			Doc: "ACTIVE while a host serves the port's interface, else DOWN"},
			textValue(func(o *PortView) string { return o.Status })))
	cols = append(cols, bindingColumns()...)
	cols = append(cols,
		row(Attribute{Name: "port_security_enabled", Create: true, Update: true, Default: unset{}, Policed: true,
			CreateBy: NetworkOwnerOrService, UpdateBy: NetworkOwnerOrService, Type: "boolean", Doc: "as the network unless given", parse: flag},
			flagValue(func(o *PortView) bool { return o.PortSecurityEnabled })),
		row(Attribute{Name: "security_groups", Create: true, Update: true, Default: unset{}, Filter: true, Type: "list of uuids",
			Doc: "at most 100; the project's default group unless given", parse: nullAs([]any{}, fewer(uuids))},
			textsValue(func(o *PortView) []string { return o.SecurityGroups })),
		row(Attribute{Name: "allowed_address_pairs", Create: true, Update: true, Default: unset{}, Policed: true,
			CreateBy: NetworkOwner, UpdateBy: NetworkOwner, Type: "list of {ip_address, mac_address}",
			Doc: "what the port may also send from; at most 10", parse: nullAs([]any{}, addressPairs)},
			jsonValue(func(b []byte, o *PortView) []byte { return appendList(b, o.AllowedAddressPairs, appendPair) })),
		row(Attribute{Name: "extra_dhcp_opts", Create: true, Update: true, Default: unset{}, Type: "list of {opt_name, opt_value, ip_version}",
			Doc: "at most 100; an opt_value of null removes", parse: nullAs([]any{}, fewer(dhcpOpts))},
			jsonValue(func(b []byte, o *PortView) []byte { return appendList(b, o.ExtraDHCPOpts, appendOpt) })),
		row(Attribute{Name: "ip_allocation", Filter: true, Sort: true, Type: "string",
			Doc: "immediate, none for a port that was asked to have no addresses, or deferred until it has a host"},
			textValue(func(o *PortView) string { return cmp.Or(o.IPAllocation, "immediate") })),
	)
	cols = append(cols, portDNSColumns(domain)...)
	cols = append(cols, dataPlaneColumn())
	cols = append(cols, trunkDetailsColumn())
	cols = append(cols, portQoSColumns()...)
	cols = append(cols, deviceColumns()...)
	cols = append(cols, macLearningColumn())
	cols = append(cols, descriptionColumn(std))
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Create: true, Default: []string{}, Doc: "at most 100; after create through the tags sub-resource",
		parse: fewer(texts(maxTag))}, std)...)
	return newTable(Ports, cols)
}

// macLearningColumn is answered of ports whose requests named it, since ML2 has no such attribute.
func macLearningColumn() column[*PortView] {
	learns := flagValue(func(o *PortView) bool { return !o.PortSecurityEnabled })
	learns.omit = func(o *PortView, _ bool) bool { return !o.NamesMACLearning }
	return row(Attribute{Name: "mac_learning_enabled", Create: true, Update: true, Default: unset{}, Type: "boolean",
		Doc: "follows from port_security_enabled: true without it; another value is refused; answered once a request has named it", parse: flag}, learns)
}

// vnicTypes returns the values of vnic_type.
func vnicTypes() []string {
	return []string{"normal", "direct", "macvtap", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic", "vdpa",
		"accelerator-direct", "accelerator-direct-physical", "remote-managed"}
}

// bindingColumns say which host the port is on and how.
func bindingColumns() []column[*PortView] {
	vnic := vnicTypes()
	return []column[*PortView]{
		row(Attribute{Name: "binding:vif_type", Default: unset{}, See: AdminOnly, Computed: true, Type: "string",
			Doc: "unbound, tap once bound, or binding_failed when the host is not known"},
			textValue(func(o *PortView) string { return o.VIFType })),
		row(Attribute{Name: "binding:vif_details", Default: unset{}, See: AdminOnly, Computed: true, Type: "object"},
			jsonValue(func(b []byte, o *PortView) []byte { return appendValue(b, o.VIFDetails) })),
		row(Attribute{Name: "binding:vnic_type", Create: true, Update: true, Default: "normal", Filter: true, Policed: true,
			Type: "string", Doc: strings.Join(vnic, ", "), parse: oneOf(vnic...)},
			textValue(func(o *PortView) string { return o.VNICType })),
		row(Attribute{Name: "binding:host_id", Create: true, Update: true, Default: unset{}, Filter: true, Policed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly, Type: "string", Doc: "name of the host; \"\" unbinds",
			parse: nullAs("", text(maxName))},
			textValue(func(o *PortView) string { return o.HostID })),
		row(Attribute{Name: "binding:profile", Create: true, Update: true, Default: unset{}, Policed: true,
			CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly, Type: "object",
			Doc: "interface_name names the interface on the host; null unbinds; at most 4095 bytes", parse: orNull(bindingProfile)},
			jsonValue(func(b []byte, o *PortView) []byte { return appendValue(b, o.Profile) })),
	}
}

// portDNSColumns name the port. domain completes names.
func portDNSColumns(domain string) []column[*PortView] {
	return []column[*PortView]{
		row(Attribute{Name: "dns_name", Create: true, Update: true, Default: "", Type: "string",
			Doc: "of its addresses, below the server's domain; with a final dot it ends in that domain", parse: portDNSName},
			textValue(func(o *PortView) string { return o.DNSName })),
		row(Attribute{Name: "dns_domain", Create: true, Update: true, Default: "", Type: "string",
			Doc: "ends with a dot", parse: dnsDomain},
			textValue(func(o *PortView) string { return o.DNSDomain })),
		row(Attribute{Name: "dns_assignment", Type: "list of {ip_address, hostname, fqdn}",
			Doc: "of dns_name or, without one, of the address"},
			jsonValue(func(b []byte, o *PortView) []byte {
				return appendList(b, o.FixedIPs, func(b []byte, f FixedIP) []byte {
					return appendAssignment(b, f.IPAddress, o.DNSName, domain)
				})
			})),
	}
}

// dataPlaneColumn has what monitoring of the data plane, beside the agents, reports about a port.
func dataPlaneColumn() column[*PortView] {
	return row(Attribute{Name: "data_plane_status", Update: true, Policed: true, UpdateBy: DataPlaneIntegrator, Type: "string",
		Doc: "ACTIVE or DOWN, as the operator's monitoring says; null = nothing said; it changes nothing else", parse: orNull(oneOf("ACTIVE", "DOWN"))},
		textOrNullValue(func(o *PortView) string { return o.DataPlaneStatus }))
}

// portQoSColumns name the policies that a port has.
func portQoSColumns() []column[*PortView] {
	return []column[*PortView]{
		qosPolicyColumn("comes before that of the network", func(o *PortView) string { return o.QoSPolicyID }),
		row(Attribute{Name: "qos_network_policy_id", Computed: true, Type: "uuid", Doc: "that of the network"},
			textOrNullValue(func(o *PortView) string { return o.NetworkQoSPolicyID })),
		row(Attribute{Name: "resource_request", See: AdminOnly, Type: "object", Doc: "null: policies that reserve something are not applied to ports"},
			constant[*PortView]("null")),
	}
}

// deviceColumns are for those who make the port's device, such as Nova. They are stored.
func deviceColumns() []column[*PortView] {
	trusted := value[*PortView]{append: func(b []byte, o *PortView) []byte {
		if o.Trusted == nil {
			return append(b, "null"...)
		}
		return strconv.AppendBool(b, *o.Trusted)
	}}
	return []column[*PortView]{
		row(Attribute{Name: "propagate_uplink_status", Create: true, Default: true, Type: "boolean",
			Doc: "of devices of SR-IOV; stored", parse: flag}, flagValue(func(o *PortView) bool { return !o.KeepsLinkUp })),
		row(Attribute{Name: "device_profile", Create: true, Type: "string", Doc: "of Cyborg; stored", parse: orNull(text(maxName))},
			textOrNullValue(func(o *PortView) string { return o.DeviceProfile })),
		row(Attribute{Name: "numa_affinity_policy", Create: true, Update: true, Type: "string", Doc: "for Nova: required, preferred or legacy; stored",
			parse: orNull(oneOf("required", "preferred", "legacy"))},
			textOrNullValue(func(o *PortView) string { return o.NUMAAffinityPolicy })),
		row(Attribute{Name: "hints", Create: true, Update: true, Policed: true, CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly, Type: "object",
			Doc: "openvswitch: {other_config: {tx-steering: thread or hash}}; stored", parse: orNull(portHints)},
			jsonValue(func(b []byte, o *PortView) []byte {
				if o.Hints == nil {
					return append(b, "null"...)
				}
				return appendValue(b, o.Hints)
			})),
		row(Attribute{Name: "trusted", Create: true, Update: true, Policed: true, CreateBy: AdminOnly, UpdateBy: AdminOnly, See: AdminOnly, Type: "boolean",
			Doc: "of devices of SR-IOV; stored, and shown in binding:profile", parse: orNull(flag)}, trusted),
	}
}

// portHints takes {"openvswitch": {"other_config": {"tx-steering": …}}}, the one hint that is
// defined.
func portHints(v any) (any, error) {
	var steering any
	for _, key := range []string{"openvswitch", "other_config", "tx-steering"} {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, reasonf("'%s' is not a dictionary", pyText(v))
		}
		if other := otherKeys(m, key); other != nil || len(m) == 0 {
			return nil, reasonf("Validation of dictionary's keys failed. Expected keys: {'%s'} Provided keys: %s", key, pySet(otherKeys(m)))
		}
		steering, v = m[key], m[key]
	}
	steering, err := oneOf("thread", "hash")(steering)
	if err != nil {
		return nil, err
	}
	return map[string]any{"openvswitch": map[string]any{"other_config": map[string]any{"tx-steering": steering}}}, nil
}

func macValue() value[*PortView] {
	return value[*PortView]{
		append: func(b []byte, o *PortView) []byte { return appendMAC(b, o.MACAddress) },
		key:    func(o *PortView) Key { return Key{Kind: TextKey, Text: o.MACAddress.String()} },
		match: func(values []string) (func(o *PortView) bool, error) {
			var want []packet.MAC
			for _, s := range values {
				if m, ok := parseMAC(s); ok {
					want = append(want, m)
				}
			}
			return func(o *PortView) bool { return slices.Contains(want, o.MACAddress) }, nil
		},
	}
}

func appendFixedIP(b []byte, f FixedIP) []byte {
	return appendObject(b, "subnet_id", f.SubnetID, appendString, "ip_address", f.IPAddress, appendAddr)
}

func appendPair(b []byte, p AddressPair) []byte {
	return appendObject(b, "mac_address", p.MACAddress, appendMAC, "ip_address", p.IPAddress, appendString)
}

func appendOpt(b []byte, o DHCPOpt) []byte {
	b = append(b, `{"opt_name":`...)
	b = appendString(b, o.OptName)
	b = append(b, `,"opt_value":`...)
	b = appendString(b, o.OptValue)
	b = append(b, `,"ip_version":`...)
	return append(b, byte('0'+o.IPVersion), '}')
}

// fixedIPs takes a list of {subnet_id, ip_address}, of which one may be missing.
func fixedIPs(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, reasonf("Invalid data format for fixed IP: '%s'", pyText(v))
	}
	out := make([]FixedIPRequest, 0, len(list))
	seen := make(map[netip.Addr]bool, len(list))
	for _, x := range list {
		r, err := fixedIP(x)
		if err != nil {
			return nil, err
		}
		if r.IPAddress.IsValid() && seen[r.IPAddress] {
			return nil, reasonf("Duplicate IP address '%s'", r.IPAddress)
		}
		seen[r.IPAddress] = true
		out = append(out, r)
	}
	if slices.Contains(out, FixedIPRequest{}) {
		return nil, invalidInput("IP allocation requires subnet_id or ip_address")
	}
	return out, nil
}

func fixedIP(v any) (FixedIPRequest, error) {
	var r FixedIPRequest
	m, ok := v.(map[string]any)
	if !ok {
		return r, reasonf("Invalid data format for fixed IP: '%s'", pyText(v))
	}
	if raw, given := m["ip_address"]; given {
		a, err := address(raw)
		if err != nil {
			return r, err
		}
		r.IPAddress = a.(netip.Addr)
	}
	if raw, given := m["subnet_id"]; given {
		id, err := uuid(raw)
		if err != nil {
			return r, err
		}
		r.SubnetID = id.(string)
	}
	return r, nil
}

// addressPairs takes a list of different {ip_address, mac_address}; mac_address is optional.
func addressPairs(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, badRequest("Allowed address pairs must be a list.")
	}
	if len(list) > MaxAddressPairs {
		return nil, Errorf(Invalid, "AllowedAddressPairExhausted", "The number of allowed address pair exceeds the maximum %d.", MaxAddressPairs)
	}
	out := make([]AddressPair, 0, len(list))
	seen := make(map[AddressPair]bool, len(list))
	for _, x := range list {
		p, err := addressPair(x)
		if err != nil {
			return nil, err
		}
		if seen[p] {
			m := x.(map[string]any)
			return nil, Errorf(Invalid, "DuplicateAddressPairInRequest",
				"Request contains duplicate address pair: mac_address %s ip_address %s.", pyText(m["mac_address"]), pyText(m["ip_address"]))
		}
		seen[p] = true
		out = append(out, p)
	}
	return out, nil
}

func addressPair(v any) (AddressPair, error) {
	var p AddressPair
	m, ok := v.(map[string]any)
	if !ok {
		return p, reasonf("'%s' is not a dictionary", pyText(v))
	}
	if raw, given := m["mac_address"]; given {
		a, err := mac(raw)
		if err != nil {
			return p, badRequest("%s", err)
		}
		p.MACAddress = a.(packet.MAC)
	}
	raw, given := m["ip_address"]
	if !given {
		return p, Errorf(Invalid, "AllowedAddressPairsMissingIP", "AllowedAddressPair must contain ip_address")
	}
	if unknown := otherKeys(m, "mac_address", "ip_address"); unknown != nil {
		return p, badRequest("Unrecognized attribute(s) '%s'", strings.Join(unknown, ", "))
	}
	s, _ := raw.(string)
	if prefix, ok := parseCIDR(s); ok {
		if err := mappedReason(prefix); err != nil {
			return p, err
		}
	}
	var err error
	if strings.Contains(s, "/") {
		err = subnetReason(s)
	} else {
		_, err = address(raw)
	}
	if err != nil {
		return p, badRequest("%s", err)
	}
	p.IPAddress = s
	return p, nil
}

// otherKeys returns the keys of m beside the known ones, sorted.
func otherKeys(m map[string]any, known ...string) []string {
	var other []string
	for k := range m {
		if !slices.Contains(known, k) {
			other = append(other, k)
		}
	}
	slices.Sort(other)
	return other
}

// dhcpOpts takes a list of different {opt_name, opt_value, ip_version}.
func dhcpOpts(v any) (any, error) {
	list, err := uniqueList(v)
	if err != nil {
		return nil, invalidInput("%s", err)
	}
	out := make([]DHCPOptChange, 0, len(list))
	for _, x := range list {
		o, ok := dhcpOpt(x)
		if !ok {
			return nil, invalidInput("No valid key specs matched for: %s", pyText(x))
		}
		out = append(out, o)
	}
	return out, nil
}

// dhcpOpt reads an option: a name of one line, and a value of one line, null, or for two empty.
func dhcpOpt(v any) (DHCPOptChange, bool) {
	m, ok := v.(map[string]any)
	if !ok || otherKeys(m, "opt_name", "opt_value", "ip_version") != nil {
		return DHCPOptChange{}, false
	}
	name, ok := m["opt_name"].(string)
	if !ok || !oneLine(name, maxOptName) {
		return DHCPOptChange{}, false
	}
	o := DHCPOptChange{OptName: name, IPVersion: 4}
	if raw, given := m["ip_version"]; given {
		if o.IPVersion, ok = toInt(raw); !ok || o.IPVersion != 4 && o.IPVersion != 6 {
			return o, false
		}
	}
	raw, given := m["opt_value"]
	if raw == nil {
		return o, given
	}
	s, ok := raw.(string)
	o.OptValue = &s
	blank := (name == "router" || name == "classless-static-route") && s == ""
	return o, ok && (blank || oneLine(s, maxOptValue))
}

// oneLine reports whether s is one line of at most max characters that are not all blank.
func oneLine(s string, max int) bool {
	return strings.TrimSpace(s) != "" && len([]rune(s)) <= max && !strings.ContainsAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
}

// matchFixedIPs filters by "ip_address=…", "subnet_id=…" and "ip_address_substr=…": one address of
// the port must have one of each kind that is given.
func matchFixedIPs(values []string) (func(o *PortView) bool, error) {
	var f FixedIPFilter
	for _, v := range values {
		if err := f.Add(v); err != nil {
			return nil, err
		}
	}
	return func(o *PortView) bool { return slices.ContainsFunc(o.FixedIPs, f.match) }, nil
}

// FixedIPFilter holds the fixed_ips filters of a list.
type FixedIPFilter struct {
	Addresses []string // in canonical text
	Parts     []string // of an address
	SubnetIDs []string
}

// Add reads one filter value, such as ip_address=10.0.0.5.
func (f *FixedIPFilter) Add(v string) error {
	key, want, ok := strings.Cut(v, "=")
	key, want = strings.TrimSpace(key), strings.TrimSpace(want)
	if !ok || key == "" {
		return invalidInput("'%s' is not of the form <key>=[value]", v)
	}
	switch key {
	case "ip_address":
		if a, err := netip.ParseAddr(want); err == nil {
			want = a.String()
		}
		f.Addresses = append(f.Addresses, want)
	case "ip_address_substr":
		f.Parts = append(f.Parts, want)
	case "subnet_id":
		f.SubnetIDs = append(f.SubnetIDs, want)
	}
	return nil
}

func (f *FixedIPFilter) match(ip FixedIP) bool {
	text := ip.IPAddress.String()
	return (f.Addresses == nil || slices.Contains(f.Addresses, text)) &&
		(f.SubnetIDs == nil || slices.Contains(f.SubnetIDs, ip.SubnetID)) &&
		(f.Parts == nil || slices.ContainsFunc(f.Parts, func(p string) bool { return strings.Contains(text, p) }))
}

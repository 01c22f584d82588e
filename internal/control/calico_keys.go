package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The ports of a routed network are endpoints of Calico's data model, which the policy agents
// implement on their hosts (spec/calico 18). Keys are derived in the transactions that change their
// inputs: the input that changes is written, the others are guarded as a whole.

// interfacePrefix begins the names of workload interfaces that Neutron's clients make.
const interfacePrefix = "tap"

// keyRouted is marked by the operation that makes the first routed network.
const keyRouted = "routed"

// calicoKeys writes the keys of Calico's data model in an operation's transaction.
type calicoKeys struct{ *operation }

func (o *operation) calico() calicoKeys { return calicoKeys{o} }

// put writes what lies at a key of Calico's data model, or deletes it where object is nil.
func (k calicoKeys) put(key calico.Key, object any) error {
	path, err := key.Path()
	if err != nil {
		return invalid("%v", err)
	}
	if object == nil {
		k.tx.DeleteKey(path)
		return nil
	}
	value, err := calico.Encode(key, object)
	if err != nil {
		return invalid("%v", err)
	}
	k.tx.PutKey(path, value)
	return nil
}

// deriveEndpoint replaces the endpoint of a port of network n; old is nil for a new port.
func (k calicoKeys) deriveEndpoint(old, p *neutron.Port, n *neutron.Network) error {
	if !n.Routed() {
		return nil
	}
	n, err := schema.Networks.Get(k.tx, n.ID) // its state is in the endpoint
	if err != nil {
		return err
	}
	if old != nil {
		if err := k.dropEndpoint(old, n); err != nil {
			return err
		}
	}
	if !translate.HasEndpoint(p, n) {
		return nil
	}
	e, err := k.endpoint(k.tx, p, n)
	if err != nil {
		return err
	}
	return k.put(translate.EndpointKey(p), e)
}

// dropEndpoint deletes the endpoint of a port.
func (k calicoKeys) dropEndpoint(p *neutron.Port, n *neutron.Network) error {
	if !translate.HasEndpoint(p, n) {
		return nil
	}
	return k.put(translate.EndpointKey(p), nil)
}

// deriveEndpoints rewrites the endpoints of ports after a change of their network or subnet. For
// many ports it makes pending work, and reports that.
func (k calicoKeys) deriveEndpoints(ids []string, n *neutron.Network) (pending bool, err error) {
	if len(ids) > stepObjects {
		return true, k.begin(workDeriveEndpoints, n.ID)
	}
	for _, id := range ids {
		p, err := schema.Ports.Get(k.tx, id)
		if err != nil {
			return false, err
		}
		if err := k.deriveEndpoint(p, p, n); err != nil {
			return false, err
		}
	}
	return false, nil
}

// deriveDHCP writes what the DHCP agents need to know of a subnet of network n.
func (k calicoKeys) deriveDHCP(s *neutron.Subnet, n *neutron.Network) error {
	if !n.Routed() {
		return nil
	}
	if d := translate.DHCPSubnet(s, n); d != nil {
		return k.put(calico.DHCPSubnetKey{Subnet: s.ID}, d)
	}
	return k.dropDHCP(s.ID, n)
}

func (k calicoKeys) dropDHCP(subnetID string, n *neutron.Network) error {
	if !n.Routed() {
		return nil
	}
	return k.put(calico.DHCPSubnetKey{Subnet: subnetID}, nil)
}

// deriveProfile writes the profile of a group, whether ports use it or not: so neither the first
// port of a group nor its last is a matter of the group, and rules may name groups without members.
func (k calicoKeys) deriveProfile(g *neutron.SecurityGroup) error {
	k.tx.Heed(keyRouted)
	rules, tags, err := profileOf(k.tx, g)
	if err != nil {
		return err
	}
	id := translate.ProfileID(g.ID)
	return errors.Join(k.put(calico.ProfileRulesKey{Profile: id}, rules), k.put(calico.ProfileTagsKey{Profile: id}, tags))
}

// profileOf translates a group with the members of the address groups that its rules name. Without
// a routed network these are left out: each change of a member would have to rewrite the profile,
// which no host reads. Profiles get them with the first routed network, and keep those that they
// have when the last one goes.
func profileOf(r records.Reader, g *neutron.SecurityGroup) (*calico.ProfileRules, *calico.ProfileTags, error) {
	addresses := map[string][]netip.Prefix{}
	if hasRouted(r) {
		for _, id := range schema.SecurityGroups.Values("remote_address_group", g) {
			group, err := schema.AddressGroups.Get(r, id) // a change of members writes it
			if err != nil {
				return nil, nil, err
			}
			addresses[id] = addressesIn(r, group)
		}
	}
	rules, tags := translate.Profile(g, addresses)
	return rules, tags, nil
}

// addressesChanged makes pending work of the profiles that have members of an address group, and
// reports whether there are any.
func (k calicoKeys) addressesChanged(addressGroup string) (pending bool, err error) {
	k.tx.Heed(keyRouted)
	users := schema.SecurityGroups.Referrers(k.tx, "remote_address_group", addressGroup)
	if len(users) == 0 || !hasRouted(k.tx) {
		return false, nil
	}
	return true, k.begin(workDeriveAddressGroup, addressGroup)
}

func (k calicoKeys) dropProfile(groupID string) error {
	id := translate.ProfileID(groupID)
	return errors.Join(k.put(calico.ProfileRulesKey{Profile: id}, nil), k.put(calico.ProfileTagsKey{Profile: id}, nil))
}

// checkRoutedPort refuses what a host cannot do for a machine on a routed network.
func checkRoutedPort(p *neutron.Port, groups []*neutron.SecurityGroup) error {
	if translate.ClassOf(p.DeviceOwner) != translate.VIF {
		return nil
	}
	if !p.PortSecurityEnabled {
		return invalid("port_security_enabled cannot be false on a routed network: its hosts check the source of every packet")
	}
	if name := translate.ProfileInterface(p); name != "" && !strings.HasPrefix(name, interfacePrefix) {
		return invalid("interface_name '%s' in binding:profile does not begin with %s, as interfaces of a routed network do", name, interfacePrefix)
	}
	for _, pair := range p.AllowedAddressPairs {
		if _, ok := translate.HostAddress(pair.IPAddress); !ok {
			return invalid("allowed_address_pairs: %s is a range; a port of a routed network may only have single addresses", pair.IPAddress)
		}
		if pair.MACAddress != p.MACAddress {
			return invalid("allowed_address_pairs: mac_address %s of %s is not the port's; a port of a routed network has only its own",
				pair.MACAddress, pair.IPAddress)
		}
	}
	for _, g := range groups {
		if !g.Stateful {
			return invalid("security_groups: %s is stateless; a routed network tracks all connections", g.ID)
		}
	}
	bound := *p
	bound.HostID, bound.InterfaceName = "host", translate.InterfaceName(p)
	if _, err := translate.EndpointKey(&bound).Path(); err != nil {
		return invalid("%v", err)
	}
	if err := translate.Endpoint(&bound, &neutron.Network{}, nil, "").Validate(); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// checkNoGateway refuses a machine its gateway's address, which every host of the network has.
func (k calicoKeys) checkNoGateway(p *neutron.Port) error {
	if translate.ClassOf(p.DeviceOwner) != translate.VIF {
		return nil
	}
	for _, f := range p.FixedIPs {
		s, err := schema.Subnets.Get(k.tx, f.SubnetID)
		if err != nil {
			return err
		}
		if s.GatewayIP != nil && *s.GatewayIP == f.IPAddress {
			return invalid("fixed_ips: %s is the gateway_ip of subnet %s; on a routed network every host has it itself", f.IPAddress, s.ID)
		}
	}
	return nil
}

// checkNoMachine refuses a gateway that a machine has as its address.
func (k calicoKeys) checkNoMachine(s *neutron.Subnet, n *neutron.Network) error {
	if !n.Routed() || s.GatewayIP == nil {
		return nil
	}
	for p := range schema.Ports.By(k.tx, "ip", schema.PortIP(s.ID, *s.GatewayIP)) {
		if translate.ClassOf(p.DeviceOwner) == translate.VIF {
			return invalid("gateway_ip %s is an address of port %s; on a routed network every host has it itself", *s.GatewayIP, p.ID)
		}
	}
	return nil
}

// checkRoutedSubnet refuses subnets that the DHCP agents cannot serve: they use its gateway.
func checkRoutedSubnet(s *neutron.Subnet, n *neutron.Network) error {
	switch {
	case !n.Routed() || !s.EnableDHCP:
		return nil
	case s.GatewayIP == nil:
		return invalid("gateway_ip is required on a routed network if enable_dhcp is True")
	case !s.CIDR.Contains(*s.GatewayIP):
		return invalid("gateway_ip %s is not in %s, as a routed network needs if enable_dhcp is True", *s.GatewayIP, s.CIDR)
	case s.CIDR.Addr().IsLinkLocalUnicast():
		return invalid("cidr %s is link-local; a routed network cannot route it", s.CIDR)
	}
	return nil
}

// checkOverlap refuses a range that shares addresses with another routed network: they are one
// space of addresses. Subnets that are made at once are held against each other.
func (k calicoKeys) checkOverlap(s *neutron.Subnet, n *neutron.Network) error {
	if !n.Routed() {
		return nil
	}
	k.tx.Touch("routed-subnets")
	for other := range schema.Subnets.All(k.tx) {
		if other.ID == s.ID || !other.CIDR.Overlaps(s.CIDR) {
			continue
		}
		if m, ok := schema.Networks.Peek(k.tx, other.NetworkID); ok && m.Routed() {
			return invalid("Requested subnet with cidr: %s for network: %s overlaps with a subnet of another routed network", s.CIDR, s.NetworkID)
		}
	}
	return nil
}

// open prepares the site for its first routed network: agents take tap interfaces as workloads and
// report endpoint status, and existing groups get profiles. Settings in force are not written.
func (k calicoKeys) open(ctx context.Context) error {
	if hasRouted(k.tx) {
		return nil
	}
	k.tx.Mark(keyRouted)
	if err := errors.Join(
		k.setting(ctx, "InterfacePrefix", withPrefix),
		k.setting(ctx, "EndpointReportingEnabled", enabled),
	); err != nil {
		return err
	}
	return k.begin(workDeriveProfiles, allGroups)
}

// setting changes a global setting of the agents by want, which gets "" for a missing one.
func (k calicoKeys) setting(ctx context.Context, name string, want func(string) string) error {
	path, err := calico.GlobalConfigKey{Name: name}.Path()
	if err != nil {
		return err
	}
	kv, err := k.db.Store().Get(ctx, path)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("setting %s of the agents: %w", name, err)
	}
	k.tx.ExpectKey(path, kv.ModRevision)
	if now := string(kv.Value); want(now) != now {
		k.tx.PutKey(path, []byte(want(now)))
	}
	return nil
}

// withPrefix adds our prefix to a list; without a setting workloads' interfaces are those of cali.
func withPrefix(list string) string {
	if list == "" {
		list = "cali"
	}
	prefixes := strings.Split(list, ",")
	if slices.ContainsFunc(prefixes, func(p string) bool { return strings.TrimSpace(p) == interfacePrefix }) {
		return list
	}
	return list + "," + interfacePrefix
}

// enabled is true in the spelling that is there.
func enabled(text string) string {
	if slices.Contains([]string{"true", "1", "yes", "y", "t"}, strings.ToLower(text)) {
		return text
	}
	return "true"
}

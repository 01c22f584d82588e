package offline

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// What a file says about an object becomes the request that a client of the API would make: the
// server's attribute table reads it, and the server's operation carries it out.

// checkAttributes refuses attributes that the resource does not have, whatever their values.
func checkAttributes(r neutron.Resource, data object) error {
	var known []string
	for _, a := range r.Attributes() {
		if a.InBody() {
			known = append(known, a.Name)
		}
	}
	switch r {
	case neutron.Routers:
		known = append(known, attrGatewayPort)
	case neutron.PortForwardings:
		known = append(known, forwardedFloatingIP)
	case neutron.FirewallLogs:
		known = append(known, loggingResource, loggingResourceID)
	case neutron.BGPSpeakers:
		known = append(known, deletedPeers)
	case neutron.BGPPeers:
		known = append(known, peerSpeaker)
	case neutron.RemoteMACEntries:
		known = append(known, remoteMACDevice)
	case neutron.L2GatewayConnections:
		known = append(known, embeddedGateway)
	}
	if _, err := data.object(known...); err != nil {
		return err
	}
	for _, a := range r.Attributes() {
		nodes, err := data.get(a.Name).list()
		if err != nil {
			continue // a wrong value is refused when the step is applied
		}
		for _, n := range nodes {
			o, err := n.anyObject()
			if err != nil {
				continue // likewise
			}
			switch {
			case r == neutron.SecurityGroups && a.Name == groupRules:
				err = checkAttributes(neutron.SecurityGroupRules, o)
			case a.Keys() != nil:
				_, err = n.object(a.Keys()...)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// groupRules is the attribute of a security group by which a file gives it rules; clients of the
// API make them one by one.
const groupRules = "security_group_rules"

// create makes an object.
func (w *world) create(k *kind, id string, data object) error {
	switch k.Resource {
	case neutron.Routers:
		return w.createRouter(k, id, data)
	case neutron.FirewallLogs:
		return w.createFirewallLog(k, id, data)
	case neutron.BGPSpeakers:
		return w.createBGPSpeaker(k, id, data)
	case neutron.BGPPeers:
		return w.createBGPPeer(k, id, data)
	case neutron.RemoteMACEntries:
		return w.createRemoteMAC(k, id, data)
	case neutron.L2GatewayConnections:
		return w.createConnection(k, id, data)
	}
	v, err := w.newValues(k, id, data)
	if err != nil {
		return err
	}
	if k.Resource == neutron.SecurityGroups {
		if v[groupRules], err = w.newRules(id, data.get(groupRules)); err != nil {
			return err
		}
	}
	return k.create(v)
}

// newValues returns the values of a new object, which must not exist yet.
func (w *world) newValues(k *kind, id string, data object) (neutron.Values, error) {
	if _, err := k.show(id); err == nil {
		return nil, refuse(neutron.Conflict, "%s %s exists already", strings.ReplaceAll(k.Name(), "_", " "), id)
	}
	body := request(k, neutron.Create, data.fields, nil)
	if err := w.complete(k, id, body); err != nil {
		return nil, err
	}
	floating, err := forwardingOf(k, data, body)
	if err != nil {
		return nil, err
	}
	v, err := neutron.Parse(administrator(), k.Resource, neutron.Create, body)
	if err != nil {
		return nil, err
	}
	v["id"] = id
	if floating != "" {
		v[forwardedFloatingIP] = floating
	}
	if k.Resource == neutron.FloatingIPs {
		if err := w.floatingIPValues(v, data); err != nil {
			return nil, err
		}
		if v["floating_port_id"], err = w.addressHolder(v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// newRules returns the values of the rules that a new group comes with.
func (w *world) newRules(group string, n node) ([]neutron.Values, error) {
	rules := []neutron.Values{}
	nodes, err := n.list()
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		o, err := n.anyObject()
		if err != nil {
			return nil, err
		}
		id, err := idOf(o.get("id"))
		if err != nil {
			return nil, err
		}
		v, err := w.newRule(id, group, o)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(rules, func(r neutron.Values) bool { return r.Text("id") == id }) {
			return nil, refuse(neutron.Conflict, "%s is there twice", o.under("id"))
		}
		rules = append(rules, v)
	}
	return rules, nil
}

// newRule returns the values of a rule of a group, which it need not name.
func (w *world) newRule(id, group string, data object) (neutron.Values, error) {
	if named := data.get("security_group_id"); !named.null() && named.value != group {
		return nil, refuse(neutron.Invalid, "%s is another group than the one that the rule is in", named.place)
	}
	fields := cloneFields(data)
	fields["security_group_id"] = group
	v, err := w.newValues(w.kinds[neutron.SecurityGroupRules.Name()], id, object{data.node, fields})
	if err == nil {
		_, err = neutron.NewSecurityGroupRule(v) // its own mistakes are reported at its place
	}
	return v, err
}

// cloneFields returns a copy of an object's fields.
func cloneFields(o object) map[string]any {
	fields := maps.Clone(o.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	return fields
}

// update changes an object.
func (w *world) update(k *kind, id string, data object) error {
	switch k.Resource {
	case neutron.Routers:
		return w.updateRouter(k, id, data)
	case neutron.BGPSpeakers:
		return w.updateBGPSpeaker(k, id, data)
	case neutron.BGPPeers:
		data = withoutFields(data, peerSpeaker)
	}
	return w.change(k, id, data)
}

// change changes an object by what a client of the API would send.
func (w *world) change(k *kind, id string, data object) error {
	stored, err := k.show(id)
	if err != nil {
		return err
	}
	switch k.Resource {
	case neutron.RemoteMACEntries:
		return refuse(neutron.Unsupported, "remote MAC entries cannot be updated")
	case neutron.L2GatewayConnections:
		return nil // it means nothing (midonet-translations §19)
	case neutron.FloatingIPs:
		data.fields = associated(data.fields, stored)
	case neutron.FirewallLogs:
		data = withoutLoggingResource(data)
	}
	v, err := neutron.Parse(administrator(), k.Resource, neutron.Update, request(k, neutron.Update, data.fields, stored))
	if err != nil {
		return err
	}
	if k.Resource == neutron.FloatingIPs {
		if err := w.floatingIPValues(v, data); err != nil {
			return err
		}
	}
	return k.update(id, v)
}

// request returns the attributes that a client would send. A file may repeat what only the server
// sets (times, status…) and, in an update, what cannot change, as the stored object has it.
func request(k *kind, op neutron.Op, given, stored map[string]any) map[string]any {
	body := maps.Clone(given)
	if body == nil {
		body = map[string]any{}
	}
	for _, a := range k.Attributes() {
		same := op == neutron.Update && !a.Update && reflect.DeepEqual(body[a.Name], stored[a.Name])
		if same || !a.Create && !a.Update {
			delete(body, a.Name)
		}
	}
	return body
}

// complete adds to a create what a server would choose by chance, or would find in its database.
func (w *world) complete(k *kind, id string, body map[string]any) error {
	absent := func(name string) bool { _, given := body[name]; return !given }
	if absent("project_id") && absent("tenant_id") {
		body["project_id"] = ""
	}
	switch k.Resource {
	case neutron.Subnets:
		if absent("ip_version") {
			body["ip_version"] = ipVersion(body["cidr"])
		}
	case neutron.Ports:
		for _, list := range []string{"fixed_ips", "security_groups"} {
			if absent(list) {
				body[list] = []any{}
			}
		}
		if body["mac_address"] == nil {
			mac, err := w.freeMAC(id, fmt.Sprint(body["network_id"]))
			if err != nil {
				return err
			}
			body["mac_address"] = mac.String()
		}
	}
	return nil
}

// ipVersion returns the version of a range as the API takes it.
func ipVersion(cidr any) string {
	text, _ := cidr.(string)
	address, _, _ := strings.Cut(text, "/")
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() {
		return "6"
	}
	return "4"
}

// freeMAC returns a MAC address that follows from a port's id, another one if the network has that
// already.
func (w *world) freeMAC(port, network string) (packet.MAC, error) {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return packet.MAC{}, err
	}
	for seed := port; ; seed += "'" {
		sum := sha256.Sum256([]byte(seed))
		mac := packet.MAC{0xfa, 0x16, 0x3e, sum[0], sum[1], sum[2]}
		if schema.Ports.CountBy(snap, "mac", schema.PortMAC(network, mac)) == 0 {
			return mac, nil
		}
	}
}

// idOf reads an id that must be there, in canonical spelling.
func idOf(n node) (string, error) {
	if n.null() {
		return "", refuse(neutron.Invalid, "%s is missing", n.place)
	}
	text, err := n.text()
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return "", n.wants("a UUID")
	}
	return id.String(), nil
}

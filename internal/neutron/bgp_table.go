package neutron

import (
	"encoding/json"
	"math"
	"strings"
	"unicode"
)

func bgpSpeakerTable() *Table[*BGPSpeaker] {
	std := func(o *BGPSpeaker) *Standard { return &o.Standard }
	advertise := func(name, doc string, get func(o *BGPSpeaker) bool) column[*BGPSpeaker] {
		return row(Attribute{Name: name, Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean", Doc: doc, parse: flag},
			flagValue(get))
	}
	ids := func(name, doc string, get func(o *BGPSpeaker) []string) column[*BGPSpeaker] {
		return row(Attribute{Name: name, Type: "list of uuids", Doc: doc},
			jsonValue(func(b []byte, o *BGPSpeaker) []byte { return appendList(b, get(o), appendString) }))
	}
	cols := []column[*BGPSpeaker]{
		idColumn(std), nameColumn(std),
		asNumberColumn("local_as", func(o *BGPSpeaker) uint32 { return o.LocalAS }),
		row(Attribute{Name: "ip_version", Create: true, Default: asNull{}, Filter: true, Sort: true, Type: "integer",
			Doc: "4, of what it announces; 6 is refused with 501", parse: numericIPVersion}, numberValue(func(o *BGPSpeaker) int64 { return int64(o.IPVersion) })),
		row(Attribute{Name: "logical_router", Create: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "the router that it speaks for; add_gateway_network finds one too", parse: orNull(uuid)}, textOrNullValue(func(o *BGPSpeaker) string { return o.RouterID })),
		row(Attribute{Name: "router_id", Create: true, Default: unset{}, Hidden: true, Type: "uuid", Doc: "the same as logical_router", parse: orNull(uuid)}, value[*BGPSpeaker]{}),
	}
	project := projectColumns(std)
	project[1].Attribute.Doc = "that of the admin who made it, whatever the request says"
	return newTable(BGPSpeakers, append(append(cols, project...),
		ids("peers", "at most 100; changed by add_bgp_peer and remove_bgp_peer", func(o *BGPSpeaker) []string { return o.PeerIDs }),
		ids("networks", "at most 100 while it has no router; changed by add_gateway_network and remove_gateway_network", func(o *BGPSpeaker) []string { return o.NetworkIDs }),
		advertise("advertise_floating_ip_host_routes", "whether floating IPs of the router are announced, if the speaker has a gateway network", func(o *BGPSpeaker) bool { return o.AdvertisesFloatingIPs }),
		advertise("advertise_tenant_networks", "whether the router's networks and extra routes are announced", func(o *BGPSpeaker) bool { return o.AdvertisesNetworks }),
	))
}

func bgpPeerTable() *Table[*BGPPeer] {
	std := func(o *BGPPeer) *Standard { return &o.Standard }
	cols := []column[*BGPPeer]{
		idColumn(std), nameColumn(std),
		row(Attribute{Name: "peer_ip", Create: true, Default: required{}, Filter: true, Sort: true, Type: "ip address", parse: address},
			textValue(func(o *BGPPeer) string { return o.PeerIP.String() })),
		asNumberColumn("remote_as", func(o *BGPPeer) uint32 { return o.RemoteAS }),
		row(Attribute{Name: "auth_type", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string",
			Doc: "none or md5", parse: oneOf(BGPAuthNone, BGPAuthMD5)}, textValue(func(o *BGPPeer) string { return o.AuthType })),
		row(Attribute{Name: "password", Create: true, Update: true, Hidden: true, Secret: true, Type: "string",
			Doc: "of md5, which needs one; never answered", parse: orNull(md5Password)}, value[*BGPPeer]{}),
	}
	return newTable(BGPPeers, append(cols, projectColumns(std)...))
}

// maxPassword bounds a peer's password, bytes: Linux takes no longer key of TCP MD5. The reference
// takes 255 characters.
const maxPassword = 80

// md5Password takes a key of TCP MD5 (RFC 2385). Refusals do not repeat it.
func md5Password(v any) (any, error) {
	s, ok := v.(string)
	switch {
	case !ok:
		return nil, reasonf("the password is not a string")
	case len(s) > maxPassword:
		return nil, reasonf("the password has %d bytes; TCP MD5 takes at most %d", len(s), maxPassword)
	case strings.ContainsFunc(s, unicode.IsControl):
		return nil, reasonf("the password has a control character; use printable ones")
	}
	return s, nil
}

// asNumberColumn returns the row of an AS number of 4 bytes.
func asNumberColumn[T any](name string, get func(o T) uint32) column[T] {
	return row(Attribute{Name: name, Create: true, Default: asNull{}, Filter: true, Sort: true, Type: "integer",
		Doc: "1 to 4294967295", parse: asNumber}, numberValue(func(o T) int64 { return int64(get(o)) }))
}

// asNumber takes an AS number. Unlike between it refuses what is no number as Neutron's validators
// do.
func asNumber(v any) (any, error) {
	if _, ok := toInt(v); !ok {
		return nil, reasonf("'%s' is not an integer", pyText(v))
	}
	return between(1, math.MaxUint32)(v)
}

// numericIPVersion takes the numbers 4 and 6, and no texts.
func numericIPVersion(v any) (any, error) {
	if n, ok := v.(json.Number); ok {
		if f, err := n.Float64(); err == nil && (f == 4 || f == 6) {
			return int(f), nil
		}
	}
	return nil, reasonf("%s is not in valid_values", pyText(v))
}

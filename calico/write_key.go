package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// pathWriter writes the path of a key, part by part. In full mode a part that is missing is an error; in list mode
// writing ends there, which leaves the prefix of all keys that agree with the parts before.
type pathWriter struct {
	text   []byte
	list   bool // stop at what is missing
	alias  bool // the second spelling of seed 001
	family int  // of an address that is missing, in list mode: 4 or 6
	over   bool
	err    error
}

func (w *pathWriter) put(text string) {
	if !w.over && w.err == nil {
		w.text = append(w.text, text...)
	}
}

func (w *pathWriter) missing(what string) {
	if !w.list && w.err == nil {
		w.err = errors.New(what + " is missing")
	}
	w.over = true
}

// plain writes a name that is never escaped.
func (w *pathWriter) plain(what, name string) {
	switch {
	case w.over || w.err != nil:
	case name == "":
		w.missing(what)
	case strings.Contains(name, "/"):
		w.err = fmt.Errorf("%s %q: a slash cannot be written in it", what, name)
	default:
		w.put(name)
	}
}

// escaped writes a name in which % and / have an escape.
func (w *pathWriter) escaped(what, name string) {
	if name == "" {
		w.missing(what)
		return
	}
	if w.over || w.err != nil {
		return
	}
	for i := range len(name) {
		switch c := name[i]; c {
		case '%':
			w.text = append(w.text, "%25"...)
		case '/':
			w.text = append(w.text, "%2f"...)
		default:
			w.text = append(w.text, c)
		}
	}
}

func (w *pathWriter) fail(format string, args ...any) {
	if !w.over && w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// digit writes the 4 or 6 of an address family.
func (w *pathWriter) digit(ip netip.Addr) {
	switch {
	case ip.Is4In6():
		w.fail("address %s: an IPv4 address cannot be written as one of IPv6", ip)
	case ip.Is4(), !ip.IsValid() && w.family == 4:
		w.put("4")
	case ip.Is6(), w.family == 6:
		w.put("6")
	default:
		w.missing("address")
	}
}

func (w *pathWriter) ip(ip netip.Addr) {
	switch {
	case !ip.IsValid():
		w.missing("address")
	case ip.Zone() != "":
		w.fail("address %s: a zone cannot be written", ip)
	case !w.over && w.err == nil:
		w.text = ip.AppendTo(w.text)
	}
}

// cidr writes a prefix with a dash in place of its slash.
func (w *pathWriter) cidr(p netip.Prefix) {
	switch {
	case !p.IsValid():
		w.missing("CIDR")
	case p != p.Masked():
		w.fail("CIDR %s: has bits beyond its length; want %s", p, p.Masked())
	case !w.over && w.err == nil:
		w.text = p.Addr().AppendTo(w.text)
		w.text = fmt.Appendf(w.text, "-%d", p.Bits())
	}
}

// write writes a path; it is the other half of find.
func (w *pathWriter) write(p *parts) {
	switch p.kind {
	case KindWorkloadEndpoint, KindWorkloadEndpointStatus:
		switch {
		case p.kind == KindWorkloadEndpointStatus:
			w.put("/calico/felix/v1/host/")
		case p.legacy:
			w.put("/calico/host/")
		default:
			w.put("/calico/v1/host/")
		}
		w.plain("host", p.host)
		w.put("/workload/")
		w.escaped("orchestrator", p.orchestrator)
		w.put("/")
		w.escaped("workload", p.workload)
		w.put("/endpoint/")
		w.escaped("endpoint", p.name)
	case KindHostEndpoint:
		w.ofHost("/calico/v1/host/", p, "/endpoint/")
		w.escaped("endpoint", p.name)
	case KindHostEndpointStatus:
		w.ofHost("/calico/felix/v1/host/", p, "/endpoint/")
		w.escaped("endpoint", p.name)
	case KindProfileRules:
		w.profile(p, "/rules")
	case KindProfileTags:
		w.profile(p, "/tags")
	case KindProfileLabels:
		w.profile(p, "/labels")
	case KindProfileRefcount:
		w.profile(p, "/refcount")
	case KindPolicy:
		w.put("/calico/v1/policy/tier/")
		w.plain("tier", p.tier)
		w.put("/policy/")
		w.escaped("policy", p.name)
	case KindTier:
		w.put("/calico/v1/policy/tier/")
		w.plain("tier", p.tier)
		w.put("/metadata")
	case KindHostIP:
		w.ofHost("/calico/v1/host/", p, "/bird_ip")
	case KindHostMetadata:
		w.ofHost("/calico/v1/host/", p, "/metadata")
	case KindOrchRefs:
		w.ofHost("/calico/v1/host/", p, "/orchestrator_refs")
	case KindAgentStatus:
		w.ofHost("/calico/felix/v1/host/", p, "/status")
	case KindAgentLastStatus:
		w.ofHost("/calico/felix/v1/host/", p, "/last_reported_status")
	case KindGlobalConfig:
		w.put("/calico/v1/config/")
		w.configName(p)
	case KindHostConfig:
		w.ofHost("/calico/v1/host/", p, "/config/")
		w.configName(p)
	case KindReady:
		w.put("/calico/v1/Ready")
	case KindDHCPSubnet:
		w.put("/calico/dhcp/v1/subnet/")
		w.plain("subnet", p.name)
	case KindNeutronElection:
		w.put("/calico/openstack/v1/neutron_election")
	default:
		w.writeAddressing(p)
	}
}

// writeAddressing writes the paths of address management and of BGP.
func (w *pathWriter) writeAddressing(p *parts) {
	switch p.kind {
	case KindIPPool:
		w.put("/calico/v1/ipam/v")
		w.digit(p.cidr.Addr())
		w.put("/pool/")
		w.cidr(p.cidr)
	case KindIPAMBlock:
		w.put("/calico/ipam/v2/assignment/ipv")
		w.digit(p.cidr.Addr())
		w.put("/block/")
		w.cidr(p.cidr)
	case KindIPAMBlockAffinity:
		w.ofHost("/calico/ipam/v2/host/", p, "/ipv")
		w.digit(p.cidr.Addr())
		w.put("/block/")
		w.cidr(p.cidr)
	case KindIPAMHandle:
		if w.alias {
			w.put("/calico/ipam/v2/assignment/handle/")
		} else {
			w.put("/calico/ipam/v2/handle/")
		}
		w.plain("handle", p.name)
	case KindIPAMHost:
		w.ofHost("/calico/ipam/v2/host/", p, "")
	case KindIPAMConfig:
		w.put("/calico/ipam/v2/config")
	case KindBGPGlobalConfig:
		if w.alias {
			w.put("/calico/v1/config/bgp_node_mesh")
			return
		}
		w.put("/calico/bgp/v1/global/")
		w.configName(p)
	case KindBGPNodeConfig:
		w.ofHost("/calico/bgp/v1/host/", p, "/")
		w.configName(p)
	case KindBGPGlobalPeer:
		if w.alias {
			w.put("/calico/v1/config/bgp_peer_v")
		} else {
			w.put("/calico/bgp/v1/global/peer_v")
		}
		w.peer(p.ip)
	case KindBGPNodePeer:
		if w.alias {
			w.ofHost("/calico/v1/host/", p, "/bgp_peer_v")
		} else {
			w.ofHost("/calico/bgp/v1/host/", p, "/peer_v")
		}
		w.peer(p.ip)
	}
}

func (w *pathWriter) ofHost(before string, p *parts, after string) {
	w.put(before)
	w.plain("host", p.host)
	w.put(after)
}

func (w *pathWriter) profile(p *parts, part string) {
	if p.legacy || p.kind == KindProfileRefcount {
		w.put("/calico/policy/profile/")
	} else {
		w.put("/calico/v1/policy/profile/")
	}
	w.escaped("profile", p.name)
	w.put(part)
}

// configName writes a name, unless the path would then be read as one of another kind.
func (w *pathWriter) configName(p *parts) {
	switch {
	case p.name == "":
		w.missing("name")
	case !isConfigName(p.kind, p.name):
		w.fail("name %q: is none of a %s", p.name, p.kind)
	default:
		w.put(p.name)
	}
}

func (w *pathWriter) peer(ip netip.Addr) {
	w.digit(ip)
	w.put("/")
	w.ip(ip)
}

func path(key Key) (string, error) {
	w, p := pathWriter{text: make([]byte, 0, 128)}, key.parts()
	if w.write(&p); w.err != nil {
		return "", fmt.Errorf("key of a %s: %w", p.kind, w.err)
	}
	return string(w.text), nil
}

// Alias is the second path at which the object of a key may lie, because seed 001 contradicts itself there (spec 2.3).
// Programs read both, where the key's own path wins, write its own path alone, and delete both. Most keys have none.
func Alias(key Key) (path string, ok bool) {
	w, p := pathWriter{alias: true}, key.parts()
	if !p.hasAlias() {
		return "", false
	}
	w.write(&p)
	return string(w.text), w.err == nil
}

func (p *parts) hasAlias() bool {
	switch p.kind {
	case KindIPAMHandle, KindBGPGlobalPeer, KindBGPNodePeer:
		return true
	case KindBGPGlobalConfig:
		return p.name == "" || p.name == nodeMesh
	}
	return false
}

// IsAlias says whether a path is the second one of its key.
func IsAlias(path string) bool {
	var p parts
	alias, ok := p.find(path)
	return ok && alias
}

// Prefixes are the narrowest prefixes below which all keys lie that agree with partial: a key of their type in which
// any part may be missing. With no part missing they are paths. Other keys may lie there too: [Matches] tells them
// apart. The prefixes of aliases come last.
//
//	Prefixes(WorkloadEndpointKey{Host: "h"}) = ["/calico/v1/host/h/workload/"]
//	Prefixes(PoolKey{}) = ["/calico/v1/ipam/v4/pool/", "/calico/v1/ipam/v6/pool/"]
func Prefixes(partial Key) ([]string, error) {
	p := partial.parts()
	var all []string
	for _, alias := range []bool{false, true} {
		if alias && !p.hasAlias() {
			continue
		}
		for _, family := range []int{4, 6} {
			w := pathWriter{list: true, alias: alias, family: family}
			if w.write(&p); w.err != nil {
				return nil, fmt.Errorf("keys of kind %s: %w", p.kind, w.err)
			}
			if text := string(w.text); len(all) == 0 || all[len(all)-1] != text {
				all = append(all, text)
			}
		}
	}
	return all, nil
}

// Matches says whether a key agrees with a partial one, as [Prefixes] takes it: it is of the same type, legacy or not,
// and equal wherever partial has a part.
func Matches(partial, key Key) bool {
	p, k := partial.parts(), key.parts()
	return p.kind == k.kind && p.legacy == k.legacy &&
		agree(p.host, k.host) && agree(p.orchestrator, k.orchestrator) && agree(p.workload, k.workload) &&
		agree(p.tier, k.tier) && agree(p.name, k.name) && agree(p.cidr, k.cidr) && agree(p.ip, k.ip)
}

func agree[T comparable](partial, part T) bool {
	var missing T
	return partial == missing || partial == part
}

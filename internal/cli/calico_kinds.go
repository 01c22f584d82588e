package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/command"
)

// profileKind is a profile's rules, tags and labels as one object, stored in three keys.
const profileKind = calico.Kind("Profile")

// calicoKind is a kind of object as people name it.
type calicoKind struct {
	kind    calico.Kind
	aliases string     // other names, joined by blanks; the kind itself in any case is one too
	zero    calico.Key // the key without ids; of a profile the one of its rules
	ids     []string   // the names of the ids of an object
}

// calicoKinds returns all kinds in the order of lists. Their ids are those of `heddle calico key`.
func calicoKinds() []calicoKind {
	kinds := []calicoKind{
		{zero: calico.WorkloadEndpointKey{}, aliases: "wep weps"},
		{zero: calico.HostEndpointKey{}, aliases: "hep heps"},
		{kind: profileKind, zero: calico.ProfileRulesKey{}, aliases: "prof"},
		{zero: calico.ProfileRulesKey{}, aliases: "rules"},
		{zero: calico.ProfileTagsKey{}, aliases: "tags"},
		{zero: calico.ProfileLabelsKey{}, aliases: "labels"},
		{zero: calico.ProfileRefcountKey{}, aliases: "refcount"},
		{zero: calico.TierKey{}},
		{zero: calico.PolicyKey{}, aliases: "policies pol"},
		{zero: calico.PoolKey{}, aliases: "pool pools"},
		{zero: calico.HostMetadataKey{}, aliases: "node nodes host hosts"},
		{zero: calico.HostIPKey{}},
		{zero: calico.OrchRefsKey{}},
		{zero: calico.ReadyKey{}},
		{zero: calico.GlobalConfigKey{}, aliases: "config"},
		{zero: calico.HostConfigKey{}, aliases: "nodeconfig"},
		{zero: calico.BGPGlobalConfigKey{}, aliases: "bgpconfig"},
		{zero: calico.BGPNodeConfigKey{}, aliases: "bgphostconfig"},
		{zero: calico.BGPGlobalPeerKey{}, aliases: "bgppeer bgppeers peer"},
		{zero: calico.BGPNodePeerKey{}, aliases: "nodepeer"},
		{zero: calico.DHCPSubnetKey{}, aliases: "subnet subnets"},
		{zero: calico.IPAMConfigKey{}},
		{zero: calico.BlockKey{}, aliases: "block blocks"},
		{zero: calico.BlockAffinityKey{}, aliases: "affinity affinities"},
		{zero: calico.HandleKey{}, aliases: "handle handles"},
		{zero: calico.IPAMHostKey{}},
		{zero: calico.AgentStatusKey{}, aliases: "status"},
		{zero: calico.AgentLastStatusKey{}, aliases: "laststatus"},
		{zero: calico.WorkloadEndpointStatusKey{}, aliases: "wepstatus"},
		{zero: calico.HostEndpointStatusKey{}, aliases: "hepstatus"},
		{zero: calico.NeutronElectionKey{}},
	}
	for i := range kinds {
		k := &kinds[i]
		if k.kind == "" {
			k.kind = k.zero.Kind()
		}
		for _, f := range idFields(k.zero) {
			k.ids = append(k.ids, strings.ToLower(f.Name))
		}
	}
	return kinds
}

// isProfilePart reports whether objects of the kind are parts of a Profile.
func (k calicoKind) isProfilePart() bool {
	return k.kind == calico.KindProfileRules || k.kind == calico.KindProfileTags || k.kind == calico.KindProfileLabels
}

// idFields returns the fields of a key that are ids.
func idFields(key calico.Key) []reflect.StructField {
	fields := reflect.VisibleFields(reflect.TypeOf(key))
	return slices.DeleteFunc(fields, func(f reflect.StructField) bool { return f.Name == "Legacy" })
}

// findKind returns a kind by name: the kind in any case, with or without an s, or an alias.
func findKind(name string) (calicoKind, error) {
	wanted := strings.ToLower(name)
	var names []string
	for _, k := range calicoKinds() {
		names = append(names, string(k.kind))
		own := strings.ToLower(string(k.kind))
		if wanted == own || wanted == own+"s" || slices.Contains(strings.Fields(k.aliases), wanted) {
			return k, nil
		}
	}
	return calicoKind{}, &command.Exit{Code: 2, Text: fmt.Sprintf("%q is no kind of object: want one of %s", name, strings.Join(names, ", "))}
}

// key returns the kind's key with ids in the order of k.ids. An empty id matches any in a filter.
func (k calicoKind) key(ids []string, legacy bool) (calico.Key, error) {
	v := reflect.New(reflect.TypeOf(k.zero)).Elem()
	for i, f := range idFields(k.zero) {
		if ids[i] == "" {
			continue
		}
		field := v.FieldByIndex(f.Index)
		switch field.Interface().(type) {
		case netip.Prefix:
			p, err := netip.ParsePrefix(ids[i])
			if err != nil {
				return nil, fmt.Errorf("%s %q: want a CIDR such as 10.0.0.0/16", k.ids[i], ids[i])
			}
			field.Set(reflect.ValueOf(p))
		case netip.Addr:
			a, err := netip.ParseAddr(ids[i])
			if err != nil {
				return nil, fmt.Errorf("%s %q: want an address", k.ids[i], ids[i])
			}
			field.Set(reflect.ValueOf(a))
		default:
			field.SetString(ids[i])
		}
	}
	if legacy {
		field := v.FieldByName("Legacy")
		if !field.IsValid() {
			return nil, errors.New("the legacy tree has no such kind")
		}
		field.SetBool(true)
	}
	return v.Interface().(calico.Key), nil
}

// idsOf returns the ids in a key, in the order of k.ids.
func idsOf(key calico.Key) []string {
	var ids []string
	v := reflect.ValueOf(key)
	for _, f := range idFields(key) {
		ids = append(ids, fmt.Sprint(v.FieldByIndex(f.Index).Interface()))
	}
	return ids
}

// nameEscape and nameUnescape escape ids in a name.
var (
	nameEscape   = strings.NewReplacer("%", "%25", "/", "%2f")
	nameUnescape = strings.NewReplacer("%2f", "/", "%2F", "/", "%25", "%")
)

// name returns an object's name on the command line: its ids joined by slashes. A slash within an
// id, except the last, is written %2f, as in its path.
func (k calicoKind) name(ids []string) string {
	ids = slices.Clone(ids)
	if k.kind == calico.KindPolicy && ids[0] == defaultTier {
		ids = ids[1:]
	}
	for i := range ids {
		if i < len(ids)-1 || !k.lastIsRest() {
			ids[i] = nameEscape.Replace(ids[i])
		}
	}
	return strings.Join(ids, "/")
}

// lastIsRest reports whether the last id may contain slashes: a CIDR, or the name of a setting.
func (k calicoKind) lastIsRest() bool {
	if len(k.ids) == 0 {
		return false
	}
	last := k.ids[len(k.ids)-1]
	return last == "cidr" || last == "name"
}

// defaultTier is the tier of policies named without one.
const defaultTier = "default"

// parseName parses what name returns.
func (k calicoKind) parseName(name string) ([]string, error) {
	n := len(k.ids)
	parts := strings.SplitN(name, "/", max(n, 1))
	if k.kind == calico.KindPolicy && len(parts) == 1 {
		parts = []string{defaultTier, parts[0]}
	}
	wrong := n != len(parts) || slices.Contains(parts, "") || n > 0 && !k.lastIsRest() && strings.Contains(parts[n-1], "/")
	if n == 0 || wrong {
		want := "no name: there is one of it"
		if n > 0 {
			want = strings.ToUpper(strings.Join(k.ids, "/"))
		}
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s %q: want %s; a slash or per cent sign within a part is written %%2f or %%25", k.kind, name, want)}
	}
	for i := range parts {
		if i < n-1 || !k.lastIsRest() {
			parts[i] = nameUnescape.Replace(parts[i])
		}
	}
	return parts, nil
}

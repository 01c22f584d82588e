package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// Underlays has how each host is reached. A host writes its own record and no other.
var Underlays = records.NewDerivedTable("underlay", UnderlayPrefix, func(u *topology.HostUnderlay) string { return u.HostID },
	records.Index("zone", func(u *topology.HostUnderlay) []string { return []string{zone(u)} }),
)

// carried returns the names of the physical networks that a host carries, in order. The host may
// have written anything.
func carried(u *topology.HostUnderlay) []string {
	names := slices.Sorted(maps.Keys(u.PhysicalNetworks))
	return slices.DeleteFunc(names, func(name string) bool { return !topology.IsPhysicalName(name) })
}

// PolicyAlive reports whether a host without the overlay has a live policy agent, by the status
// that this one keeps in Calico's data model: it reports nothing else here.
func PolicyAlive(ctx context.Context, st store.Store, r records.Reader, h *topology.Host) (bool, error) {
	if _, overlay := Underlays.Peek(r, h.ID); overlay {
		return false, nil
	}
	key, err := calico.AgentStatusKey{Host: h.Name}.Path()
	if err != nil {
		return false, err
	}
	_, err = st.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// CarriedNetworks returns the names of the physical networks that registered hosts carry, in order.
func CarriedNetworks(r records.Reader) []string {
	names := map[string]bool{}
	for u := range Underlays.All(r) {
		if _, there := Hosts.Peek(r, u.HostID); there {
			for _, name := range carried(u) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Carriers returns how many live hosts carry each physical network that a network is on.
func Carriers(r records.Reader) map[string]int {
	hosts := map[string]int{}
	for n := range Networks.All(r) {
		if n.PhysicalNetwork != "" {
			hosts[n.PhysicalNetwork] = 0
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	for u := range Underlays.All(r) {
		if _, alive := HostStates.Peek(r, u.HostID); !alive {
			continue
		}
		for _, name := range carried(u) {
			if _, used := hosts[name]; used {
				hosts[name]++
			}
		}
	}
	return hosts
}

// AmbiguousHostError reports that a name may be any of several hosts.
type AmbiguousHostError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousHostError) Error() string {
	return fmt.Sprintf("%s may be any of the hosts with the ids %s", e.Name, strings.Join(e.IDs, ", "))
}

// HostByName returns the host with this name. All lookups by name use it, so that bindings, joins
// and removals agree. The error is a [records.NotFoundError] or an [AmbiguousHostError].
func HostByName(r records.Reader, name string) (*topology.Host, error) {
	var found []*topology.Host
	for h := range Hosts.By(r, "name", name) {
		found = append(found, h)
	}
	return onlyHost(name, found)
}

// FindHost returns the host with this id or name, for operators. An id of one host that is the name
// of another is ambiguous.
func FindHost(r records.Reader, idOrName string) (*topology.Host, error) {
	var found []*topology.Host
	if h, ok := Hosts.Peek(r, idOrName); ok {
		found = append(found, h)
	}
	for h := range Hosts.By(r, "name", idOrName) {
		if len(found) == 0 || found[0].ID != h.ID {
			found = append(found, h)
		}
	}
	return onlyHost(idOrName, found)
}

func onlyHost(name string, found []*topology.Host) (*topology.Host, error) {
	switch len(found) {
	case 0:
		return nil, &records.NotFoundError{Table: Hosts.Name(), ID: name}
	case 1:
		return found[0], nil
	}
	e := &AmbiguousHostError{Name: name}
	for _, h := range found {
		e.IDs = append(e.IDs, h.ID)
	}
	slices.Sort(e.IDs)
	return nil, e
}

// MostTunnelAddresses bounds the tunnel addresses of one host that count.
const MostTunnelAddresses = 4

// HostWithTunnels returns a host with the tunnel addresses and physical networks that it reports
// or, until it has, with those in its record, written by earlier versions; false if there is no
// such host. To bound their cost to other hosts, the first address of a zone counts, and
// [MostTunnelAddresses] in all.
func HostWithTunnels(r records.Reader, id string) (*topology.Host, bool) {
	reported, ok := ReportedTunnels(r, id)
	if !ok {
		return nil, false
	}
	h, _ := Hosts.Peek(r, id)
	reached := *h
	reached.Tunnels = nil
	zones, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for _, t := range reported {
		if zones[t.ZoneID] || !addresses[t.IP] && len(addresses) == MostTunnelAddresses {
			continue
		}
		zones[t.ZoneID], addresses[t.IP] = true, true
		reached.Tunnels = append(reached.Tunnels, t)
	}
	if u, ok := Underlays.Peek(r, id); ok {
		reached.PhysicalNetworks = carried(u)
	}
	return &reached, true
}

// ReportedTunnels returns all tunnel addresses that a host reports; false if there is no such host.
func ReportedTunnels(r records.Reader, id string) ([]topology.HostTunnel, bool) {
	h, ok := Hosts.Peek(r, id)
	if !ok {
		return nil, false
	}
	if u, ok := Underlays.Peek(r, id); ok {
		return u.Tunnels, true
	}
	return h.Tunnels, true
}

// HostName returns the name of a host, or its id where the store has none.
func HostName(r records.Reader, id string) string {
	if h, ok := Hosts.Peek(r, id); ok && h.Name != "" {
		return h.Name
	}
	return id
}

// RegisteredName returns the name of the host with this id, or "", without a replica.
func RegisteredName(ctx context.Context, st store.Store, id string) (string, error) {
	kv, err := st.Get(ctx, Hosts.Key(id))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	var host topology.Host
	if err := json.Unmarshal(kv.Value, &host); err != nil {
		return "", fmt.Errorf("%s: %w", kv.Key, err)
	}
	return host.Name, nil
}

package schema

import (
	"slices"

	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// ContainerBindings has the hosts of service containers, by the container's id. The scheduler
// writes them; one goes with the container's bundle.
var ContainerBindings = records.NewDerivedTable("container-binding", ContainersPrefix, func(b *topology.ContainerBinding) string { return b.ContainerID },
	records.Ref("container", Bundles, func(b *topology.ContainerBinding) []string { return []string{ContainerBundleID(b.ContainerID)} }, records.Cascade()),
	records.Index("host", func(b *topology.ContainerBinding) []string { return []string{b.HostID} }),
)

// ContainerBundleID returns the id of the bundle of a service container.
func ContainerBundleID(containerID string) string {
	return BundleID(topology.Owner{Kind: topology.ContainerOwner, ID: containerID})
}

// RouterBGPBundleID returns the id of the bundle of a router's BGP.
func RouterBGPBundleID(routerID string) string {
	return BundleID(topology.Owner{Kind: topology.RouterBGPOwner, ID: routerID})
}

// BindContainer makes the ports of a service container's bundle lead to it, and binds them to the
// host in its binding, nil for none. The host of the bundle that b replaces, nil for none, becomes
// a former one if it is another.
func BindContainer(b, old *topology.Bundle, to *topology.ContainerBinding) {
	b.ServiceContainers = slices.Clone(b.ServiceContainers) // readers may have those of old
	b.ServiceContainers[0].FormerHostIDs = formerHosts(old, to)
	for i := range b.Ports {
		p := &b.Ports[i]
		p.ServiceContainerID = b.ServiceContainers[0].ID
		p.HostID, p.InterfaceName = "", ""
		if to != nil {
			p.HostID, p.InterfaceName = to.HostID, to.InterfaceName
		}
	}
}

// formerHosts returns the former hosts of a container whose bundle old was, nil for none, and that
// is bound to a host now, nil for none.
func formerHosts(old *topology.Bundle, to *topology.ContainerBinding) []string {
	if old == nil || len(old.ServiceContainers) == 0 || len(old.Ports) == 0 {
		return nil
	}
	former, last := old.ServiceContainers[0].FormerHostIDs, old.Ports[0].HostID
	if last == "" || to != nil && to.HostID == last {
		return former
	}
	all := []string{last}
	for _, host := range former {
		if host != last && len(all) < topology.MaxFormerHosts {
			all = append(all, host)
		}
	}
	return all
}

// FormerHealth returns the newest verdict on a member of those of some hosts, which ran the checks
// before; nil for none.
func FormerHealth(r records.Reader, member string, hosts []string) (newest *topology.MemberHealth) {
	for h := range MemberHealths.By(r, "member", member) {
		if slices.Contains(hosts, h.HostID) && (newest == nil || h.Since.After(newest.Since)) {
			newest = h
		}
	}
	return newest
}

func containerKeys(b *Bundle) (keys []string) {
	if b.Owner.Kind != topology.ContainerOwner {
		return nil
	}
	for i := range b.Bundle.Ports {
		keys = append(keys, TunnelKey(b.Bundle.Ports[i].TunnelKey))
	}
	return keys
}

func containerRouters(b *Bundle) (ids []string) {
	if b.Owner.Kind != topology.ContainerOwner {
		return nil
	}
	for i := range b.Bundle.Ports {
		ids = append(ids, b.Bundle.Ports[i].RouterID)
	}
	return ids
}

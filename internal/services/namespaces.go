package services

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

const (
	// innerLink is the container's end of the pair.
	innerLink = "eth0"
	// linkPrefix begins the names of the host's ends.
	linkPrefix = "hct"
	// linkMTU is the size of packets of containers, bytes: whatever the underlay is, they fit.
	linkMTU = 1280
	// inodeFile holds the number of the namespace that this agent has made for a container.
	inodeFile = "namespace"
)

// open returns a container's namespace and its network: that of an earlier agent, or a new one.
func open(host *hostnet.Linux, dir string, c *plan.Container) (*hostnet.Namespace, *hostnet.Linux, error) {
	ns, net, err := adopt(host, dir, c)
	if err == nil {
		return ns, net, nil
	}
	if !errors.Is(err, hostnet.ErrNotFound) {
		return nil, nil, err
	}
	if err := remove(host, c.Interface, c.Namespace); err != nil {
		return nil, nil, err
	}
	return build(host, dir, c)
}

// adopt opens a namespace that is as the container needs it, or returns hostnet.ErrNotFound.
func adopt(host *hostnet.Linux, dir string, c *plan.Container) (*hostnet.Namespace, *hostnet.Linux, error) {
	if _, err := host.Link(c.Interface); err != nil {
		return nil, nil, err
	}
	ns, err := hostnet.OpenNamespace(c.Namespace)
	if err != nil {
		return nil, nil, err
	}
	net, err := adoptIn(ns, dir, c)
	if err != nil {
		ns.Close()
		return nil, nil, err
	}
	return ns, net, nil
}

// adoptIn is adopt of the network in an open namespace.
func adoptIn(ns *hostnet.Namespace, dir string, c *plan.Container) (*hostnet.Linux, error) {
	inode, err := ns.Inode()
	if err != nil {
		return nil, err
	}
	ours, _ := os.ReadFile(filepath.Join(dir, inodeFile)) // without it, it is another's
	if string(ours) != strconv.FormatUint(inode, 10) {
		return nil, fmt.Errorf("namespace %s of another agent: %w", c.Namespace, hostnet.ErrNotFound)
	}
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return nil, err
	}
	l, err := net.Link(innerLink)
	if err == nil && l.MAC != hostnet.MAC(c.MAC) {
		err = fmt.Errorf("namespace %s for another port: %w", c.Namespace, hostnet.ErrNotFound)
	}
	if err == nil {
		err = configure(net, c)
	}
	if err != nil {
		net.Close()
		return nil, err
	}
	return net, nil
}

// build makes a container's namespace.
func build(host *hostnet.Linux, dir string, c *plan.Container) (*hostnet.Namespace, *hostnet.Linux, error) {
	ns, err := hostnet.NewNamespace()
	if err != nil {
		return nil, nil, err
	}
	net, err := buildIn(ns, host, dir, c)
	if err != nil {
		ns.Close()
		return nil, nil, err
	}
	return ns, net, nil
}

// buildIn makes a container's network in a new namespace. That gets its name last, so that a name
// without a link is what is left of one.
func buildIn(ns *hostnet.Namespace, host *hostnet.Linux, dir string, c *plan.Container) (*hostnet.Linux, error) {
	inode, err := ns.Inode()
	if err != nil {
		return nil, err
	}
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return net.SetUp("lo", true) },
		func() error {
			_, err := net.AddLink(hostnet.LinkSpec{Name: innerLink, Kind: hostnet.Veth, MAC: hostnet.MAC(c.MAC), MTU: linkMTU, Peer: c.Interface, PeerNet: host})
			return err
		},
		func() error { return configure(net, c) },
		func() error { return host.SetUp(c.Interface, true) },
		func() error {
			return os.WriteFile(filepath.Join(dir, inodeFile), []byte(strconv.FormatUint(inode, 10)), 0o600)
		},
		func() error { return ns.Name(c.Namespace) },
	} {
		if err := step(); err != nil {
			net.Close()
			return nil, err
		}
	}
	return net, nil
}

// configure gives a container's network its addresses and its route.
func configure(net *hostnet.Linux, c *plan.Container) error {
	if err := net.Silence(innerLink); err != nil {
		return err
	}
	if err := net.SetUp(innerLink, true); err != nil {
		return err
	}
	// The router answers ARP requests only if they come from an address of the link.
	if err := net.Set(hostnet.Setting{Name: "ipv4/conf/" + innerLink + "/arp_announce", Value: "2"}); err != nil {
		return err
	}
	settings := []hostnet.Setting{{Name: "ipv4/ip_forward", Value: "0"}}
	if c.Kind == topology.ContainerBGP {
		// Peers with TTL security drop answers to their connections with less (RFC 5082).
		settings = append(settings, hostnet.Setting{Name: "ipv4/ip_default_ttl", Value: "255"})
	}
	if err := net.Set(settings...); err != nil {
		return err
	}
	if err := setAddresses(net, innerLink, []netip.Prefix{c.Address}); err != nil {
		return err
	}
	own := make([]netip.Prefix, len(c.Addresses))
	for i, a := range c.Addresses {
		own[i] = netip.PrefixFrom(a, a.BitLen())
	}
	if err := setAddresses(net, "lo", own); err != nil {
		return err
	}
	return net.SetRoute(hostnet.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: c.Gateway, Link: innerLink})
}

// setAddresses makes a link's addresses those desired, except for the loopback's own.
func setAddresses(net *hostnet.Linux, link string, desired []netip.Prefix) error {
	actual, err := net.Addresses(link)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range actual {
		if !a.Addr().IsLoopback() && !slices.Contains(desired, a) {
			errs = append(errs, net.DeleteAddress(link, a))
		}
	}
	for _, a := range desired {
		if !slices.Contains(actual, a) {
			errs = append(errs, net.AddAddress(link, a))
		}
	}
	return errors.Join(errs...)
}

// remove ends the processes of a namespace and removes it, with the host's end of its link.
func remove(host *hostnet.Linux, link, namespace string) error {
	if err := host.DeleteLink(link); err != nil {
		return err
	}
	ns, err := hostnet.OpenNamespace(namespace)
	if errors.Is(err, hostnet.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = endProcesses(ns)
		ns.Close()
	}
	return errors.Join(err, hostnet.Unname(namespace))
}

func endProcesses(ns *hostnet.Namespace) error {
	pids, err := ns.Processes()
	errs := []error{err}
	for _, pid := range pids {
		errs = append(errs, hostnet.EndProcess(pid))
	}
	return errors.Join(errs...)
}

// sweep removes what is left of containers other than those desired: ends of links, then namespaces
// that have no link any more, then files. A namespace with a link is another host's, on a machine
// with several.
func sweep(host *hostnet.Linux, stateDir string, desired []plan.Container) error {
	links, spaces := map[string]bool{}, map[string]bool{}
	for i := range desired {
		links[desired[i].Interface], spaces[desired[i].Namespace] = true, true
	}
	found, err := host.Links()
	errs := []error{err}
	for _, l := range found {
		if l.Kind == hostnet.Veth && strings.HasPrefix(l.Name, linkPrefix) && !links[l.Name] {
			errs = append(errs, host.DeleteLink(l.Name))
		}
	}
	for _, kind := range []string{topology.ContainerHAProxy, topology.ContainerBGP} {
		names, err := hostnet.NamedNamespaces(plan.NamespacePrefix(kind))
		errs = append(errs, err)
		for _, name := range names {
			if !spaces[name] {
				errs = append(errs, removeOrphan(name))
			}
		}
	}
	entries, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if !spaces[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(stateDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeOrphan removes a namespace without a link, and ends its processes.
func removeOrphan(name string) error {
	ns, err := hostnet.OpenNamespace(name)
	if err != nil { // not a namespace: a name that was never mounted
		return hostnet.Unname(name)
	}
	defer ns.Close()
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return hostnet.Unname(name)
	}
	defer net.Close()
	if _, err := net.Link(innerLink); !errors.Is(err, hostnet.ErrNotFound) {
		return err
	}
	return errors.Join(endProcesses(ns), hostnet.Unname(name))
}

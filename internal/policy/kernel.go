package policy

import (
	"context"
	"errors"
	"maps"

	"heddle/internal/hostnet"
	"heddle/internal/policy/nft"
)

func openRules(ns *hostnet.Namespace) (kernel *nft.Kernel, err error) {
	err = ns.Do(func() (err error) {
		kernel, err = nft.Open()
		return err
	})
	return kernel, err
}

// kernel is the network and the nftables of a namespace.
type kernel struct {
	net   *hostnet.Linux
	rules *nft.Kernel
}

// openKernel opens the kernel of a namespace; nil: this process's.
func openKernel(ns *hostnet.Namespace) (*kernel, error) {
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return nil, err
	}
	rules, err := openRules(net.Namespace())
	if err != nil {
		return nil, errors.Join(err, net.Close())
	}
	return &kernel{net, rules}, nil
}

func (k *kernel) close() {
	k.rules.Close()
	k.net.Close()
}

// Cleanup removes everything of agents of this host from the kernel. Traffic is then free.
func Cleanup(ns *hostnet.Namespace) error {
	k, err := openKernel(ns)
	if err != nil {
		return err
	}
	defer k.close()
	return errors.Join(cleanNetwork(k.net), nft.Cleanup(context.Background(), k.rules))
}

// Tables returns the names of the nftables tables of agents of this host.
func Tables(ns *hostnet.Namespace) ([]string, error) {
	kernel, err := openRules(ns)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	return nft.Tables(context.Background(), kernel)
}

// cleanNetwork removes our routes, neighbours, parameters of interfaces, and tunnel devices.
func cleanNetwork(net hostnet.Net) error {
	routes, err := net.Routes()
	if err != nil {
		return err
	}
	var errs []error
	links := map[string]bool{}
	for _, r := range routes {
		if r.Protocol == RouteProtocol {
			links[r.Link] = true
			errs = append(errs, net.DeleteRouteOf(r))
		}
	}
	all, err := net.Links()
	errs = append(errs, err)
	for _, l := range all {
		links[l.Name] = links[l.Name] || isConfigured(net, l.Name)
	}
	maps.DeleteFunc(links, func(_ string, ours bool) bool { return !ours })
	neighbours, err := net.Neighbours()
	errs = append(errs, err)
	for _, n := range neighbours {
		if links[n.Link] && n.Permanent {
			errs = append(errs, net.DeleteNeighbour(n.Link, n.IP))
		}
	}
	proxies, err := net.Proxies()
	errs = append(errs, err)
	for _, p := range proxies {
		if links[p.Link] {
			errs = append(errs, net.DeleteProxy(p))
		}
	}
	for name := range links {
		errs = append(errs, unconfigure(net, name))
	}
	for _, l := range all {
		if ours(l) {
			errs = append(errs, net.DeleteLink(l.Name))
		}
	}
	return errors.Join(errs...)
}

// isConfigured reports whether an interface has the parameters of a workload's. It keeps them, but
// no routes, while its endpoint is inactive or gone.
func isConfigured(net hostnet.Net, name string) bool {
	local, err := net.Setting("ipv4/conf/" + name + "/route_localnet")
	if err != nil || local != "1" {
		return false
	}
	proxy, err := net.Setting("ipv4/conf/" + name + "/proxy_arp")
	return err == nil && proxy == "1"
}

// unconfigure resets an interface's parameters to the kernel's defaults.
func unconfigure(net hostnet.Net, name string) error {
	var errs []error
	for _, s := range [][2]string{{"ipv4/conf/", "/rp_filter"}, {"ipv4/conf/", "/route_localnet"}, {"ipv4/conf/", "/proxy_arp"},
		{"ipv4/neigh/", "/proxy_delay"}, {"ipv6/conf/", "/proxy_ndp"}} {
		value, err := net.Setting(s[0] + "default" + s[1])
		if err == nil {
			err = net.Set(hostnet.Setting{Name: s[0] + name + s[1], Value: value})
		}
		if err != nil && !errors.Is(err, hostnet.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

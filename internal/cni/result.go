package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"heddle/internal/plug"
)

// inContainer is the place of the container's interface among those of a result.
const inContainer = 1

// newResult returns what a plugged port is in the words of CNI.
func newResult(r *plug.Result, netns string) *current.Result {
	result := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: r.Device, Mtu: r.MTU},
			inContainer: {Name: r.Place.Interface, Mac: r.MACAddress, Mtu: r.MTU, Sandbox: netns},
		},
		DNS: types.DNS{Nameservers: r.Nameservers},
	}
	for _, a := range r.Addresses {
		result.IPs = append(result.IPs, &current.IPConfig{Interface: current.Int(inContainer), Address: ipNet(a), Gateway: gateway(r.Routes, a.Addr())})
	}
	for _, route := range r.Routes {
		result.Routes = append(result.Routes, &types.Route{Dst: ipNet(route.Destination), GW: route.Gateway.AsSlice()})
	}
	return result
}

// gateway returns the gateway of the default route of an address's family, nil without one.
func gateway(routes []plug.Route, like netip.Addr) net.IP {
	for _, r := range routes {
		if r.Destination.Bits() == 0 && r.Destination.Addr().Is4() == like.Is4() {
			return r.Gateway.AsSlice()
		}
	}
	return nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// comparePrevious returns an error unless the result that the runtime has is about an interface
// with the MAC address and the addresses that the port has now.
func (c *config) comparePrevious(ifName string, now *plug.Result) error {
	conf := types.PluginConf{CNIVersion: c.CNIVersion, RawPrevResult: c.PrevResult}
	if err := version.ParsePrevResult(&conf); err != nil {
		return err
	}
	if conf.PrevResult == nil {
		return errors.New("there is no prevResult")
	}
	previous, err := current.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return err
	}
	place := slices.IndexFunc(previous.Interfaces, func(i *current.Interface) bool { return i.Name == ifName && i.Sandbox != "" })
	if place < 0 {
		return fmt.Errorf("prevResult has no interface %s of a container", ifName)
	}
	if mac := previous.Interfaces[place].Mac; mac != now.MACAddress {
		return fmt.Errorf("prevResult: interface %s has the MAC address %s, and the port has %s", ifName, mac, now.MACAddress)
	}
	var before []string
	for _, ip := range previous.IPs {
		if ip.Interface != nil && *ip.Interface == place {
			before = append(before, ip.Address.String())
		}
	}
	var after []string
	for _, a := range now.Addresses {
		after = append(after, a.String())
	}
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		return fmt.Errorf("prevResult: interface %s has the addresses %q, and the port has %q", ifName, before, after)
	}
	return nil
}

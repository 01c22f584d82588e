package hostnet

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Text prints a network in a form that depends only on the state that an operator would set:
// without indexes, loopback, the kernel's own addresses and routes (fe80::, multicast), and random
// MACs.
//
//	link a veth up mtu 1500
//	  address 192.0.2.1/24
//	route 198.51.100.0/24 via 192.0.2.2 link a
//	neighbour 192.0.2.2 link a mac 02:00:00:00:00:02
func Text(n Net) (string, error) {
	var b strings.Builder
	links, err := n.Links()
	if err != nil {
		return "", err
	}
	addresses, err := n.AllAddresses()
	if err != nil {
		return "", err
	}
	slices.SortFunc(links, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range links {
		if l.Kind == Loopback {
			continue
		}
		fmt.Fprintf(&b, "link %s %s %s mtu %d\n", l.Name, l.Kind, upDown(l), l.MTU)
		for _, a := range addresses[l.Index] {
			fmt.Fprintf(&b, "  address %s\n", a)
		}
	}
	routes, err := n.Routes()
	if err != nil {
		return "", err
	}
	for _, r := range routes {
		b.WriteString(textOf(r))
	}
	neighbours, err := n.Neighbours()
	if err != nil {
		return "", err
	}
	for _, x := range neighbours {
		state := x.State.String()
		if x.Usable() {
			state = "mac " + net.HardwareAddr(x.MAC[:]).String()
		}
		fmt.Fprintf(&b, "neighbour %s link %s %s\n", x.IP, x.Link, state)
	}
	return b.String(), nil
}

func upDown(l Link) string {
	switch {
	case l.Running:
		return "running"
	case l.Up:
		return "up"
	}
	return "down"
}

func textOf(r Route) string {
	text := "route " + r.Dst.String()
	if r.Blackhole {
		return text + " blackhole\n"
	}
	if r.Gateway.IsValid() {
		text += " via " + r.Gateway.String()
	}
	text += " link " + r.Link
	if r.MTU > 0 {
		text += fmt.Sprint(" mtu ", r.MTU)
	}
	if r.Kernel {
		text += " kernel"
	}
	return text + "\n"
}

func sortRoutes(list []Route) {
	slices.SortFunc(list, func(a, b Route) int { return a.Dst.Compare(b.Dst) })
}

func sortProxies(list []Proxy) {
	slices.SortFunc(list, func(a, b Proxy) int { return cmp.Or(strings.Compare(a.Link, b.Link), a.IP.Compare(b.IP)) })
}

func sortForwards(list []Forward) {
	slices.SortFunc(list, func(a, b Forward) int { return bytes.Compare(a.MAC[:], b.MAC[:]) })
}

func sortNeighbours(list []Neighbour) {
	slices.SortFunc(list, func(a, b Neighbour) int { return cmp.Or(strings.Compare(a.Link, b.Link), a.IP.Compare(b.IP)) })
}

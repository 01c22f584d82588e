package hostnet

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Text prints a network in words that depend on nothing but its state as an operator would set it: no indexes, no
// loopback, no addresses and routes that the kernel makes for itself (fe80::, multicast), no MACs that it chose.
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
	if err := textRoutes(&b, n); err != nil {
		return "", err
	}
	if err := textNeighbours(&b, n); err != nil {
		return "", err
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

func textRoutes(b *strings.Builder, n Net) error {
	routes, err := n.Routes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		fmt.Fprintf(b, "route %s", r.Dst)
		if r.Blackhole {
			b.WriteString(" blackhole\n")
			continue
		}
		if r.Gateway.IsValid() {
			fmt.Fprintf(b, " via %s", r.Gateway)
		}
		fmt.Fprintf(b, " link %s", r.Link)
		if r.MTU > 0 {
			fmt.Fprintf(b, " mtu %d", r.MTU)
		}
		if r.Kernel {
			b.WriteString(" kernel")
		}
		b.WriteByte('\n')
	}
	return nil
}

func textNeighbours(b *strings.Builder, n Net) error {
	neighbours, err := n.Neighbours()
	if err != nil {
		return err
	}
	for _, x := range neighbours {
		fmt.Fprintf(b, "neighbour %s link %s", x.IP, x.Link)
		if x.Usable() {
			fmt.Fprintf(b, " mac %s\n", net.HardwareAddr(x.MAC[:]))
		} else {
			fmt.Fprintf(b, " %s\n", x.State)
		}
	}
	return nil
}

// sortRoutes orders routes by destination, so that lists from everywhere compare.
func sortRoutes(routes []Route) {
	slices.SortFunc(routes, func(a, b Route) int {
		if c := a.Dst.Addr().Compare(b.Dst.Addr()); c != 0 {
			return c
		}
		return a.Dst.Bits() - b.Dst.Bits()
	})
}

func sortProxies(list []Proxy) {
	slices.SortFunc(list, func(a, b Proxy) int { return cmp.Or(strings.Compare(a.Link, b.Link), a.IP.Compare(b.IP)) })
}

func sortForwards(list []Forward) {
	slices.SortFunc(list, func(a, b Forward) int { return bytes.Compare(a.MAC[:], b.MAC[:]) })
}

func sortNeighbours(list []Neighbour) {
	slices.SortFunc(list, func(a, b Neighbour) int {
		if c := strings.Compare(a.Link, b.Link); c != 0 {
			return c
		}
		return a.IP.Compare(b.IP)
	})
}

package agent

import (
	"bufio"
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/hostnet"
	"heddle/internal/xen/ovs"
)

// look reads this host's interfaces from the kernel and from Open vSwitch's database.
func look(kernel *hostnet.Linux, s *ovs.Snapshot) (*machine, error) {
	m := &machine{dns: nameServers(resolvConf), ports: map[string]switchPort{}}
	var errs [5]error
	m.links, errs[0] = kernel.Links()
	m.addresses, errs[1] = kernel.AllAddresses()
	m.leased, errs[2] = kernel.Leased()
	m.routes, errs[3] = kernel.Routes()
	var cards []string
	for _, l := range m.links {
		if l.Kind == hostnet.Device || l.Kind == hostnet.Veth || l.Kind == hostnet.Bond {
			cards = append(cards, l.Name)
		}
	}
	m.speeds, errs[4] = kernel.Speeds(cards...)
	for _, b := range s.Bridges {
		for _, p := range s.PortsOf(b) {
			m.ports[p.Name] = switchPort{bridge: b.Name, ours: marked(b.ExternalIDs) || marked(p.ExternalIDs), interfaces: interfaceNames(s, p)}
		}
	}
	return m, errors.Join(errs[:]...)
}

func interfaceNames(s *ovs.Snapshot, p *ovs.Port) []string {
	var names []string
	for _, id := range p.Interfaces {
		if i := s.Interfaces[id]; i != nil {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names
}

// resolvConf names the DNS servers that this host asks.
const resolvConf = "/etc/resolv.conf"

// nameServers reads resolv.conf(5); without one there are none.
func nameServers(file string) []string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[0] == "nameserver" {
			if a, err := netip.ParseAddr(words[1]); err == nil {
				all = append(all, a.String())
			}
		}
	}
	return all
}

// memory reads /proc/meminfo: bytes in all, and bytes that programs could have.
func memory() (all, free int64) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		words := strings.Fields(s.Text())
		if len(words) < 2 {
			continue
		}
		n, err := strconv.ParseInt(words[1], 10, 64)
		switch {
		case err != nil:
		case words[0] == "MemTotal:":
			all = n << 10
		case words[0] == "MemAvailable:":
			free = n << 10
		}
	}
	return all, free
}

package plan

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"heddle/calico"
)

// host is what lines of HostsDir say of a machine.
type host struct {
	names     string
	addresses []netip.Addr
}

// hosts are the machines that a dnsmasq knows.
type hosts struct {
	byMAC   map[calico.MAC]host       // by the newest lines, which count
	holders map[netip.Addr]calico.MAC // of every address that a line has had
}

func newHosts() hosts {
	return hosts{map[calico.MAC]host{}, map[netip.Addr]calico.MAC{}}
}

func (h hosts) take(mac calico.MAC, lines host) {
	h.byMAC[mac] = lines
	for _, a := range lines.addresses {
		h.holders[a] = mac
	}
}

// changedHosts takes the machines of the plan that dnsmasq takes as it runs, and says why it cannot take the others.
func (r *Running) changedHosts(p *Plan) (list []reason) {
	wanted := readHosts(p.Files)
	macs := slices.SortedFunc(maps.Keys(wanted), compareMACs)
	for _, mac := range macs {
		why := r.hosts.refuse(mac, wanted[mac])
		if why.urgency == Never {
			r.hosts.take(mac, wanted[mac])
			continue
		}
		list = append(list, why)
	}
	for _, mac := range slices.SortedFunc(maps.Keys(r.hosts.byMAC), compareMACs) {
		if _, ok := wanted[mac]; !ok {
			list = append(list, reason{Soon, fmt.Sprintf("%s is gone", mac)})
		}
	}
	return list
}

// refuse says why dnsmasq does not take a machine's lines as it runs: it refuses a line with an IPv4 address that another
// line has had, even one of the same machine. An IPv6 address it gives to no second machine while the first has a lease.
func (h hosts) refuse(mac calico.MAC, wanted host) reason {
	known := h.byMAC[mac]
	same := slices.Equal(known.addresses, wanted.addresses)
	if same && known.names == wanted.names {
		return reason{}
	}
	for _, a := range wanted.addresses {
		holder, held := h.holders[a]
		switch {
		case !held || a.Is6() && holder == mac:
		case same:
			return reason{Soon, fmt.Sprintf("%s has another name or tag", mac)}
		case holder == mac:
			return reason{Now, fmt.Sprintf("%s has other addresses beside %s", mac, a)}
		default:
			return reason{Now, fmt.Sprintf("address %s of %s was that of %s", a, mac, holder)}
		}
	}
	return reason{}
}

func compareMACs(a, b calico.MAC) int { return bytes.Compare(a[:], b[:]) }

// readHosts finds the machines in the files of HostsDir. Lines that are none of ours are passed over.
func readHosts(files map[string]string) map[calico.MAC]host {
	all := map[calico.MAC]host{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != HostsDir {
			continue
		}
		for line := range strings.Lines(files[name]) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), ",")
			mac, err := calico.ParseMAC(fields[0])
			if err != nil {
				continue
			}
			h := all[mac]
			for _, field := range fields[1:] {
				if ip, err := netip.ParseAddr(strings.Trim(field, "[]")); err == nil {
					h.addresses = append(h.addresses, ip)
				} else {
					h.names += "," + field
				}
			}
			all[mac] = h
		}
	}
	return all
}

// Holders are the MAC addresses of the machines that have addresses by files of HostsDir, by path below Options.Dir.
func Holders(files map[string]string) map[netip.Addr]calico.MAC {
	all := map[netip.Addr]calico.MAC{}
	for mac, h := range readHosts(files) {
		for _, a := range h.addresses {
			all[a] = mac
		}
	}
	return all
}

package plan

import (
	"fmt"
	"maps"
	"net/netip"
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
	wanted := r.parsed.read(p.Files)
	for mac, h := range wanted {
		if why := r.hosts.refuse(mac, h); why.urgency != Never {
			list = append(list, why)
			continue
		}
		r.hosts.take(mac, h)
	}
	for mac := range r.hosts.byMAC {
		if _, ok := wanted[mac]; !ok {
			list = append(list, reason{Soon, fmt.Sprintf("%s is gone", mac)})
		}
	}
	slices.SortFunc(list, func(a, b reason) int { return strings.Compare(a.text, b.text) })
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

// parsedFiles are files of HostsDir as they were read last, by path, so that one that has not changed is not read again.
type parsedFiles map[string]parsedFile

type parsedFile struct {
	content string
	hosts   map[calico.MAC]host
}

// read finds the machines in files of HostsDir, of which one that is in several has what the last of them says.
func (f parsedFiles) read(files map[string]string) map[calico.MAC]host {
	all := make(map[calico.MAC]host, len(files)/2)
	from := make(map[calico.MAC]string, len(files)/2)
	for name, content := range files {
		if !strings.HasPrefix(name, HostsDir+"/") {
			continue
		}
		parsed, ok := f[name]
		if !ok || parsed.content != content {
			parsed = parsedFile{content, readHosts(content)}
			f[name] = parsed
		}
		for mac, h := range parsed.hosts {
			if from[mac] < name {
				all[mac], from[mac] = h, name
			}
		}
	}
	maps.DeleteFunc(f, func(name string, _ parsedFile) bool { _, ok := files[name]; return !ok })
	return all
}

// readHosts finds the machines in a file of HostsDir. Lines that are none of ours are passed over.
func readHosts(content string) map[calico.MAC]host {
	all := map[calico.MAC]host{}
	for line := range strings.Lines(content) {
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
	return all
}

// Holders are the MAC addresses of the machines that have addresses by files of HostsDir, by path below Options.Dir.
func Holders(files map[string]string) map[netip.Addr]calico.MAC {
	all := map[netip.Addr]calico.MAC{}
	for mac, h := range (parsedFiles{}).read(files) {
		for _, a := range h.addresses {
			all[a] = mac
		}
	}
	return all
}

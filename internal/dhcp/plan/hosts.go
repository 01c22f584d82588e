package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
)

// host is a machine in the lines of HostsDir.
type host struct {
	names     string
	addresses []netip.Addr
}

// hosts are the machines that a dnsmasq has read.
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

// changedHosts takes in the machines of the plan that a running dnsmasq accepts, and returns why it
// cannot accept the others.
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

// refuse returns why a running dnsmasq does not accept a machine's lines: not a line with an IPv4
// address that another line had, even one of the same machine; and an IPv6 address only for the
// machine that has a lease of it.
func (h hosts) refuse(mac calico.MAC, wanted host) reason {
	known := h.byMAC[mac]
	same := slices.Equal(known.addresses, wanted.addresses)
	if same && known.names == wanted.names {
		return reason{}
	}
	for _, a := range wanted.addresses {
		holder, ok := h.holders[a]
		switch {
		case !ok || a.Is6() && holder == mac:
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

// parsedFiles caches files of HostsDir by path.
type parsedFiles map[string]parsedFile

type parsedFile struct {
	content string
	hosts   map[calico.MAC]host
}

// read returns the machines in files of HostsDir. Of one in several files the last counts.
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

// readHosts returns the machines in a file of HostsDir. It skips lines that are none of ours.
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

// Holders returns the machines that have addresses by files of HostsDir, which are given by path
// below Options.Dir.
func Holders(files map[string]string) map[netip.Addr]calico.MAC {
	all := map[netip.Addr]calico.MAC{}
	for mac, h := range (parsedFiles{}).read(files) {
		for _, a := range h.addresses {
			all[a] = mac
		}
	}
	return all
}

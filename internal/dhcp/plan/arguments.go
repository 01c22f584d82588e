package plan

import (
	"cmp"
	"fmt"
	"strconv"
)

// mostLeases bounds --dhcp-lease-max.
const mostLeases = 1 << 24

// arguments are those of dnsmasq for the subnets in use (§17.3, with one device and one dnsmasq a host).
func (p *planner) arguments() []string {
	o := p.options
	list := []string{
		"--keep-in-foreground", "--log-facility=-", "--log-dhcp", "--user=root", "--pid-file=",
		"--conf-file=" + cmp.Or(o.ConfigFile, "/dev/null"), "--no-hosts",
	}
	if !o.LocalResolve || len(o.Servers) > 0 {
		list = append(list, "--no-resolv")
	}
	list = append(list, "--except-interface=lo", "--bind-dynamic", "--interface="+o.Device)
	bridge := "--bridge-interface=" + o.Device
	for _, prefix := range o.InterfacePrefixes {
		list = append(list, "--interface="+prefix+"*")
		bridge += "," + prefix + "*"
	}
	list = append(list, bridge,
		"--dhcp-hostsdir="+o.Dir+"/"+HostsDir, "--hostsdir="+o.Dir+"/"+NamesDir,
		"--dhcp-optsdir="+o.Dir+"/"+OptionsDir,
		"--dhcp-match=set:ipxe,175", "--dhcp-authoritative", "--no-ping")
	for _, s := range p.used {
		if text := p.dhcpRange(s); text != "" {
			list = append(list, "--dhcp-range="+text)
		}
	}
	list = append(list, "--dhcp-lease-max="+strconv.Itoa(p.leaseMax()))
	if o.MTU > 0 {
		list = append(list, "--dhcp-option-force=option:mtu,"+strconv.Itoa(o.MTU))
	}
	if o.RenewalSeconds > 0 {
		list = append(list, fmt.Sprintf("--dhcp-option-force=option:T1,%ds", o.RenewalSeconds))
	}
	if o.RebindingSeconds > 0 {
		list = append(list, fmt.Sprintf("--dhcp-option-force=option:T2,%ds", o.RebindingSeconds))
	}
	for _, s := range o.Servers {
		list = append(list, "--server="+s)
	}
	if o.Domain != "" {
		list = append(list, "--domain="+o.Domain)
	}
	for _, flag := range []struct {
		on   bool
		text string
	}{{o.Advertise, "--enable-ra"}, {o.Broadcast, "--dhcp-broadcast"}, {o.LogQueries, "--log-queries"}} {
		if flag.on {
			list = append(list, flag.text)
		}
	}
	return list
}

// dhcpRange is what dnsmasq serves in a subnet; "" for nothing. Without its advertisements it is told of no subnet where
// machines learn all from them.
func (p *planner) dhcpRange(s *subnet) string {
	head := fmt.Sprintf("set:%s,%s", s.tag, s.CIDR.Addr())
	lease := leaseText(p.options.LeaseSeconds)
	switch {
	case s.CIDR.Addr().Is4():
		return fmt.Sprintf("%s,static,%s,%s", head, netmask(s.CIDR), lease)
	case s.mode == slaac && p.options.Advertise:
		return fmt.Sprintf("%s,slaac,ra-only,off-link,%d,%s", head, s.CIDR.Bits(), lease)
	case s.mode == slaac:
		return ""
	case s.mode == stateless && p.options.Advertise:
		return fmt.Sprintf("%s,ra-stateless,off-link,%d,%s", head, s.CIDR.Bits(), lease)
	}
	return fmt.Sprintf("%s,static,off-link,%d,%s", head, s.CIDR.Bits(), lease)
}

func (p *planner) leaseMax() int {
	sum := 0
	for _, s := range p.used {
		bits := s.CIDR.Addr().BitLen() - s.CIDR.Bits()
		if bits >= 24 {
			return mostLeases
		}
		sum += 1 << bits
	}
	return min(sum, mostLeases)
}

func leaseText(seconds int) string {
	if seconds == Infinite {
		return "infinite"
	}
	return strconv.Itoa(seconds) + "s"
}

package plan

import (
	"cmp"
	"fmt"
	"strconv"
)

// mostLeases bounds --dhcp-lease-max.
const mostLeases = 1 << 24

// common returns the arguments that both instances of dnsmasq have.
func (o Options) common() []string {
	list := []string{
		"--keep-in-foreground", "--log-facility=-", "--user=" + cmp.Or(o.User, "nobody"), "--group=" + cmp.Or(o.Group, "nogroup"), "--pid-file=",
		"--conf-file=" + cmp.Or(o.ConfigFile, "/dev/null"), "--no-hosts",
		"--except-interface=lo", "--bind-dynamic", "--interface=" + o.Device,
	}
	for _, prefix := range o.InterfacePrefixes {
		list = append(list, "--interface="+prefix+"*")
	}
	return list
}

// arguments returns those of the dnsmasq that gives addresses, for the subnets in use (§17.3, with
// one device and one instance a host). It answers no DNS: two that overlap could not both listen
// for TCP at a gateway's address.
func (p *planner) arguments() []string {
	o := p.options
	list := append(o.common(), "--port=0")
	if o.LogDHCP {
		list = append(list, "--log-dhcp")
	}
	bridge := "--bridge-interface=" + o.Device
	for _, prefix := range o.InterfacePrefixes {
		bridge += "," + prefix + "*"
	}
	list = append(list, bridge,
		"--dhcp-hostsdir="+o.Dir+"/"+HostsDir, "--dhcp-optsdir="+o.Dir+"/"+OptionsDir,
		"--dhcp-match=set:ipxe,175", "--dhcp-authoritative", "--no-ping")
	for _, s := range p.used {
		if text := p.dhcpRange(s); text != "" {
			list = append(list, "--dhcp-range="+text)
		}
	}
	list = append(list, "--dhcp-lease-max="+strconv.Itoa(p.leaseMax()))
	list = append(list, p.forcedOptions()...)
	if o.Domain != "" {
		list = append(list, "--domain="+o.Domain)
	}
	if o.Advertise {
		list = append(list, "--enable-ra")
	}
	if o.Broadcast {
		list = append(list, "--dhcp-broadcast")
	}
	return list
}

// forcedOptions returns the options that machines receive even if they do not ask for them. A file
// cannot force options.
func (p *planner) forcedOptions() (list []string) {
	o := p.options
	force := func(text string) { list = append(list, forcedOption+text) }
	if o.MTU > 0 {
		force(fmt.Sprintf("option:mtu,%d", o.MTU))
	}
	for _, s := range p.used {
		if s.MTU > 0 && s.CIDR.Addr().Is4() {
			force(fmt.Sprintf("tag:%s,option:mtu,%d", s.tag, s.MTU))
		}
	}
	if o.RenewalSeconds > 0 {
		force(fmt.Sprintf("option:T1,%ds", o.RenewalSeconds))
	}
	if o.RebindingSeconds > 0 {
		force(fmt.Sprintf("option:T2,%ds", o.RebindingSeconds))
	}
	return list
}

const forcedOption = "--dhcp-option-force="

// resolver returns the arguments of the dnsmasq that answers DNS: the names of this host's
// machines, and the answers of the operator's servers for all others. They depend on the operator
// alone, so that it need not be restarted: it notices changed addresses of the device, and changed
// files.
//
// Without servers it answers that names of the domain, and names without one, do not exist: some
// resolvers give up on a name that has no address of one family if that query is refused. For a
// name that several machines have, a machine receives those of its own subnet.
func (o Options) resolver() []string {
	list := append(o.common(), "--no-dhcp-interface="+o.Device)
	for _, prefix := range o.InterfacePrefixes {
		list = append(list, "--no-dhcp-interface="+prefix+"*")
	}
	list = append(list, "--localise-queries")
	if !o.LocalResolve || len(o.Servers) > 0 {
		list = append(list, "--no-resolv")
	}
	for _, s := range o.Servers {
		list = append(list, "--server="+s)
	}
	if !o.LocalResolve && len(o.Servers) == 0 {
		list = append(list, "--domain-needed")
		if o.Domain != "" {
			list = append(list, "--local=/"+o.Domain+"/")
		}
	}
	if o.LogQueries {
		list = append(list, "--log-queries")
	}
	return list
}

// dhcpRange returns the range that dnsmasq serves in a subnet, "" for none. Unless dnsmasq
// advertises, that is so where machines learn all from advertisements.
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

package packet

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// optionKind is the form of an option's value (RFC 2132).
type optionKind uint8

const (
	kindRaw     optionKind = iota // bytes as hex pairs joined by colons, any other text as it is
	kindText                      // text
	kindAddr                      // one IPv4 address
	kindAddrs                     // IPv4 addresses
	kindPairs                     // pairs of IPv4 addresses
	kindCIDRs                     // prefixes, each written as address and mask
	kindUint8                     // numbers
	kindUint16                    //
	kindUint32                    //
	kindInt32                     //
	kindBool                      // one byte, 0 or 1
	kindRoutes                    // classless routes: dst,router,dst,router… (RFC 3442)
	kindDomains                   // domain names (RFC 3397)
)

// knownOption is an option with names, those of dnsmasq and of ISC.
type knownOption struct {
	code  uint8
	kind  optionKind
	names string // joined by spaces
}

var knownOptions = [...]knownOption{
	{1, kindAddr, "netmask subnet-mask"},
	{2, kindInt32, "time-offset"},
	{3, kindAddrs, "router routers gateway"},
	{4, kindAddrs, "time-server time-servers"},
	{5, kindAddrs, "ien116-name-servers"},
	{6, kindAddrs, "dns-server dns-servers domain-name-servers"},
	{7, kindAddrs, "log-server log-servers"},
	{8, kindAddrs, "cookie-servers"},
	{9, kindAddrs, "lpr-server lpr-servers"},
	{10, kindAddrs, "impress-servers"},
	{11, kindAddrs, "resource-location-servers"},
	{12, kindText, "hostname host-name"},
	{13, kindUint16, "boot-file-size boot-size"},
	{14, kindText, "merit-dump"},
	{15, kindText, "domain-name"},
	{16, kindAddr, "swap-server"},
	{17, kindText, "root-path"},
	{18, kindText, "extension-path extensions-path"},
	{19, kindBool, "ip-forward-enable ip-forwarding"},
	{20, kindBool, "non-local-source-routing"},
	{21, kindCIDRs, "policy-filter"},
	{22, kindUint16, "max-datagram-reassembly max-dgram-reassembly"},
	{23, kindUint8, "default-ttl default-ip-ttl"},
	{24, kindUint32, "path-mtu-aging-timeout"},
	{26, kindUint16, "mtu interface-mtu"},
	{27, kindBool, "all-subnets-local"},
	{28, kindAddr, "broadcast broadcast-address"},
	{29, kindBool, "perform-mask-discovery"},
	{30, kindBool, "mask-supplier"},
	{31, kindBool, "router-discovery"},
	{32, kindAddr, "router-solicitation router-solicitation-address"},
	{33, kindPairs, "static-route static-routes"},
	{34, kindBool, "trailer-encapsulation"},
	{35, kindUint32, "arp-timeout arp-cache-timeout"},
	{36, kindBool, "ethernet-encap ieee802-3-encapsulation"},
	{37, kindUint8, "tcp-ttl default-tcp-ttl"},
	{38, kindUint32, "tcp-keepalive tcp-keepalive-interval"},
	{39, kindBool, "tcp-keepalive-garbage"},
	{40, kindText, "nis-domain"},
	{41, kindAddrs, "nis-server nis-servers"},
	{42, kindAddrs, "ntp-server ntp-servers"},
	{44, kindAddrs, "netbios-ns netbios-name-servers"},
	{45, kindAddrs, "netbios-dd netbios-dd-server"},
	{46, kindUint8, "netbios-nodetype netbios-node-type"},
	{47, kindText, "netbios-scope"},
	{48, kindAddrs, "x-windows-fs font-servers"},
	{49, kindAddrs, "x-windows-dm x-display-manager"},
	{OptLeaseTime, kindUint32, "lease-time dhcp-lease-time"},
	{OptServerID, kindAddr, "server-identifier dhcp-server-identifier"},
	{58, kindUint32, "t1 dhcp-renewal-time"},
	{59, kindUint32, "t2 dhcp-rebinding-time"},
	{60, kindText, "vendor-class vendor-class-identifier"},
	{64, kindText, "nis+-domain nisplus-domain"},
	{65, kindAddrs, "nis+-server nisplus-servers"},
	{OptTFTPServerName, kindText, "tftp-server tftp-server-name"},
	{OptBootfileName, kindText, "bootfile-name bootfile"},
	{68, kindAddrs, "mobile-ip-home mobile-ip-home-agent"},
	{69, kindAddrs, "smtp-server"},
	{70, kindAddrs, "pop3-server pop-server"},
	{71, kindAddrs, "nntp-server"},
	{72, kindAddrs, "www-server"},
	{73, kindAddrs, "finger-server"},
	{74, kindAddrs, "irc-server"},
	{100, kindText, "posix-timezone"},
	{101, kindText, "tzdb-timezone"},
	{114, kindText, "captive-portal"},
	{119, kindDomains, "domain-search"},
	{OptClasslessRoutes, kindRoutes, "classless-static-route classless-static-routes rfc3442-classless-static-routes"},
	{150, kindAddrs, "tftp-server-address"},
	{210, kindText, "path-prefix"},
	{249, kindRoutes, "microsoft-classless-static-routes ms-classless-static-routes"},
}

// NewDHCPOption makes an option of a name, known or a number, and a value in text
// (midonet-simulation §10). Case does not matter, nor dashes for underscores. The options by which
// the protocol itself works cannot be given.
func NewDHCPOption(name, value string) (DHCPOption, error) {
	known, err := optionNamed(name)
	if err != nil {
		return DHCPOption{}, err
	}
	v, err := optionValue(known.kind, strings.TrimSpace(value))
	if err == nil && len(v) == 0 {
		err = fmt.Errorf("%q holds no value", value)
	}
	if err != nil {
		return DHCPOption{}, fmt.Errorf("DHCP option %s: %w", name, err)
	}
	return DHCPOption{Code: known.code, Value: v}, nil
}

func optionNamed(name string) (knownOption, error) {
	wanted := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
	code, err := strconv.ParseUint(wanted, 10, 8)
	number := err == nil
	if number && (code < 1 || code > 254) {
		return knownOption{}, fmt.Errorf("DHCP option %s: want a number from 1 to 254", name)
	}
	switch uint8(code) {
	case OptRequestedIP, OptOverload, OptMessageType, OptParameterList:
		return knownOption{}, fmt.Errorf("DHCP option %s is not for servers to choose", name)
	}
	for _, o := range knownOptions {
		if number && o.code == uint8(code) || slices.Contains(strings.Fields(o.names), wanted) {
			return o, nil
		}
	}
	if number {
		return knownOption{code: uint8(code)}, nil
	}
	return knownOption{}, fmt.Errorf("DHCP option %q is not known: give its number", name)
}

func optionValue(kind optionKind, value string) ([]byte, error) {
	switch kind {
	case kindText:
		return []byte(value), nil
	case kindAddr:
		return addrsValue(value, 1, 1)
	case kindAddrs:
		return addrsValue(value, 1, 0)
	case kindPairs:
		return addrsValue(value, 2, 0)
	case kindCIDRs:
		return cidrsValue(value)
	case kindUint8, kindUint16, kindUint32:
		bits := 8 << (kind - kindUint8)
		n, err := strconv.ParseUint(value, 10, bits)
		return binary.BigEndian.AppendUint32(nil, uint32(n))[4-bits/8:], err
	case kindInt32:
		n, err := strconv.ParseInt(value, 10, 32)
		return binary.BigEndian.AppendUint32(nil, uint32(n)), err
	case kindBool:
		return boolValue(value)
	case kindRoutes:
		return routesValue(value)
	case kindDomains:
		return domainsValue(value)
	}
	return rawValue(value), nil
}

// rawValue is the value of an option of no known kind: bytes in hexadecimal with colons, or text.
func rawValue(value string) []byte {
	if b, err := hex.DecodeString(strings.ReplaceAll(value, ":", "")); err == nil && len(value) == 3*len(b)-1 {
		return b
	}
	return []byte(value)
}

// items splits a list at commas, semicolons and spaces.
func items(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
}

// addrsValue reads a multiple of unit addresses, or exactly only unless that is 0.
func addrsValue(value string, unit, only int) ([]byte, error) {
	list := items(value)
	if len(list) == 0 || len(list)%unit != 0 || only > 0 && len(list) != only {
		return nil, fmt.Errorf("%q has %d addresses: the wrong number", value, len(list))
	}
	var b []byte
	for _, text := range list {
		a, err := parse4(text)
		if err != nil {
			return nil, err
		}
		b = append(b, a[:]...)
	}
	return b, nil
}

func parse4(text string) ([4]byte, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return [4]byte{}, fmt.Errorf("%q is no IPv4 address", text)
	}
	return a.As4(), nil
}

func cidrsValue(value string) ([]byte, error) {
	var b []byte
	for _, text := range items(value) {
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Addr().Is4() {
			return nil, fmt.Errorf("%q is no IPv4 prefix", text)
		}
		a := p.Addr().As4()
		b = append(b, a[:]...)
		b = binary.BigEndian.AppendUint32(b, PrefixMask(p.Bits()))
	}
	return b, nil
}

// PrefixMask is the IPv4 netmask of a prefix length.
func PrefixMask(bits int) uint32 { return uint32(^uint64(0) << (32 - bits)) }

func boolValue(value string) ([]byte, error) {
	switch strings.ToLower(value) {
	case "1", "true", "yes", "on":
		return []byte{1}, nil
	case "0", "false", "no", "off":
		return []byte{0}, nil
	}
	return nil, fmt.Errorf("%q is neither true nor false", value)
}

func routesValue(value string) ([]byte, error) {
	list := items(value)
	if len(list) == 0 || len(list)%2 != 0 {
		return nil, fmt.Errorf("%q: want dst,router,dst,router…", value)
	}
	var b []byte
	for i := 0; i < len(list); i += 2 {
		dst, err := netip.ParsePrefix(list[i])
		if a, e := netip.ParseAddr(list[i]); e == nil {
			dst, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || !dst.Addr().Is4() {
			return nil, fmt.Errorf("%q is no IPv4 prefix", list[i])
		}
		router, err := netip.ParseAddr(list[i+1])
		if err != nil || !router.Is4() {
			return nil, fmt.Errorf("%q is no IPv4 address", list[i+1])
		}
		b = AppendClasslessRoute(b, dst, router)
	}
	return b, nil
}

func domainsValue(value string) ([]byte, error) {
	var b []byte
	for _, name := range items(value) {
		for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
			if len(label) == 0 || len(label) > 63 {
				return nil, fmt.Errorf("%q is no domain name", name)
			}
			b = append(append(b, byte(len(label))), label...)
		}
		b = append(b, 0)
	}
	return b, nil
}

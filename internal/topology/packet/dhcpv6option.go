package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// option6Kind is the form of a DHCPv6 option's value.
type option6Kind uint8

const (
	kind6Raw     option6Kind = iota // bytes as hex pairs joined by colons, any other text as it is
	kind6Text                       // text
	kind6Addrs                      // IPv6 addresses
	kind6Domains                    // domain names
	kind6Uint8                      // numbers
	kind6Uint32                     //
	kind6NTP                        // time servers: addresses and domain names (RFC 5908)
)

// knownOption6 is a DHCPv6 option with names, those of dnsmasq and of ISC.
type knownOption6 struct {
	code  uint16
	kind  option6Kind
	names string // joined by spaces
}

var knownOptions6 = [...]knownOption6{
	{Opt6Preference, kind6Uint8, "preference"},
	{21, kind6Domains, "sip-server-domain sip-servers-names"},
	{22, kind6Addrs, "sip-server sip-servers-addresses"},
	{Opt6DNSServer, kind6Addrs, "dns-server dns-servers name-servers"},
	{Opt6DomainSearch, kind6Domains, "domain-search"},
	{27, kind6Addrs, "nis-server nis-servers"},
	{28, kind6Addrs, "nis+-server nisp-servers"},
	{29, kind6Domains, "nis-domain nis-domain-name"},
	{30, kind6Domains, "nis+-domain nisp-domain-name"},
	{31, kind6Addrs, "sntp-server sntp-servers"},
	{32, kind6Uint32, "information-refresh-time info-refresh-time"},
	{Opt6NTPServer, kind6NTP, "ntp-server ntp-servers"},
	{59, kind6Text, "bootfile-url"},
}

// longestOption6 bounds a value that a client gives, in bytes.
const longestOption6 = 1024

// NewDHCPv6Option makes an option of a name, known or a number, and a value in text, as
// [NewDHCPOption] does. Lists may have brackets around addresses. The options by which the protocol
// itself works cannot be given.
func NewDHCPv6Option(name, value string) (DHCPv6Option, error) {
	known, err := optionNamed6(name)
	if err != nil {
		return DHCPv6Option{}, err
	}
	v, err := optionValue6(known.kind, strings.TrimSpace(value))
	switch {
	case err != nil:
	case len(v) == 0:
		err = fmt.Errorf("%q holds no value", value)
	case len(v) > longestOption6:
		err = fmt.Errorf("the value has %d bytes, at most %d are given", len(v), longestOption6)
	}
	if err != nil {
		return DHCPv6Option{}, fmt.Errorf("DHCPv6 option %s: %w", name, err)
	}
	return DHCPv6Option{Code: known.code, Value: v}, nil
}

func optionNamed6(name string) (knownOption6, error) {
	wanted := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
	wanted = strings.TrimPrefix(wanted, "dhcp6.")
	code, err := strconv.ParseUint(wanted, 10, 16)
	number := err == nil
	if number && code == 0 {
		return knownOption6{}, fmt.Errorf("DHCPv6 option %s: want a number from 1 to 65535", name)
	}
	switch uint16(code) {
	case Opt6ClientID, Opt6ServerID, Opt6IANA, Opt6IATA, Opt6IAAddr, Opt6OptionList, Opt6ElapsedTime, Opt6RelayMessage, Opt6Auth,
		Opt6StatusCode, Opt6RapidCommit, Opt6InterfaceID, Opt6ReconfMsg, Opt6ReconfAccept, Opt6IAPD, Opt6IAPrefix:
		return knownOption6{}, fmt.Errorf("DHCPv6 option %s belongs to the protocol", name)
	}
	for _, o := range knownOptions6 {
		if number && o.code == uint16(code) || slices.Contains(strings.Fields(o.names), wanted) {
			return o, nil
		}
	}
	if number {
		return knownOption6{code: uint16(code)}, nil
	}
	return knownOption6{}, fmt.Errorf("DHCPv6 option %q is not known: give its number", name)
}

func optionValue6(kind option6Kind, value string) ([]byte, error) {
	switch kind {
	case kind6Text:
		return []byte(value), nil
	case kind6Addrs:
		return addrsValue6(value)
	case kind6Domains:
		return domainsValue(value)
	case kind6NTP:
		return ntpValue6(value)
	case kind6Uint8:
		n, err := strconv.ParseUint(value, 10, 8)
		return []byte{byte(n)}, err
	case kind6Uint32:
		n, err := strconv.ParseUint(value, 10, 32)
		return binary.BigEndian.AppendUint32(nil, uint32(n)), err
	}
	return rawValue(value), nil
}

func addrsValue6(value string) ([]byte, error) {
	var b []byte
	for _, text := range items(value) {
		a, ok := parse6(text)
		if !ok {
			return nil, fmt.Errorf("%q is no IPv6 address", text)
		}
		b = append(b, a.AsSlice()...)
	}
	return b, nil
}

func parse6(text string) (netip.Addr, bool) {
	if s, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(s, "]")
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil && a.Is6() && a.Zone() == ""
}

// Suboptions of the option for time servers (RFC 5908 §4).
const (
	ntpServerAddr uint16 = iota + 1
	ntpMulticastAddr
	ntpServerName
)

// ntpValue6 returns a suboption for each time server.
func ntpValue6(value string) ([]byte, error) {
	var b []byte
	for _, text := range items(value) {
		sub := DHCPv6Option{Code: ntpServerName}
		if a, ok := parse6(text); ok {
			sub = DHCPv6Option{ntpServerAddr, a.AsSlice()}
			if a.IsMulticast() {
				sub.Code = ntpMulticastAddr
			}
		} else if strings.ContainsRune(text, ':') {
			return nil, fmt.Errorf("%q is no IPv6 address", text)
		} else if v, err := domainsValue(text); err != nil {
			return nil, err
		} else {
			sub.Value = v
		}
		b = sub.append(b)
	}
	return b, nil
}

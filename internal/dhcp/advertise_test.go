package dhcp

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/dhcp/plan"
)

// TestAdvertisementBytes holds advertisements against RFC 4861 and RFC 8106, field by field.
func TestAdvertisementBytes(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix("2001:db8:b::/64")
	for _, c := range []struct {
		name string
		a    plan.Advertisement
		want []string
	}{
		{"by DHCPv6", plan.Advertisement{Managed: true, Other: true, Prefixes: []plan.AdvertisedPrefix{{Prefix: prefix}}, LeaseSeconds: 3600}, []string{
			"86000000" + "40" + "c0" + "0708" + "00000000" + "00000000", // type, checksum of the kernel; hop limit, M and O, half an hour
			"0304" + "40" + "00" + "00000e10" + "00000e10" + "00000000", // a prefix of 64 bits, neither on-link nor autonomous, for an hour
			"20010db8000b00000000000000000000",
		}},
		{"by itself", plan.Advertisement{Prefixes: []plan.AdvertisedPrefix{{Prefix: prefix, Autonomous: true}}, MTU: 1450, LeaseSeconds: plan.Infinite,
			DNSServers: []netip.Addr{netip.MustParseAddr("2001:db8::53")}, Domain: "a.example"}, []string{
			"86000000" + "40" + "00" + "0708" + "00000000" + "00000000",
			"0304" + "40" + "40" + "ffffffff" + "ffffffff" + "00000000", // autonomous, for ever
			"20010db8000b00000000000000000000",
			"05010000" + "000005aa", // MTU
			"19030000" + "00000708" + "20010db8000000000000000000000053",
			"1f030000" + "00000708" + "0161" + "076578616d706c65" + "00" + "0000000000", // a.example, padded to eights
		}},
	} {
		message, err := marshal(&c.a)
		if got, want := hex.EncodeToString(message), strings.Join(c.want, ""); err != nil || got != want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, got, want)
		}
	}
}

// FuzzParseLine: whatever a dnsmasq says, all of it stays in the text, and no number is made up.
func FuzzParseLine(f *testing.F) {
	f.Add("dnsmasq[12]: started, version 2.90")
	f.Add("dnsmasq-dhcp[12]: 77 DHCPACK(ns-calico) 10.65.0.7 02:65:00:00:00:01 vm1")
	f.Add("dnsmasq: failed to bind")
	f.Add("dnsmasq[12]: bad dhcp-option at line 2 of /x/opts/s")
	f.Fuzz(func(t *testing.T, raw string) {
		l := parseLine(raw)
		if !strings.HasSuffix(raw, l.text) || l.pid == 0 && l.text != raw && !strings.Contains(raw, "[") {
			t.Errorf("%q: %+v", raw, l)
		}
		if n := len(l.attributes(map[string]string{"10.65.0.7": "tap1"})); n < 2 || n > 3 {
			t.Errorf("%q: %d attributes", raw, n)
		}
		if name := l.optionOf(map[string]string{"opts/s": "tag:s,6,1.1.1.1\ntag:port-tap1,x\n"}); name != "" && name != "tap1" {
			t.Errorf("%q is about %q", raw, name)
		}
		_, _, _, _ = l.level(), l.resolverLevel(), l.started(), l.probed()
	})
}

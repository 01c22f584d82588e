package packet

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// request6 is a request as a client sends it, byte by byte (RFC 8415 §8, §21).
const request6 = "" +
	"03 a1b2c3 " + // request, transaction id
	"0001 000a 0003 0001 fa163e000001 " + // client: DUID-LL
	"0002 0012 0004 11111111222233334444555555555555 " + // server: DUID-UUID
	"0003 0028 00000007 00000e10 00001518 " + // IA_NA: IAID 7, T1, T2
	"0005 0018 20010db8000000000000000000000005 00001c20 00003840 " + // its address: preferred, valid
	"0006 0004 0017 0018 " + // options asked for
	"0008 0002 0000" // elapsed time

func message6(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(request6, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var same6 = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}

func TestDHCPv6(t *testing.T) {
	b := message6(t)
	d, err := ParseDHCPv6(b)
	if err != nil {
		t.Fatal(err)
	}
	if d.Type != DHCPv6Request || d.XID != 0xa1b2c3 || len(d.Options) != 5 || d.Len() != len(b) {
		t.Errorf("got %+v", d)
	}
	if again := d.Append(nil); !bytes.Equal(again, b) {
		t.Errorf("built %x\nfrom  %x", again, b)
	}
	if id, ok := d.Option(Opt6ServerID); !ok || !bytes.Equal(id, DUIDUUID("11111111-2222-3333-4444-555555555555")) {
		t.Errorf("server %x", id)
	}
	v, _ := d.Option(Opt6IANA)
	ia, err := ParseIANA(v)
	want := &IANA{IAID: 7, T1: 3600, T2: 5400, Addrs: []IAAddr{{netip.MustParseAddr("2001:db8::5"), 7200, 14400}}}
	if diff := cmp.Diff(want, ia, same6); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if !bytes.Equal(ia.Value(), v) {
		t.Errorf("built %x from %x", ia.Value(), v)
	}
	d.Set(Opt6ElapsedTime, []byte{0, 1})
	d.Set(Opt6RapidCommit, nil)
	if v, _ := d.Option(Opt6ElapsedTime); len(d.Options) != 6 || string(v) != "\x00\x01" {
		t.Errorf("got %+v", d.Options)
	}
}

func TestDHCPv6Malformed(t *testing.T) {
	b := message6(t)
	relay := append([]byte{DHCPv6RelayForward}, b[1:]...)
	for name, b := range map[string][]byte{"short": b[:3], "relay": relay, "option cut": b[:len(b)-1], "option header cut": b[:6]} {
		if _, err := ParseDHCPv6(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, v := range map[string]string{"short": "00000007", "option cut": "000000070000000000000000" + "00050018",
		"address cut": "000000070000000000000000" + "00050002ffff"} {
		raw, err := hex.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		if ia, err := ParseIANA(raw); err == nil {
			t.Errorf("%s: %+v", name, ia)
		}
	}
	for _, id := range []string{"", "s6", "11111111-2222-3333-4444-55555555555g", "11111111222233334444555555555555----"} {
		if duid := DUIDUUID(id); duid != nil {
			t.Errorf("%q has DUID %x", id, duid)
		}
	}
}

func FuzzDHCPv6(f *testing.F) {
	f.Add(message6(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDHCPv6(b)
		if err != nil {
			return
		}
		if again := d.Append(nil); !bytes.Equal(again, b) || d.Len() != len(b) {
			t.Fatalf("%x became %x, of length %d", b, again, d.Len())
		}
		for v := range d.All(Opt6IANA) {
			ia, err := ParseIANA(v)
			if err != nil {
				continue
			}
			again, err := ParseIANA(ia.Value())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ia, again, same6); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestNewDHCPv6Option(t *testing.T) {
	const a, b = "20010db8000000000000000000000001", "20010db8000000000000000000000002"
	for _, c := range []struct {
		name, value string
		code        uint16
		want        string // in hex; "" = refused
	}{
		{"dns-server", "2001:db8::1,[2001:db8::2]", 23, a + b},
		{"DNS_Server", "2001:db8::1", 23, a},
		{"dhcp6.name-servers", "2001:db8::1", 23, a},
		{"23", "2001:db8::1", 23, a},
		{"dns-server", "192.0.2.1", 0, ""},
		{"dns-server", "fe80::1%eth0", 0, ""},
		{"dns-server", " ", 0, ""},
		{"domain-search", "example.org", 24, "076578616d706c65036f726700"},
		{"ntp-server", "2001:db8::1", 56, "00010010" + a},
		{"ntp-server", "ff05::101 example.org", 56, "00020010ff050000000000000000000000000101" + "0003000d076578616d706c65036f726700"},
		{"ntp-server", "2001:db8::g", 0, ""},
		{"sntp-server", "2001:db8::1", 31, a},
		{"information-refresh-time", "600", 32, "00000258"},
		{"information-refresh-time", "-1", 0, ""},
		{"preference", "256", 0, ""},
		{"bootfile-url", "tftp://x", 59, "746674703a2f2f78"},
		{"1000", "01:02", 1000, "0102"},
		{"1000", "text", 1000, "74657874"},
		{"1000", strings.Repeat("x", 1025), 0, ""},
		{"0", "x", 0, ""},
		{"65536", "x", 0, ""},
		{"3", "x", 0, ""},
		{"server-ip-address", "x", 0, ""},
	} {
		o, err := NewDHCPv6Option(c.name, c.value)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s=%q: got %v, want an error", c.name, c.value, o)
			}
			continue
		}
		if err != nil || o.Code != c.code || hex.EncodeToString(o.Value) != c.want {
			t.Errorf("%s=%q: got %d %x, %v; want %d %s", c.name, c.value, o.Code, o.Value, err, c.code, c.want)
		}
	}
}

func FuzzNewDHCPv6Option(f *testing.F) {
	f.Add("dns-server", "2001:db8::1")
	f.Add("ntp-server", "example.org,ff05::101")
	f.Fuzz(func(t *testing.T, name, value string) {
		if o, err := NewDHCPv6Option(name, value); err == nil && (o.Code == 0 || len(o.Value) == 0 || len(o.Value) > longestOption6) {
			t.Fatalf("%q=%q gave %v", name, value, o)
		}
	})
}

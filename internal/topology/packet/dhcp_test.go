package packet

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameDHCP = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func discover() *DHCP {
	d := &DHCP{Op: BootRequest, XID: 0x12345678, Secs: 3, Flags: 0x8000, CHAddr: macA}
	for _, a := range []*netip.Addr{&d.CIAddr, &d.YIAddr, &d.SIAddr, &d.GIAddr} {
		*a = netip.IPv4Unspecified()
	}
	d.Set(OptMessageType, []byte{DHCPDiscover})
	d.Set(OptRequestedIP, []byte{192, 0, 2, 10})
	d.Set(OptParameterList, []byte{1, 3, 6, 121})
	return d
}

func TestDHCPRoundTrip(t *testing.T) {
	d := discover()
	d.File = []byte("pxelinux.0")
	d.Set(OptBootfileName, bytes.Repeat([]byte("long"), 100))
	b := d.Append(nil)
	got, err := ParseDHCP(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, got, sameDHCP); diff != "" {
		t.Error(diff)
	}
	if a, ok := got.Addr(OptRequestedIP); !ok || a != ipA || got.Type() != DHCPDiscover {
		t.Errorf("requested %v, type %d", a, got.Type())
	}
	if n := len(discover().Append(nil)); n != 300 {
		t.Errorf("%d bytes, want 300", n)
	}
}

func TestDHCPOverload(t *testing.T) {
	d := discover()
	d.Set(OptOverload, []byte{1})
	d.File = []byte{OptHostName, 2, 'v', 'm', 255}
	got, err := ParseDHCP(d.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := got.Option(OptHostName); string(v) != "vm" {
		t.Errorf("host name %q", v)
	}
}

func TestDHCPMalformed(t *testing.T) {
	b := discover().Append(nil)
	noCookie := bytes.Clone(b)
	noCookie[236] = 0
	cut := bytes.Clone(b[:243])
	for name, b := range map[string][]byte{"short": b[:200], "no cookie": noCookie, "option cut": cut[:242]} {
		if _, err := ParseDHCP(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestClasslessRoutes(t *testing.T) {
	b := AppendClasslessRoute(nil, netip.MustParsePrefix("169.254.169.254/32"), ipB)
	b = AppendClasslessRoute(b, netip.MustParsePrefix("0.0.0.0/0"), ipA)
	if want := []byte{32, 169, 254, 169, 254, 192, 0, 2, 11, 0, 192, 0, 2, 10}; !bytes.Equal(b, want) {
		t.Errorf("got %v, want %v", b, want)
	}
	routes, err := ParseClasslessRoutes(b)
	if err != nil || len(routes) != 2 || routes[0].Dst.String() != "169.254.169.254/32" || routes[1].Router != ipA {
		t.Errorf("got %v %v", routes, err)
	}
	if _, err := ParseClasslessRoutes(b[:6]); err == nil {
		t.Error("cut route accepted")
	}
}

func FuzzDHCP(f *testing.F) {
	f.Add(discover().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDHCP(b)
		if err != nil {
			return
		}
		if v, ok := d.Option(OptOverload); ok && len(v) == 1 && v[0] != 0 {
			return // options from the name fields come back in the option field
		}
		again, err := ParseDHCP(d.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again, sameDHCP); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNewDHCPOption(t *testing.T) {
	for _, c := range []struct {
		name, value string
		code        uint8
		want        string // "" = refused
	}{
		{"mtu", "1400", 26, "\x05\x78"},
		{"Interface_MTU", "1400", 26, "\x05\x78"},
		{"26", "1400", 26, "\x05\x78"},
		{"26", "70000", 0, ""},
		{"tftp-server", "192.0.2.1", 66, "192.0.2.1"},
		{"bootfile-name", "pxelinux.0", 67, "pxelinux.0"},
		{"domain-name", "example.org", 15, "example.org"},
		{"ntp-server", "192.0.2.1, 192.0.2.2", 42, "\xc0\x00\x02\x01\xc0\x00\x02\x02"},
		{"ntp-server", "2001:db8::1", 0, ""},
		{"domain-search", "eng.example.org,example.org", 119, "\x03eng\x07example\x03org\x00\x07example\x03org\x00"},
		{"domain-search", "a..b", 0, ""},
		{"domain-search", ";", 0, ""},
		{"policy-filter", ",", 0, ""},
		{"classless-static-route", "198.51.100.0/24,192.0.2.1,0.0.0.0/0,192.0.2.2", 121, "\x18\xc6\x33\x64\xc0\x00\x02\x01\x00\xc0\x00\x02\x02"},
		{"121", "198.51.100.0/24", 0, ""},
		{"policy-filter", "198.51.100.0/24", 21, "\xc6\x33\x64\x00\xff\xff\xff\x00"},
		{"static-route", "198.51.100.1,192.0.2.1", 33, "\xc6\x33\x64\x01\xc0\x00\x02\x01"},
		{"static-route", "198.51.100.1", 0, ""},
		{"netmask", "255.255.0.0,255.0.0.0", 0, ""},
		{"time-offset", "-3600", 2, "\xff\xff\xf1\xf0"},
		{"lease-time", "600", 51, "\x00\x00\x02\x58"},
		{"ip-forwarding", "true", 19, "\x01"},
		{"ip-forwarding", "maybe", 0, ""},
		{"default-ttl", "64", 23, "\x40"},
		{"43", "01:04:c0:00:02:01", 43, "\x01\x04\xc0\x00\x02\x01"},
		{"224", "free text", 224, "free text"},
		{"224", "", 0, ""},
		{"0", "x", 0, ""},
		{"255", "x", 0, ""},
		{"53", "2", 0, ""},
		{"no-such-option", "x", 0, ""},
	} {
		o, err := NewDHCPOption(c.name, c.value)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s=%q: got %v, want an error", c.name, c.value, o)
			}
			continue
		}
		if err != nil || o.Code != c.code || string(o.Value) != c.want {
			t.Errorf("%s=%q: got %d %q, %v; want %d %q", c.name, c.value, o.Code, o.Value, err, c.code, c.want)
		}
	}
}

func FuzzNewDHCPOption(f *testing.F) {
	f.Add("mtu", "1400")
	f.Add("domain-search", "example.org")
	f.Add("121", "198.51.100.0/24,192.0.2.1")
	f.Fuzz(func(t *testing.T, name, value string) {
		if o, err := NewDHCPOption(name, value); err == nil && (o.Code == optPad || o.Code == optEnd || len(o.Value) == 0) {
			t.Fatalf("%q=%q gave %v", name, value, o)
		}
	})
}

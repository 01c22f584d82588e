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

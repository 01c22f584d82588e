package plan

import (
	"net/netip"
	"testing"
	"time"

	"heddle/calico"
)

// midnight is the time of writing leases.
var midnight = time.Unix(1000, 0)

func TestLeases(t *testing.T) {
	t.Parallel()
	a := machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "fd65::a", ""}
	b := machine{"b", "02:00:00:00:00:0b", "10.65.0.11", "fd65::b", ""}
	now := midnight
	duid := "duid 00:01:00:01:2c\n"
	lease4a, lease6a := "500 02:00:00:00:00:0a 10.65.0.10 host-a 01:02:00:00:00:00:0a\n", "600 7 fd65::a * 00:03:00:01:02\n"
	same := map[netip.Addr]calico.MAC{netip.MustParseAddr("fd65::a"): {2, 0, 0, 0, 0, 0xa}}
	other := map[netip.Addr]calico.MAC{netip.MustParseAddr("fd65::a"): {2, 0, 0, 0, 0, 0x99}}
	given := "87400 02:00:00:00:00:0a 10.65.0.10 * *\n"
	for name, test := range map[string]struct {
		old    string
		before map[netip.Addr]calico.MAC
		ports  []machine
		want   string
	}{
		"first start":                 {"", nil, []machine{a, b}, given + "87400 02:00:00:00:00:0b 10.65.0.11 * *\n"},
		"kept":                        {lease4a + duid + lease6a, same, []machine{a}, lease4a + duid + lease6a},
		"kept, holders unknown":       {lease4a + duid + lease6a, nil, []machine{a}, lease4a + duid + lease6a},
		"added":                       {duid + lease4a, nil, []machine{a, b}, lease4a + "87400 02:00:00:00:00:0b 10.65.0.11 * *\n" + duid},
		"port removed":                {lease4a + duid + lease6a, same, []machine{b}, "87400 02:00:00:00:00:0b 10.65.0.11 * *\n" + duid},
		"address of another machine":  {"500 02:00:00:00:00:99 10.65.0.10 * *\n" + duid + lease6a, other, []machine{a}, given + duid},
		"twice":                       {lease4a + lease4a, nil, []machine{a}, lease4a},
		"IPv6 twice":                  {duid + lease6a + "duid 01\n" + lease6a, same, []machine{a}, given + duid + lease6a},
		"broken lines":                {"x\n500 nonsense 10.65.0.10 * *\n-5 02:00:00:00:00:0a 10.65.0.10 * *\n500 02:00:00:00:00:0a\nduid\n", nil, []machine{a}, given},
		"a mac of another kind, CRLF": {"500 06-02:00:00:00:00:0a 10.65.0.10 * *\r\n" + "500 02:00:00:00:00:0a 10.65.0.10 * *\r\n", nil, []machine{a}, "500 02:00:00:00:00:0a 10.65.0.10 * *\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planOf(t, "", defaults(), test.ports...)
			got := p.Leases(test.old, test.before, now)
			if got != test.want {
				t.Errorf("got:\n%swant:\n%s", got, test.want)
			}
			if again := p.Leases(got, nil, now.Add(time.Hour)); again != got {
				t.Errorf("once more:\n%swas:\n%s", again, got)
			}
		})
	}
	o := defaults()
	o.LeaseSeconds = Infinite
	if got := planOf(t, "", o, a).Leases("", nil, now); got != "0 02:00:00:00:00:0a 10.65.0.10 * *\n" {
		t.Errorf("infinite: %q", got)
	}
}

func TestMissingLeases(t *testing.T) {
	t.Parallel()
	old := "500 02:00:00:00:00:0a 10.65.0.10 * *\nduid 00\n600 7 fd65::a * 00:03\n600 8 fd65::b * 00:04\nbroken line"
	for name, test := range map[string]struct{ of, in, want string }{
		"nothing":  {old, old, ""},
		"all new":  {old, "", "600 7 fd65::a * 00:03\n600 8 fd65::b * 00:04\n"},
		"one new":  {old, "duid 00\n999 7 fd65::a vm 00:03\n", "600 8 fd65::b * 00:04\n"},
		"no lines": {"", old, ""},
	} {
		if got := MissingLeases(test.of, test.in); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

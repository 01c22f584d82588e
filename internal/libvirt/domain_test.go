package libvirt

import (
	"reflect"
	"strings"
	"testing"
)

const twoPorts = `<domain type='kvm' id='3'><name>vm1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>
<metadata><other xmlns='https://example.com/other'><port id='not-ours'/></other>
<heddle:ports xmlns:heddle='https://heddle.invalid/libvirt'><heddle:port id='p1'/><heddle:port id='p2'/></heddle:ports></metadata>
<devices><interface type='ethernet'><mac address='FA:16:3E:00:00:01'/><target dev='tap1'/></interface>
<interface type='ethernet'><mac address='fa:16:3e:00:00:02'/></interface><interface type='hostdev'/></devices></domain>`

func TestReadDomain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*Domain{
		twoPorts: {Name: "vm1", UUID: "4dea22b3-1d52-d8f3-2516-782e98ab3fa0", Ports: []string{"p1", "p2"},
			Interfaces: []Interface{{"fa:16:3e:00:00:01", "tap1"}, {"fa:16:3e:00:00:02", ""}}},
		`<domain><name>vm2</name><metadata><p:port xmlns:p='https://heddle.invalid/libvirt' id='p3'/></metadata></domain>`: {Name: "vm2", Ports: []string{"p3"}},
		`<domain><name>vm3</name><metadata><port id='of-nobody'/></metadata></domain>`:                                     {Name: "vm3"},
	} {
		got, err := ReadDomain(strings.NewReader(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "the domain's XML: EOF",
		"<domain><name>vm":        "the domain's XML: XML syntax error",
		"<network><name>n</name>": "expected element type <domain>",
		"<domain>" + strings.Repeat(" ", maxDomain):                                                               "longer than 4194304 bytes",
		`<domain><name>vm</name><metadata><p:port xmlns:p='https://heddle.invalid/libvirt'/></metadata></domain>`: "domain vm: a heddle:port in its metadata has no id",
	} {
		if _, err := ReadDomain(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// FuzzReadDomain: whatever libvirt sends, the result is a domain whose ports have ids, or an error.
func FuzzReadDomain(f *testing.F) {
	f.Add(twoPorts)
	f.Add("<domain/>")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ReadDomain(strings.NewReader(text))
		if (d == nil) != (err != nil) {
			t.Fatalf("%+v, %v", d, err)
		}
		if d == nil {
			return
		}
		for _, id := range d.Ports {
			if id == "" {
				t.Error("a port without an id")
			}
		}
	})
}

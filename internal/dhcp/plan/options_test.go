package plan

import (
	"slices"
	"strings"
	"testing"
)

func TestOptionsCheck(t *testing.T) {
	t.Parallel()
	good := defaults()
	good.MTU, good.Servers, good.ConfigFile = 9000, []string{"9.9.9.9", "fd00::53#5353", "/corp.example/10.0.0.1"}, "/etc/dnsmasq.conf"
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"directory":            func(o *Options) { o.Dir = "relative" },
		"without commas":       func(o *Options) { o.Dir = "/a,b" },
		"device":               func(o *Options) { o.Device = "ns calico" },
		"at least one":         func(o *Options) { o.InterfacePrefixes = nil },
		"want 1 to 15":         func(o *Options) { o.InterfacePrefixes = []string{"tap*"} },
		"begins with it":       func(o *Options) { o.InterfacePrefixes = []string{"ns-"} },
		"lease":                func(o *Options) { o.LeaseSeconds = 60 },
		"renewal":              func(o *Options) { o.RenewalSeconds = -1 },
		"domain":               func(o *Options) { o.Domain = "a,b" },
		"longer than":          func(o *Options) { o.Domain = strings.Repeat("a.", 110) + "org" },
		"MTU":                  func(o *Options) { o.MTU = 20 },
		"want an address":      func(o *Options) { o.Servers = []string{"dns.example.org"} },
		"want a port":          func(o *Options) { o.Servers = []string{"9.9.9.9#0"} },
		"want /domain/address": func(o *Options) { o.Servers = []string{"/a b/9.9.9.9"} },
		"configuration file":   func(o *Options) { o.ConfigFile = "/etc/x\n--foo" },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestResolver has the dnsmasq that answers DNS ask whom the operator says, and nobody by itself.
func TestResolver(t *testing.T) {
	t.Parallel()
	nobody := []string{"--no-resolv", "--domain-needed", "--local=/example.org/"}
	for name, test := range map[string]struct {
		change func(*Options)
		want   []string // of those that say whom to ask
	}{
		"nobody":              {func(*Options) {}, nobody},
		"nobody, no domain":   {func(o *Options) { o.Domain = "" }, nobody[:2]},
		"servers":             {func(o *Options) { o.Servers = []string{"192.0.2.1", "/corp/192.0.2.2"} }, []string{"--no-resolv", "--server=192.0.2.1", "--server=/corp/192.0.2.2"}},
		"those of the host":   {func(o *Options) { o.LocalResolve = true }, nil},
		"servers, not host's": {func(o *Options) { o.LocalResolve, o.Servers = true, []string{"192.0.2.1"} }, []string{"--no-resolv", "--server=192.0.2.1"}},
	} {
		o := defaults()
		test.change(&o)
		got := slices.DeleteFunc(o.resolver(), func(a string) bool {
			return a != "--no-resolv" && a != "--domain-needed" && !strings.HasPrefix(a, "--server=") && !strings.HasPrefix(a, "--local=")
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

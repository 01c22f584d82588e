package oslo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/dhcp/plan"
)

func read(t *testing.T, text string) (Settings, error) {
	t.Helper()
	c, err := Parse(Source{"a.conf", []byte(text)})
	if err != nil {
		return Settings{}, err
	}
	return c.Settings()
}

func defaults() Settings {
	return Settings{
		Etcd: Etcd{Endpoint: "http://127.0.0.1:2379"},
		Plan: plan.Options{Dir: "/var/lib/neutron/dhcp/calico", InterfacePrefixes: []string{"tap"}, LeaseSeconds: 86400, Domain: "openstacklocal"},
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := read(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(defaults(), got); d != "" {
		t.Error(d)
	}
	got.Plan.Device = "ns-calico"
	if err := got.Plan.Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// TestLaterFilesOverride reads two files as the seed's invocation names them.
func TestLaterFilesOverride(t *testing.T) {
	t.Parallel()
	c, err := ReadFiles("testdata/neutron.conf", "testdata/ml2_conf.ini")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Settings()
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Host: "compute-1",
		Etcd: Etcd{Endpoint: "https://etcd.example.org:2379", KeyFile: "/etc/etcd/key.pem", CertFile: "/etc/etcd/cert.pem", CACertFile: "/etc/etcd/ca.pem"},
		Plan: plan.Options{
			Dir: "/srv/neutron/dhcp/calico", InterfacePrefixes: []string{"tap"}, LeaseSeconds: 3600, Domain: "example.org",
			Servers: []string{"9.9.9.9", "8.8.8.8#5353"}, ConfigFile: "/srv/neutron/dnsmasq.conf", Broadcast: true,
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.conf")
	if _, err := ReadFiles(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// TestSettings sets options one by one.
func TestSettings(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*Settings){
		"[DEFAULT]\ndhcp_lease_duration = -1":                           func(s *Settings) { s.Plan.LeaseSeconds = plan.Infinite },
		"[DEFAULT]\ndhcp_lease_duration =":                              func(*Settings) {},
		"[default]\ndhcp_lease_duration=600":                            func(s *Settings) { s.Plan.LeaseSeconds = 600 },
		"[DEFAULT]\ndhcp_lease_duration=600\ndhcp_lease_duration = 700": func(s *Settings) { s.Plan.LeaseSeconds = 700 },
		"[DEFAULT]\ndhcp_renewal_time = 100\ndhcp_rebinding_time: 200":  func(s *Settings) { s.Plan.RenewalSeconds, s.Plan.RebindingSeconds = 100, 200 },
		"[DEFAULT]\ndns_domain =":                                       func(s *Settings) { s.Plan.Domain = "" },
		"[DEFAULT]\ndhcp_domain = old.org":                              func(s *Settings) { s.Plan.Domain = "old.org" },
		"[DEFAULT]\ndhcp_domain = old.org\ndns_domain = new.org":        func(s *Settings) { s.Plan.Domain = "new.org" },
		"[DEFAULT]\ndhcp_confs = /x":                                    func(s *Settings) { s.Plan.Dir = "/x/calico" },
		"[DEFAULT]\nhost = h\ndhcp_confs = /x/$host":                    func(s *Settings) { s.Host, s.Plan.Dir = "h", "/x/h/calico" },
		"[DEFAULT]\ndhcp_confs = $state_path/d":                         func(s *Settings) { s.Plan.Dir = "/var/lib/neutron/d/calico" },
		"[DEFAULT]\nbase = /b\nstate_path = ${base}s\nmore = 1":         func(s *Settings) { s.Plan.Dir = "/bs/dhcp/calico" },
		"[DEFAULT]\ndhcp_confs = '/a $$ \\$ $ ${x'":                     func(s *Settings) { s.Plan.Dir = "/a $ $ $ ${x/calico" },
		"[DEFAULT]\ndnsmasq_local_resolv = yes":                         func(s *Settings) { s.Plan.LocalResolve = true },
		"[DEFAULT]\ndnsmasq_local_resolv = OFF":                         func(*Settings) {},
		"[DEFAULT]\ndnsmasq_base_log_dir = /var/log":                    func(s *Settings) { s.Plan.LogQueries = true },
		"[DEFAULT]\ndnsmasq_dns_servers =\n\t9.9.9.9\n  /corp/10.0.0.1": func(s *Settings) { s.Plan.Servers = []string{"9.9.9.9", "/corp/10.0.0.1"} },
		"[DEFAULT]\ninterface_driver = [x\nnever_heard = $of":           func(*Settings) {},
		"[other]\ndhcp_lease_duration = soon":                           func(*Settings) {},
		"[DEFAULT]\n; c\n#c\n\n\r\n[calico]\r\netcd_host = fd00::1\r\n": func(s *Settings) { s.Etcd.Endpoint = "http://[fd00::1]:2379" },
		"[CALICO]\netcd_username = u\netcd_password = p=q:#;":           func(s *Settings) { s.Etcd.Username, s.Etcd.Password = "u", "p=q:#;" },
		"[calico]\ninterface_prefix = tap, cali":                        func(s *Settings) { s.Plan.InterfacePrefixes = []string{"tap", "cali"} },
		"[calico]\nname = x\netcd_host = $name\n[DEFAULT]\nname = y":    func(s *Settings) { s.Etcd.Endpoint = "http://x:2379" },
		"[calico]\netcd_host = $name\n[DEFAULT]\nname = y":              func(s *Settings) { s.Etcd.Endpoint = "http://y:2379" },
		"\xef\xbb\xbf[DEFAULT]\nhost = with-a-byte-order-mark":          func(s *Settings) { s.Host = "with-a-byte-order-mark" },
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			want := defaults()
			change(&want)
			got, err := read(t, text)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestRefused looks at what is said of wrong values and lines.
func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[DEFAULT]\n\ndhcp_lease_duration = soon":                   `a.conf:3: [DEFAULT] dhcp_lease_duration = "soon": want a number of seconds of at least 120, or -1 for no end`,
		"[DEFAULT]\ndhcp_lease_duration = 5":                        "a.conf:2: ",
		"[DEFAULT]\ndhcp_renewal_time = -5":                         "a.conf:2: ",
		"[DEFAULT]\ndhcp_broadcast_reply = maybe":                   "want true or false",
		"[DEFAULT]\ndns_domain = a b":                               "a.conf:2: ",
		"[DEFAULT]\ndns_domain = a\n  b":                            "want a single line without control characters",
		"[DEFAULT]\ndnsmasq_dns_servers = 9.9.9.9,\n    nine":       `a.conf:2: [DEFAULT] dnsmasq_dns_servers = "9.9.9.9,\nnine": DNS server "nine"`,
		"[DEFAULT]\ndnsmasq_config_file = dnsmasq.conf":             "want an absolute path",
		"[DEFAULT]\nhost = a/b":                                     "want the name of a host",
		"[DEFAULT]\nstate_path = /x,y":                              "without commas",
		"[DEFAULT]\nstate_path = $nowhere":                          "there is no option nowhere",
		"[DEFAULT]\nstate_path = ${other.nowhere}":                  "there is no option other.nowhere",
		"[DEFAULT]\nstate_path = $a\na = $b\nb = $a":                "names itself",
		"[DEFAULT]\nstate_path = $state_path/x":                     "names itself",
		"[calico]\netcd_port = 70000":                               "a.conf:2: [calico] etcd_port",
		"[calico]\netcd_host = a:2379/x":                            "want the name or the address of a server",
		"[calico]\netcd_scheme = ftp":                               "want http or https",
		"[calico]\netcd_key_file = /k":                              "want etcd_cert_file too",
		"[calico]\netcd_cert_file = /k":                             "want etcd_key_file too",
		"[calico]\ninterface_prefix = tap/":                         "interface prefix",
		"host = x":                                                  "a.conf:1: option host is in no group",
		"[DEFAULT]\nhost":                                           "a.conf:2: want option = value",
		"[DEFAULT]\n= x":                                            "there is no option before the =",
		"[DEFAULT\n":                                                "want a group's name",
		"[]":                                                        "want a group's name",
		"  host = x":                                                "a.conf:1: an indented line",
		"[DEFAULT]\nhost = x\n# comment\n  y":                       "a.conf:4: an indented line",
		"[DEFAULT]\nhost = x\n\n  y":                                "a.conf:4: an indented line",
		"nonsense\n[DEFAULT]\n= y":                                  "a.conf:3: ",
		"[calico]\netcd_port = x\n[DEFAULT]\nstate_path = relative": "a.conf:4: ",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := read(t, text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestNamesStayBounded has each option name the next several times: what that comes to is refused
// before it is made.
func TestNamesStayBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("[DEFAULT]\nstate_path = /$a0\n")
	for i := range 40 {
		fmt.Fprintf(&text, "a%d = %s\n", i, strings.Repeat(fmt.Sprintf("$a%d", i+1), 10))
	}
	if _, err := read(t, text.String()); err == nil || !strings.Contains(err.Error(), "names deep") {
		t.Errorf("got %v", err)
	}
	wide := "[DEFAULT]\nstate_path = /$a\na = " + strings.Repeat("$b", 1000) + "\nb = " + strings.Repeat("$c", 1000) + "\nc = " + strings.Repeat("x", 1000)
	if _, err := read(t, wide); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
	empty := "[DEFAULT]\nstate_path = /$a\na = " + strings.Repeat("$b", 1000) + "\nb = " + strings.Repeat("$c", 1000) + "\nc = " + strings.Repeat("$d", 1000) + "\nd ="
	if _, err := read(t, empty); err == nil || !strings.Contains(err.Error(), "too many names") {
		t.Errorf("got %v", err)
	}
}

// TestRefusedInOrder: all that is wrong is said, in the order of files and lines.
func TestRefusedInOrder(t *testing.T) {
	t.Parallel()
	c, err := Parse(Source{"z.conf", []byte("[calico]\netcd_port = many\n[DEFAULT]\ndhcp_lease_duration = soon\nhost = a/b\n")}, Source{"a.conf", []byte("[DEFAULT]\nstate_path = x\n")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Settings()
	var places []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		place, _, _ := strings.Cut(line, ": ")
		places = append(places, place)
	}
	if d := cmp.Diff([]string{"z.conf:2", "z.conf:4", "z.conf:5", "a.conf:2"}, places); d != "" {
		t.Error(d)
	}
}

// TestPasswordIsNotShown, whatever is wrong with it.
func TestPasswordIsNotShown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hush\n hush", "a$hush", "${hush}", "hush\x01"} {
		if _, err := read(t, "[calico]\netcd_password = "+text+"\n"); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "a.conf:2: [calico] etcd_password") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzConfig reads whatever comes: no panic, no endless work, and what is taken is fit for dnsmasq.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"neutron.conf", "ml2_conf.ini"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte("[DEFAULT]\nhost = h"))
	}
	f.Add([]byte("[DEFAULT]\nstate_path = $a\na = ${b}${b}\nb = $$ \\$ $"), []byte("[calico]\netcd_port = 1\n  2"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c, err := Parse(Source{"a", first}, Source{"b", second})
		if err != nil {
			return
		}
		s, err := c.Settings()
		if err != nil {
			return
		}
		s.Plan.Device = "ns-calico"
		if err := s.Plan.Check(); err != nil && !strings.Contains(err.Error(), "begins with it") {
			t.Errorf("taken, but unfit: %v", err)
		}
		if strings.ContainsAny(s.Host+s.Etcd.Endpoint, "\n\r ") {
			t.Errorf("host %q, etcd %q", s.Host, s.Etcd.Endpoint)
		}
	})
}

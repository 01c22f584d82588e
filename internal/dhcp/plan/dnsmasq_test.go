package plan

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
)

const timeout = 20 * time.Second

// server is the two real dnsmasq in a namespace of their own, with one machine.
type server struct {
	t       *testing.T
	dir     string
	host    *netlab.Namespace
	machine *netlab.Namespace

	mu  sync.Mutex
	log strings.Builder
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func serve(t *testing.T, p *Plan) *server {
	t.Helper()
	for _, program := range []string{"dnsmasq", "udhcpc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	lab := netlab.ForTest(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // dnsmasq's user passes through
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, host: lab.MustNamespace(t, "host"), machine: lab.MustNamespace(t, "vm")}
	s.machine.MustIP(t, "link add eth0 address 02:00:00:00:00:0a type veth peer name tapa netns "+s.host.Name, "link set eth0 up")
	s.host.MustIP(t, "link set tapa up", "link add ns-calico type bridge", "link set ns-calico up")
	for _, g := range p.Gateways {
		nodad := map[bool]string{true: " nodad"}[g.Addr().Is6()]
		s.host.MustIP(t, fmt.Sprintf("addr add %s dev ns-calico%s", g, nodad))
	}
	for _, d := range []string{HostsDir, OptionsDir, NamesDir} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		s.put(File{name, p.Files[name]})
	}
	s.start("--dhcp-leasefile="+filepath.Join(s.dir, "leases"), p.Arguments)
	s.start("--hostsdir="+filepath.Join(s.dir, NamesDir), p.Resolver)
	s.hasRead(p.Files)
	return s
}

// start runs a dnsmasq.
func (s *server) start(first string, arguments []string) {
	s.t.Helper()
	all := []string{first}
	for _, a := range arguments {
		if !strings.HasPrefix(a, "--conf-file=/etc") {
			all = append(all, strings.ReplaceAll(a, defaults().Dir, s.dir))
		}
	}
	cmd := exec.Command("dnsmasq", all...)
	cmd.Stdout, cmd.Stderr = s, s
	if err := s.host.Start(cmd); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// put moves a file in.
func (s *server) put(f File) {
	s.t.Helper()
	fresh := filepath.Join(s.dir, "fresh")
	if err := os.WriteFile(fresh, []byte(f.Content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(s.dir, f.Path)); err != nil {
		s.t.Fatal(err)
	}
}

// hasRead waits until dnsmasq has read files.
func (s *server) hasRead(files map[string]string) {
	s.t.Helper()
	s.until("dnsmasq reads its files", func() bool {
		said := s.said()
		for name := range files {
			if !strings.Contains(said, "read "+filepath.Join(s.dir, name)) {
				return false
			}
		}
		return true
	})
}

func (s *server) until(what string, cond func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		s.t.Fatalf("%v\n%s", err, s.said())
	}
}

// lease returns the machine's lease; more are arguments for its client.
func (s *server) lease(more ...string) map[string]string {
	s.t.Helper()
	script := filepath.Join(s.t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ $1 != bound ] || env | grep -E '^(ip|dns|router|mtu|subnet|lease|staticroutes|msstaticroutes|bootfile|boot_file|tftp)='\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	args := []string{"-i", "eth0", "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", script, "-O", "staticroutes", "-O", "msstaticroutes", "-O", "bootfile", "-O", "tftp"}
	out, _ := s.machine.Output(ctx, "udhcpc", append(args, more...)...)
	told := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			told[name] = value
		}
	}
	return told
}

// complaint is a line in which dnsmasq refuses something.
var complaint = regexp.MustCompile(`(?im)^.*(at line \d|\bbad\b|duplicate|illegal|error|invalid|too long|inconsistent|cannot).*$`)

// TestDnsmasqReadsFiles gives the files of each golden plan to the real program, which must not
// complain.
func TestDnsmasqReadsFiles(t *testing.T) {
	t.Parallel()
	for file, p := range goldenPlans(t) {
		if len(p.Arguments) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			if refused := complaint.FindAllString(serve(t, p).said(), -1); len(refused) > 0 {
				t.Errorf("dnsmasq says:\n%s", strings.Join(refused, "\n"))
			}
		})
	}
}

// TestStepsAreEnough has the real program do what a step says, without a restart where it asks for
// none: the machine is told what the plan says, of several lines or options the newest.
func TestStepsAreEnough(t *testing.T) {
	t.Parallel()
	a := machine{"a", "02:00:00:00:00:0a", "10.65.0.10", "fd65::a", "a.x"}
	o := defaults()
	o.MTU = 1500 // that of the network counts, though the machine does not ask for it
	const network = `], "mtu": 1400, "host_routes": [`
	p := planOf(t, `"9.9.9.9", "9.9.9.8"`+network, o, a)
	s := serve(t, p)
	running := Started(p)
	want := func(ip, dns string) {
		t.Helper()
		told := s.lease()
		for name, value := range map[string]string{"ip": ip, "dns": dns, "router": "10.65.0.1", "mtu": "1400", "subnet": "255.255.255.0", "lease": "86400"} {
			if told[name] != value {
				t.Errorf("told %s %q, want %q\n%s", name, told[name], value, s.said())
			}
		}
	}
	want("10.65.0.10", "9.9.9.9 9.9.9.8")
	step := func(p *Plan) {
		t.Helper()
		did := running.Step(p)
		if did.Restart != Never {
			t.Fatalf("asks for a restart %s: %v", did.Restart, did.Reasons)
		}
		for _, f := range did.Write {
			read := "read " + filepath.Join(s.dir, f.Path)
			before := strings.Count(s.said(), read)
			s.put(f)
			s.until(f.Path+" is read", func() bool { return strings.Count(s.said(), read) > before })
		}
	}
	step(planOf(t, `"8.8.8.8"`+network, o, a))
	want("10.65.0.10", "8.8.8.8")
	a.v4, a.v6 = "10.65.0.77", "fd65::77"
	step(planOf(t, `"8.8.8.8"`+network, o, a))
	want("10.65.0.77", "8.8.8.8")
	if refused := complaint.FindAllString(s.said(), -1); len(refused) > 0 {
		t.Errorf("dnsmasq says:\n%s", strings.Join(refused, "\n"))
	}
}

// TestRefusedWithoutRestart shows why a restart is asked for: dnsmasq refuses a line with an
// address that another line has had since it started.
func TestRefusedWithoutRestart(t *testing.T) {
	t.Parallel()
	a := machine{"a", "02:00:00:00:00:99", "10.65.0.10", "", ""}
	p := planOf(t, "", defaults(), a)
	s := serve(t, p)
	running := Started(p)
	a.mac = "02:00:00:00:00:0a"
	did := running.Step(planOf(t, "", defaults(), a))
	if did.Restart != Now {
		t.Fatalf("got %+v", did)
	}
	for _, f := range did.Write {
		s.put(f)
	}
	s.until("dnsmasq refuses", func() bool { return strings.Contains(s.said(), "duplicate dhcp-host IP address 10.65.0.10") })
}

// TestFirstOfTwoAddresses has a machine with two IPv4 addresses get the first, and its routes as
// option 121 and 249; without DNS servers of its subnet it is sent to the host.
func TestFirstOfTwoAddresses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/options.txt")
	if err != nil {
		t.Fatal(err)
	}
	above, _, _ := strings.Cut(strings.ReplaceAll(string(text), "fa:16:3e:00:00:01", "02:00:00:00:00:0a"), line)
	told := serve(t, planOfGolden(t, strings.ReplaceAll(above, `"tap1"`, `"tapa"`))).lease()
	routes := "10.9.0.0/16 10.65.0.2 10.64.0.0/24 0.0.0.0 10.66.0.0/22 0.0.0.0 0.0.0.0/0 10.65.0.1"
	if told["ip"] != "10.65.0.7" || told["dns"] != "10.65.0.1" || told["staticroutes"] != routes || told["msstaticroutes"] != routes {
		t.Errorf("told %v", told)
	}
}

// TestExtraOptions has a machine told the options of its own, of which one is also its subnet's.
func TestExtraOptions(t *testing.T) {
	t.Parallel()
	p := goldenPlans(t)["testdata/extra_options.txt"]
	s := serve(t, p)
	told := s.lease()
	if told["ip"] != "10.65.0.11" || told["router"] != "10.65.0.254" || told["tftp"] != "10.65.0.9" || told["boot_file"]+told["bootfile"] != "pxelinux.0" {
		t.Errorf("told %v\n%s", told, s.said())
	}
}

// TestOwnMTU: a machine's own MTU, by name or by number, wins over its network's and the
// operator's. Told unasked, as those are, it is not: a file cannot say so, and an argument would
// take a restart for each such machine.
func TestOwnMTU(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mtu", "26"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, planOfGolden(t, fmt.Sprintf(`{"Options": {"MTU": 1300}, "Etcd": {
				"/calico/dhcp/v1/subnet/a": {"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1", "mtu": 1400},
				"/calico/v1/host/h1/workload/o/w/endpoint/1": {"state": "active", "name": "tapa", "mac": "02:00:00:00:00:0a", "profile_ids": [],
					"ipv4_nets": ["10.65.0.11"], "ipv4_subnet_ids": ["a"], "ipv6_nets": [], "ipv6_subnet_ids": [],
					"extra_dhcp_opts": [{"opt_name": %q, "opt_value": "1200", "ip_version": 4}]}}}`, name)))
			if told := s.lease("-O", "mtu"); told["ip"] != "10.65.0.11" || told["mtu"] != "1200" {
				t.Errorf("asked for the MTU: told %v\n%s", told, s.said())
			}
			if told := s.lease(); told["ip"] != "10.65.0.11" || told["mtu"] != "" {
				t.Errorf("not asked for it: told %v\n%s", told, s.said())
			}
		})
	}
}

// TestManySubnets: a machine in a network of 200 subnets is told its default route and as many of
// the others as fit into the smallest message, in both options; its host routes come first. What is
// left out is reported.
func TestManySubnets(t *testing.T) {
	t.Parallel()
	for _, hostRoutes := range []int{0, 10, 20} {
		t.Run(fmt.Sprint("host routes: ", hostRoutes), func(t *testing.T) {
			t.Parallel()
			var routes, subnets []string
			for i := range hostRoutes {
				routes = append(routes, fmt.Sprintf(`{"destination": "192.168.%d.0/24", "nexthop": "10.65.0.2"}`, i))
			}
			for i := range 200 {
				subnets = append(subnets, fmt.Sprintf(`"/calico/dhcp/v1/subnet/s%d": {"cidr": "10.100.%d.0/24", "gateway_ip": "10.100.%d.1"}`, i, i, i))
			}
			p := planOfGolden(t, fmt.Sprintf(`{"Options": {"MTU": 1400, "Domain": "a-rather-long-domain.of.some.example.org"}, "Etcd": {%s,
				"/calico/dhcp/v1/subnet/a": {"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1", "dns_servers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"], "host_routes": [%s]},
				"/calico/v1/host/h1/workload/o/w/endpoint/1": {"state": "active", "name": "tapa", "mac": "02:00:00:00:00:0a", "profile_ids": [],
					"ipv4_nets": ["10.65.0.11"], "ipv4_subnet_ids": ["a"], "ipv6_nets": [], "ipv6_subnet_ids": []}}}`, strings.Join(subnets, ",\n"), strings.Join(routes, ", ")))
			s := serve(t, p)
			told := s.lease("-O", "mtu")
			if told["ip"] != "10.65.0.11" || told["mtu"] != "1400" || told["dns"] != "192.0.2.1 192.0.2.2 192.0.2.3" {
				t.Errorf("told %v\n%s", told, s.said())
			}
			for _, option := range []string{"staticroutes", "msstaticroutes"} {
				got := strings.Fields(told[option])
				if hostRoutes == 20 && option == "msstaticroutes" { // there is no room for both
					if len(got) > 0 {
						t.Errorf("%s: %q", option, told[option])
					}
					continue
				}
				if n := len(got); n < 2 || got[n-2] != "0.0.0.0/0" || got[n-1] != "10.65.0.1" || strings.Count(told[option], "192.168.") != hostRoutes {
					t.Errorf("%s: %q\n%s", option, told[option], s.said())
				}
			}
			if strings.Contains(s.said(), "no space left") {
				t.Errorf("dnsmasq says\n%s", s.said())
			}
			left := ""
			for _, problem := range p.Problems {
				left += problem.Reason + "\n"
			}
			if !strings.Contains(left, "of 200 other subnets") || !strings.Contains(left, "10.100.199.0/24") {
				t.Errorf("reported: %q", left)
			}
		})
	}
}

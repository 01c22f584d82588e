package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// cniSite is a host whose containers get their interfaces by CNI.
type cniSite struct {
	*plugSite
	plugins string // directory with heddle-cni
	tool    string // cnitool
	cache   string // of the runtime's results
}

func newCNISite(t *testing.T) *cniSite {
	t.Helper()
	dir := t.TempDir()
	s := &cniSite{plugSite: newPlugSite(t), plugins: filepath.Join(dir, "plugins"), tool: filepath.Join(dir, "cnitool"), cache: filepath.Join(dir, "cache")}
	binary, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{s.plugins, s.cache, "/var/lib/cni"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, filepath.Join(s.plugins, cniName)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", s.tool, "github.com/containernetworking/cni/cnitool").CombinedOutput(); err != nil {
		t.Fatalf("build cnitool: %v\n%s", err, out)
	}
	return s
}

// config returns a network configuration for this host; settings are those of the plug-in, or
// replace others.
func (s *cniSite) config(t testing.TB, version string, settings map[string]any) []byte {
	t.Helper()
	c := map[string]any{"cniVersion": version, "name": "containers", "type": cniName, "network": "blue",
		"credentials": filepath.Join(s.data, "clouds.yaml"), "state": s.host.state, "host": s.host.name}
	for key, value := range settings {
		c[key] = value
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// cniError is an error as CNI wants it.
type cniError struct {
	Code int
	Msg  string
}

// cniResult is a result of ADD.
type cniResult struct {
	CNIVersion string
	Interfaces []struct{ Name, Mac, Sandbox string }
	IPs        []struct {
		Version          string
		Interface        int
		Address, Gateway string
	}
	Routes []struct{ Dst, GW string }
	DNS    struct{ Nameservers []string }
}

// call runs the plug-in as a runtime does.
func (s *cniSite) call(t testing.TB, command, container string, ns *netlab.Namespace, config []byte, env ...string) (out []byte, failed *cniError) {
	t.Helper()
	cmd := heddle("cni")
	cmd.Env = append(append(cmd.Env, "HOME=", "XDG_CACHE_HOME=", "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_IFNAME=eth0", "CNI_PATH="+s.plugins), env...)
	if ns != nil {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+ns.Path())
	}
	cmd.Stdin = strings.NewReader(string(config))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := s.ctl.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		failed = &cniError{}
		if e := json.Unmarshal([]byte(stdout.String()), failed); e != nil {
			t.Fatalf("%s: %v, and no error of CNI: %v\n%s%s", command, err, e, stdout.String(), stderr.String())
		}
	}
	return []byte(stdout.String()), failed
}

func (s *cniSite) mustCall(t testing.TB, command, container string, ns *netlab.Namespace, config []byte, env ...string) []byte {
	t.Helper()
	out, failed := s.call(t, command, container, ns, config, env...)
	if failed != nil {
		t.Fatalf("%s: %+v", command, failed)
	}
	return out
}

// mustFail calls the plug-in, which must fail with this code and these words.
func (s *cniSite) mustFail(t testing.TB, code int, words, command, container string, ns *netlab.Namespace, config []byte, env ...string) {
	t.Helper()
	if _, failed := s.call(t, command, container, ns, config, env...); failed == nil || failed.Code != code || !strings.Contains(failed.Msg, words) {
		t.Errorf("%s: %+v, want the code %d and %q", command, failed, code, words)
	}
}

// add adds a container, and returns the result.
func (s *cniSite) add(t testing.TB, container string, ns *netlab.Namespace, config []byte, env ...string) (r cniResult) {
	t.Helper()
	if out := s.mustCall(t, "ADD", container, ns, config, env...); json.Unmarshal(out, &r) != nil {
		t.Fatalf("ADD: no result of CNI:\n%s", out)
	}
	return r
}

// containerPort is a port that was made for a container.
type containerPort struct {
	ID       string
	Name     string
	DeviceID string `json:"device_id"`
	Status   string
	MAC      string   `json:"mac_address"`
	Groups   []string `json:"security_groups"`
}

// containerPorts returns the ports that were made for containers.
func (s *cniSite) containerPorts(t testing.TB) []containerPort {
	t.Helper()
	var answer struct{ Ports []containerPort }
	if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/ports?device_owner=container:cni", nil, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Ports
}

// untouched checks that no container has a port or an interface, and nothing is recorded.
func (s *cniSite) untouched(t *testing.T) {
	t.Helper()
	if ports := s.containerPorts(t); len(ports) > 0 {
		t.Errorf("ports of containers are left: %+v", ports)
	}
	if links := ip(t, s.ctl, "-o", "link"); strings.Contains(links, ": tap") {
		t.Errorf("interfaces of containers are left:\n%s", links)
	}
	records, err := filepath.Glob(filepath.Join(s.host.state, "plugged", "*-*-*-*-*.json"))
	if err != nil || len(records) > 0 {
		t.Errorf("records are left: %v, %v", records, err)
	}
}

// runTool runs cnitool with a configuration.
func (s *cniSite) runTool(t *testing.T, conf []byte, command string, ns *netlab.Namespace) string {
	t.Helper()
	nets := t.TempDir()
	writeFile(t, filepath.Join(nets, "containers.conf"), string(conf))
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$0" /var/lib/cni && exec "$@"`, s.cache, s.tool, command, "containers", ns.Path())
	cmd.Env = append(os.Environ(), runMain+"=1", "CNI_PATH="+s.plugins, "NETCONFPATH="+nets)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.ctl.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("cnitool %s: %v\n%s", command, err, out.String())
	}
	return out.String()
}

// TestCNI: containers get interfaces of ports from the first to the last version of CNI, and
// nothing is left of them, or of what failed.
func TestCNI(t *testing.T) {
	t.Parallel()
	s := newCNISite(t)
	c1, c2 := s.lab.MustNamespace(t, "c1"), s.lab.MustNamespace(t, "c2")
	versions := []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	conf := s.config(t, "1.1.0", nil)

	t.Run("VERSION", func(t *testing.T) {
		var v struct{ SupportedVersions []string }
		if err := json.Unmarshal(s.mustCall(t, "VERSION", "", nil, []byte(`{"cniVersion":"1.0.0"}`)), &v); err != nil || !slices.Equal(v.SupportedVersions, versions) {
			t.Errorf("versions %v, %v, want %v", v.SupportedVersions, err, versions)
		}
	})
	t.Run("versions", func(t *testing.T) {
		for _, version := range versions {
			conf := s.config(t, version, nil)
			r := s.add(t, "one", c1, conf, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_UID=1;IP=10.0.0.11")
			if r.CNIVersion != version || len(r.Interfaces) != 2 || len(r.IPs) != 1 || r.IPs[0].Address != "10.0.0.11/24" || r.IPs[0].Gateway != "10.0.0.1" || r.IPs[0].Interface != 1 {
				t.Fatalf("version %s: result %+v", version, r)
			}
			if in := r.Interfaces[1]; in.Name != "eth0" || in.Sandbox != c1.Path() || !slices.Equal(r.DNS.Nameservers, []string{"192.0.2.53"}) {
				t.Errorf("version %s: interface %+v, DNS %v", version, in, r.DNS)
			}
			has(t, fmt.Sprint(r.Routes), "{0.0.0.0/0 10.0.0.1}", "{198.51.100.0/24 10.0.0.9}")
			has(t, ip(t, c1, "-o", "link", "show", "eth0"), r.Interfaces[1].Mac, "mtu 1400")
			has(t, ip(t, c1, "-o", "addr", "show", "eth0"), "10.0.0.11/24")
			has(t, ip(t, c1, "route"), "default via 10.0.0.1 dev eth0")
			if ports := s.containerPorts(t); len(ports) != 1 || ports[0].Status != "ACTIVE" || ports[0].Name != "web" || ports[0].DeviceID != "one" || ports[0].MAC != r.Interfaces[1].Mac {
				t.Errorf("version %s: ports %+v", version, ports)
			}
			s.mustCall(t, "DEL", "one", c1, conf)
			s.mustCall(t, "DEL", "one", nil, conf)
			s.untouched(t)
		}
	})
	t.Run("cnitool", func(t *testing.T) {
		s.runTool(t, conf, "status", c1)
		var r cniResult
		if out := s.runTool(t, conf, "add", c1); json.Unmarshal([]byte(out), &r) != nil || len(r.IPs) != 2 {
			t.Fatalf("cnitool add: %s", out)
		}
		second := s.add(t, "two", c2, conf)
		address, _, _ := strings.Cut(second.IPs[0].Address, "/")
		if err := c1.Reach(t.Context(), address); err != nil {
			t.Error(err)
		}
		s.runTool(t, conf, "check", c1)
		s.runTool(t, conf, "del", c1)
		s.runTool(t, conf, "del", c1)
		if ports := s.containerPorts(t); len(ports) != 1 || ports[0].DeviceID != "two" {
			t.Errorf("ports after del: %+v, want that of the other container", ports)
		}
		s.runTool(t, conf, "add", c1)
		s.runTool(t, conf, "gc", c1) // cnitool knows of no container that is valid
		s.untouched(t)
	})
	t.Run("GC", func(t *testing.T) {
		s.add(t, "one", c1, conf)
		s.add(t, "two", c2, conf)
		s.mustCall(t, "GC", "", nil, s.config(t, "1.1.0", map[string]any{"name": "others"}))
		if ports := s.containerPorts(t); len(ports) != 2 {
			t.Errorf("ports after GC of another network: %+v, want two", ports)
		}
		valid := []map[string]string{{"containerID": "two", "ifname": "eth0"}}
		s.mustCall(t, "GC", "", nil, s.config(t, "1.1.0", map[string]any{"cni.dev/valid-attachments": valid}))
		if ports := s.containerPorts(t); len(ports) != 1 || ports[0].DeviceID != "two" {
			t.Errorf("ports after GC: %+v, want that of the valid container", ports)
		}
		s.mustCall(t, "GC", "", nil, conf)
		s.untouched(t)
	})
	t.Run("CHECK", func(t *testing.T) {
		s.mustFail(t, 101, "container one has no interface eth0 of a port", "CHECK", "one", c1, conf)
		var previous map[string]any
		if err := json.Unmarshal(s.mustCall(t, "ADD", "one", c1, conf, "CNI_ARGS=IP=10.0.0.11;MAC=02:00:00:00:00:11"), &previous); err != nil {
			t.Fatal(err)
		}
		with := s.config(t, "1.1.0", map[string]any{"prevResult": previous})
		s.mustCall(t, "CHECK", "one", c1, with)
		s.mustFail(t, 101, "there is no prevResult", "CHECK", "one", c1, conf)
		for _, change := range []struct{ do, undo, words string }{
			{"addr del 10.0.0.11/24 dev eth0", "addr add 10.0.0.11/24 dev eth0", "lacks the address 10.0.0.11/24"},
			{"link set eth0 address 02:00:00:00:00:99", "link set eth0 address 02:00:00:00:00:11", "has the MAC address 02:00:00:00:00:99"},
			{"route del default", "route add default via 10.0.0.1", "there is no route default via 10.0.0.1"},
		} {
			c1.MustIP(t, change.do)
			s.mustFail(t, 101, change.words, "CHECK", "one", c1, with)
			c1.MustIP(t, change.undo)
			_, _ = c1.Output(t.Context(), "ip", "route", "replace", "default", "via", "10.0.0.1") // went with the address
			_, _ = c1.Output(t.Context(), "ip", "route", "replace", "198.51.100.0/24", "via", "10.0.0.9")
		}
		s.mustCall(t, "CHECK", "one", c1, with)
		moved := s.containerPorts(t)[0].ID
		if err := s.api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+moved, map[string]any{"port": map[string]any{"fixed_ips": []map[string]string{{"ip_address": "10.0.0.12"}}}}, nil); err != nil {
			t.Fatal(err)
		}
		c1.MustIP(t, "addr add 10.0.0.12/24 dev eth0")
		s.mustFail(t, 101, "prevResult: interface eth0 has the addresses", "CHECK", "one", c1, with)
		s.mustFail(t, 999, "has its interface eth0 already", "ADD", "one", c1, conf)
		s.mustCall(t, "DEL", "one", c1, conf)
		s.untouched(t)
	})
	t.Run("port", func(t *testing.T) {
		port := s.newPort(t, "mine", 21)
		group := s.api.mustCreate(t, "security_group", map[string]any{"name": "web"})
		r := s.add(t, "one", c1, conf, "CNI_ARGS=HEDDLE_PORT=mine")
		if len(r.IPs) != 2 || r.IPs[0].Address != "10.0.0.21/24" {
			t.Errorf("result %+v", r)
		}
		s.add(t, "two", c2, s.config(t, "1.0.0", map[string]any{"securityGroups": []string{"web"}}))
		if ports := s.containerPorts(t); len(ports) != 1 || !slices.Equal(ports[0].Groups, []string{group.ID}) {
			t.Errorf("ports %+v, want one in the group %s", ports, group.ID)
		}
		s.mustFail(t, 999, "is plugged into network namespace "+c1.Path(), "ADD", "three", c2, conf, "CNI_ARGS=HEDDLE_PORT=mine")
		// Its user deletes a container's port while the container runs.
		if err := s.api.call(t.Context(), http.MethodDelete, "/v2.0/ports/"+s.containerPorts(t)[0].ID, nil, nil); err != nil {
			t.Fatal(err)
		}
		s.mustCall(t, "GC", "", nil, conf)
		s.clean(t, port)
		s.untouched(t)
	})
	t.Run("names of another project", func(t *testing.T) {
		const other = "0123456789abcdef0123456789abcdef"
		network := s.api.mustCreate(t, "network", map[string]any{"name": "blue", "project_id": other})
		theirs := s.api.mustCreate(t, "network", map[string]any{"name": "theirs", "project_id": other})
		port := s.api.mustCreate(t, "port", map[string]any{"name": "theirs", "network_id": theirs.ID, "project_id": other})
		s.add(t, "one", c1, conf) // by the name blue
		s.mustCall(t, "DEL", "one", c1, conf)
		s.mustFail(t, 999, "network theirs is not of this login's project; one of another project is named by its id", "ADD", "one", c1, s.config(t, "1.1.0", map[string]any{"network": "theirs"}))
		for _, name := range []string{"theirs", port.ID} {
			s.mustFail(t, 999, "port "+name+" is not of this login's project", "ADD", "one", c1, conf, "CNI_ARGS=HEDDLE_PORT="+name)
		}
		s.mustFail(t, 100, "IP allocation requires subnets for network", "ADD", "one", c1, s.config(t, "1.1.0", map[string]any{"network": theirs.ID, "ips": []string{"10.0.0.11"}})) // found, but without a subnet
		for _, path := range []string{"ports/" + port.ID, "networks/" + theirs.ID, "networks/" + network.ID} {
			if err := s.api.call(t.Context(), http.MethodDelete, "/v2.0/"+path, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.untouched(t)
	})
	t.Run("refusals", func(t *testing.T) {
		open := filepath.Join(t.TempDir(), "clouds.yaml")
		writeFile(t, open, "clouds: {}\n")
		if err := os.Chmod(open, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			code     int
			words    string
			settings map[string]any
			args     string
		}{
			{7, `securitygroups`, map[string]any{"securitygroups": []string{"web"}}, ""},
			{7, "ips[0]: \"10.0.0.300\" is no IP address", map[string]any{"ips": []string{"10.0.0.300"}}, ""},
			{7, "has mode 0644", map[string]any{"credentials": open}, ""},
			{7, "no such file or directory", map[string]any{"credentials": "/nowhere"}, ""},
			{7, "put it before the other plug-ins", map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}, ""},
			{4, "unknown COLOUR", nil, "CNI_ARGS=COLOUR=red"},
			{999, "there is no network green", map[string]any{"network": "green"}, ""},
			{999, "there is no security group red", nil, "CNI_ARGS=HEDDLE_SECURITY_GROUPS=red"},
			{100, "192.0.2.7", map[string]any{"ips": []string{"192.0.2.7"}}, ""},
			{999, "host h9 is not registered", map[string]any{"host": "h9"}, ""},
		} {
			s.mustFail(t, c.code, c.words, "ADD", "one", c1, s.config(t, "1.1.0", c.settings), c.args)
			s.untouched(t)
		}
		s.mustFail(t, 999, "is the host's own", "ADD", "one", s.ctl, conf)
		s.mustFail(t, 8, "no such file or directory", "ADD", "one", nil, conf, "CNI_NETNS=/run/netns/nowhere")
		s.mustFail(t, 1, "incompatible CNI versions", "ADD", "one", c1, s.config(t, "0.2.0", nil))
		s.mustFail(t, 4, "CNI_CONTAINERID", "ADD", "", c1, conf)
		s.untouched(t)
	})
	t.Run("agent away", func(t *testing.T) {
		s.agent.stop(t)
		s.mustFail(t, 50, "no agent runs on this host", "STATUS", "", nil, conf)
		s.mustFail(t, 11, "no agent runs on this host: `systemctl start heddle-agent`", "ADD", "one", c1, conf)
		s.untouched(t)
		s.startAgent(t)
		s.mustCall(t, "STATUS", "", nil, conf)
	})
}

// BenchmarkCNIAdd measures ADD, from the start of the process to its end, of 100 containers one
// after another.
func BenchmarkCNIAdd(b *testing.B) {
	s := &cniSite{plugSite: newPlugSite(b), plugins: b.TempDir()}
	s.api.unlimited(b)
	conf := s.config(b, "1.0.0", nil)
	var all []time.Duration
	for b.Loop() {
		for i := range 100 {
			ns := s.lab.MustNamespace(b, fmt.Sprintf("c%d", i))
			container := fmt.Sprintf("container-%d", i)
			begin := time.Now()
			s.add(b, container, ns, conf)
			all = append(all, time.Since(begin))
			if i%10 == 9 { // so many run at once
				for j := i - 9; j <= i; j++ {
					s.mustCall(b, "DEL", fmt.Sprintf("container-%d", j), nil, conf)
				}
			}
		}
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms/p50")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms/p99")
	b.ReportMetric(0, "ns/op")
}

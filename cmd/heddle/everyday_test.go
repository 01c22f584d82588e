package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// shell runs commands of heddle beside a server.
type shell struct {
	ns   *netlab.Namespace
	data string
}

// run runs a command, given as words between blanks, that must succeed.
func (s shell) run(t testing.TB, command string) string {
	t.Helper()
	return succeed(t, s.ns, append(strings.Fields(command), "--data", s.data)...)
}

func (s shell) refuse(t *testing.T, code int, words, command string) {
	t.Helper()
	refuse(t, s.ns, code, words, append(strings.Fields(command), "--data", s.data)...)
}

// show returns an object as its command shows it in JSON.
func (s shell) show(t *testing.T, command string) map[string]any {
	t.Helper()
	text := s.run(t, command+" -o json")
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	return o
}

// complete returns what a shell is given to complete the last word of a command.
func (s shell) complete(t *testing.T, words ...string) string {
	t.Helper()
	text, _, _ := strings.Cut(completeWith(t, s.ns, []string{"HEDDLE_DATA=" + s.data}, words...), "Completion ended")
	return text
}

// gaveUp is the beginning of the answer of a completion that found nothing within its second.
const gaveUp = ":1\n"

// completeWith completes the last word of a command, again where a busy machine was too slow for
// it.
func completeWith(t *testing.T, ns *netlab.Namespace, env []string, words ...string) (text string) {
	t.Helper()
	for range 30 {
		var code int
		if text, code = outputWith(t, ns, env, append([]string{"__complete"}, words...)...); code != 0 {
			t.Fatal(text)
		}
		if !strings.HasPrefix(text, gaveUp) {
			break
		}
	}
	return text
}

// want checks attributes of an object.
func want(t *testing.T, o map[string]any, attributes map[string]string) {
	t.Helper()
	for name, value := range attributes {
		if got := fmt.Sprint(o[name]); got != value {
			t.Errorf("%s is %s, want %s", name, got, value)
		}
	}
}

// TestEverydayCommands: networks, subnets, ports, security groups, routers and floating IPs are
// made, listed, changed and deleted by their names.
func TestEverydayCommands(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	s := shell{r.ns, data}
	want(t, s.show(t, "net create blue --mtu 1400 --description x"), map[string]string{"name": "blue", "mtu": "1400", "description": "x"})
	s.run(t, "net create world --external --shared --type vxlan")
	want(t, s.show(t, "subnet create blue4 --network blue --range 10.0.0.0/24 --gateway 10.0.0.254 --dns 192.0.2.53,192.0.2.54 --pool 10.0.0.10-10.0.0.99 --route 198.51.100.0/24=10.0.0.9"), map[string]string{
		"ip_version": "4", "gateway_ip": "10.0.0.254", "dns_nameservers": "[192.0.2.53 192.0.2.54]", "allocation_pools": "[map[end:10.0.0.99 start:10.0.0.10]]",
		"host_routes": "[map[destination:198.51.100.0/24 nexthop:10.0.0.9]]"})
	want(t, s.show(t, "subnet create blue6 --network blue --range 2001:db8::/64 --ipv6-mode slaac"), map[string]string{"ip_version": "6", "ipv6_ra_mode": "slaac"})
	s.run(t, "subnet create world4 --network world --range 203.0.113.0/24")
	s.run(t, "sg create web")
	s.run(t, "sg rule add web --direction ingress --protocol tcp --port 80 --remote 192.0.2.0/24")
	s.run(t, "sg rule add web --direction ingress --protocol udp --port 53-54 --remote 2001:db8::/32")
	s.run(t, "sg rule add web --direction ingress --remote-group default")
	rules := s.run(t, "sg rule list web")
	for _, columns := range []string{"ingress IPv4 tcp 80 80 192.0.2.0/24", "ingress IPv6 udp 53 54 2001:db8::/32", "ingress IPv4 default"} {
		if !strings.Contains(strings.Join(strings.Fields(rules), " "), columns) {
			t.Errorf("the rules lack %q:\n%s", columns, rules)
		}
	}
	s.run(t, "port create vm1 --network blue --ip 10.0.0.20 --mac fa:16:3e:00:00:01 --sg web --allow 10.0.0.64/28=fa:16:3e:00:00:02 --host h1 --interface vnet0")
	want(t, s.show(t, "port show vm1"), map[string]string{
		"mac_address": "fa:16:3e:00:00:01", "binding:host_id": "h1", "binding:profile": "map[interface_name:vnet0]", "allowed_address_pairs": "[map[ip_address:10.0.0.64/28 mac_address:fa:16:3e:00:00:02]]"})
	s.run(t, "port create vm2 --network blue --sg none --port-security=false")
	unbound := "note: port vm2 is bound to no host and carries nothing until a host h1 joins; none has joined yet\n"
	if text := s.run(t, "port set vm2 --host h1"); text != unbound {
		t.Errorf("binding a port to a host that has not joined says %q, want %q", text, unbound)
	}
	succeed(t, s.ns, "port", "set", "vm2", "--host", "", "--data", s.data)
	listed := s.run(t, "port list")
	has(t, listed, "NETWORK", "vm1", "blue", "10.0.0.20", "h1", "vm2")
	if text := s.run(t, "port list --host h1 --network blue -o name"); text != "vm1\n" {
		t.Errorf("ports on h1: %q, want vm1", text)
	}
	s.run(t, "router create r1")
	s.run(t, "router add-subnet r1 blue4")
	s.run(t, "router set-gateway r1 world --ip 203.0.113.9 --snat=false")
	has(t, s.run(t, "router list"), "r1", "world")
	has(t, fmt.Sprint(s.show(t, "router show r1")["external_gateway_info"]), "203.0.113.9", "enable_snat:false")
	s.run(t, "fip create world --ip 203.0.113.50")
	s.run(t, "fip attach 203.0.113.50 vm1")
	has(t, s.run(t, "fip list"), "203.0.113.50", "world", "vm1", "10.0.0.20")
	has(t, s.run(t, "fip show 203.0.113.50"), "10.0.0.20", "vm1")
	if text := s.run(t, "fip attach 203.0.113.50 vm1"); text != "" {
		t.Errorf("attaching to the same port again says %q, want nothing", text)
	}
	if text, taken := s.run(t, "fip attach 203.0.113.50 vm2"), "203.0.113.50 was taken from port vm1\n"; text != taken {
		t.Errorf("attaching to another port says %q, want %q", text, taken)
	}
	has(t, s.run(t, "fip show 203.0.113.50"), "vm2")
	if text := s.complete(t, "fip", "attach", "203.0.113.50", ""); text != "vm1\nvm2\n:4\n" {
		t.Errorf("ports for a floating IP are completed as\n%s\nwant those of workloads", text)
	}
	s.run(t, "fip detach 203.0.113.50")
	want(t, s.show(t, "fip show 203.0.113.50"), map[string]string{"port_id": "<nil>"})

	s.run(t, "net set blue --name green --mtu 1300 --admin-up=false")
	want(t, s.show(t, "net show green"), map[string]string{"mtu": "1300", "admin_state_up": "false"})

	s.run(t, "fip delete 203.0.113.50")
	s.run(t, "router clear-gateway r1")
	s.refuse(t, 1, ": first `heddle router remove-subnet r1 blue4`", "router delete r1")
	s.refuse(t, 1, ": ports in it: vm1; `heddle port set PORT --sg`", "sg delete web")
	s.run(t, "router remove-subnet r1 blue4")
	s.run(t, "router delete r1")
	s.run(t, "subnet set blue4 --gateway none --dns none")
	want(t, s.show(t, "subnet show blue4"), map[string]string{"gateway_ip": "<nil>", "dns_nameservers": "[]"})
	succeed(t, s.ns, "port", "set", "vm1", "--host", "", "--data", s.data)
	want(t, s.show(t, "port show vm1"), map[string]string{"binding:host_id": "", "binding:vif_type": "unbound"})
	s.run(t, "port delete vm1 vm2")
	s.run(t, "sg delete web")
	s.run(t, "net delete green world")
	for _, kind := range []string{"net", "subnet", "port", "router", "fip"} {
		if text := s.run(t, kind+" list -o json"); text != "[]\n" {
			t.Errorf("%ss that were not deleted:\n%s", kind, text)
		}
	}
}

// TestEverydayRefusals: what names nothing or several objects is refused in words before anything
// changes, mistyped words are followed by those that are meant, and names of others cannot steer a
// terminal.
func TestEverydayRefusals(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	s := shell{r.ns, data}
	api := login(t, r.ns, "127.0.0.1", data)
	s.refuse(t, 1, "no host carries one that an external network could be on: start an agent with --physical NETWORK=INTERFACE", "net create world --external")
	api.mustCreate(t, "network", map[string]any{"name": "twin"})
	second := api.mustCreate(t, "network", map[string]any{"name": "twin"})
	own := api.mustCreate(t, "network", map[string]any{"name": "own"})
	api.mustCreate(t, "network", map[string]any{"name": "own", "project_id": "0123456789abcdef0123456789abcdef"})
	want(t, s.show(t, "net show own"), map[string]string{"id": own.ID})
	evil := api.mustCreate(t, "network", map[string]any{"name": "evil\x1b[2J\nname"})
	s.refuse(t, 1, "there is no network nothing", "net show nothing")
	s.refuse(t, 1, "2 networks are called twin: give one's id: ", "net delete "+second.ID+" twin")
	s.refuse(t, 1, second.ID, "net show twin")
	if listed := api.list(t, "network"); len(listed) != 5 {
		t.Errorf("%d networks after a refused delete, want 5", len(listed))
	}
	if text := s.run(t, "net list") + s.run(t, "net list -o name") + s.run(t, "net show "+evil.ID); strings.Contains(text, "\x1b") || !strings.Contains(text, `evil\x1b[2J\nname`) {
		t.Errorf("a name reaches the terminal: %q", text)
	}
	s.refuse(t, 1, "there is no network nothing", "port create p --network nothing")
	s.refuse(t, 1, "there is no floating IP 192.0.2.9", "fip detach 192.0.2.9")
	s.refuse(t, 1, "Invalid input for mac_address", "port create p --network "+second.ID+" --mac x")
	s.refuse(t, 2, `--range: "10.0.0.0" is no range of addresses`, "subnet create s --network "+second.ID+" --range 10.0.0.0")
	s.refuse(t, 2, "--pool: \"10.0.0.1\": want FIRST-LAST address", "subnet create s --network "+second.ID+" --range 10.0.0.0/24 --pool 10.0.0.1")
	s.refuse(t, 2, "--route: \"10.0.0.1\": want RANGE=ADDRESS", "subnet create s --network "+second.ID+" --range 10.0.0.0/24 --route 10.0.0.1")
	s.refuse(t, 2, "--port: \"http\": want a port, or FIRST-LAST", "sg rule add default --direction ingress --protocol tcp --port http")
	s.refuse(t, 2, `required flag(s) "network" not set`, "port create p")
	s.refuse(t, 2, "net set: want at least one of --name, --description", "net set twin")
	s.refuse(t, 2, "heddle: net create: want NAME\n", "net create")
	s.refuse(t, 2, `heddle: net list: want no arguments, got ["x"]`, "net list x")
	refuse(t, s.ns, 2, "heddle net create: NAME is empty", "net", "create", "", "--data", s.data)
	s.refuse(t, 2, `--direction: "in": want ingress, to the port, or egress, from it`, "sg rule add default --direction in")
	s.refuse(t, 2, `--peer "foo": want the IPv4 address of a host`, "doctor --peer foo")
	s.refuse(t, 1, "set agents-listen, such as", "host token h2")
	s.refuse(t, 2, `--admin-up: "maybe": want true or false`, "net set twin --admin-up=maybe")
	s.refuse(t, 2, `--wait: "5": want a time with its unit, such as 30s`, "plug p --tap --wait 5")
	refuse(t, s.ns, 2, `unknown command "nte" for "heddle": did you mean net?`, "nte", "--help")
	s.refuse(t, 2, `output format "yaml": want text, json or name`, "net list -o yaml")
	s.refuse(t, 2, "unknown flag: --netwrok: did you mean --network?", "port create p --netwrok x")
	s.refuse(t, 2, `unknown command "lst" for "heddle net": did you mean list?`, "net lst")
	s.refuse(t, 2, "names that begin with a dash go after --, as in `heddle net show -- -dash`", "net show -dash")
	s.refuse(t, 2, "did you mean --netns?", "plug p -netns x")
	for entry, missing := range map[string]string{"--port nothing": "port nothing", "--network nothing --host h1": "network nothing"} {
		s.refuse(t, 1, "there is no "+missing, "trace --frame 00 "+entry)
	}
	for command, meant := range map[string]string{
		"net ls": "list", "net rm": "delete", "floatingip list": "fip", "sg rule create default": "add", "port plug p": "heddle plug", "plug p --namespace x": "--netns",
		"subnet create s --network twin --cidr 10.0.0.0/24": "--range", "router set r --external world": "heddle router set-gateway",
	} {
		s.refuse(t, 2, ": did you mean "+meant+"?", command)
	}

	// The environment describes no object.
	renamed := []string{"net", "set", second.ID, "--description", "x", "--data", data}
	if text, code := outputWith(t, r.ns, []string{"HEDDLE_NAME=h1"}, renamed...); code != 0 {
		t.Fatal(text)
	}
	want(t, s.show(t, "net show "+second.ID), map[string]string{"name": "twin", "description": "x"})

	complete := func(env []string, words ...string) string {
		t.Helper()
		return completeWith(t, r.ns, env, words...)
	}
	here := []string{"HEDDLE_DATA=" + data}
	var networks []string
	for _, n := range api.list(t, "network") {
		switch {
		case n.ID == own.ID:
			networks = append(networks, "own")
		case n.ID == evil.ID:
			networks = append(networks, evil.ID+"\t"+`evil\x1b[2J\nname`)
		default:
			networks = append(networks, n.ID+"\t"+n.Name)
		}
	}
	slices.Sort(networks)
	if text, want := complete(here, "net", "show", ""), strings.Join(networks, "\n")+"\n:4\n"; !strings.HasPrefix(text, want) {
		t.Errorf("networks to show are completed as\n%s\nwant\n%s", text, want)
	}
	if text := s.complete(t, "net", "delete", "own", ""); strings.Contains("\n"+text, "\nown\n") {
		t.Errorf("a network is completed again: %s", text)
	}
	if text := s.complete(t, "net", "create", "--"); strings.Contains(text, "`") {
		t.Errorf("marks of placeholders in\n%s", text)
	}
	trap := "web$(touch${IFS}" + filepath.Join(t.TempDir(), "trap") + ")"
	var ids []string
	for _, name := range []string{trap + "1", trap + "2"} {
		port := api.mustCreate(t, "port", map[string]any{"network_id": own.ID, "name": name})
		ids = append(ids, port.ID+"\t"+name)
	}
	slices.Sort(ids)
	if text, want := complete(here, "port", "show", ""), strings.Join(ids, "\n")+"\n:4\n"; !strings.HasPrefix(text, want) {
		t.Errorf("ports whose names a shell would run are completed as\n%s\nwant their ids:\n%s", text, want)
	}
	has(t, complete(here, "port", "create", "p", "--network", ""), "own\n")
	has(t, complete(here, "sg", "rule", "list", ""), "default\n")
	has(t, complete(here, "plug", "x", "--n"), "--netns")
	has(t, complete(here, "sg", "rule", "add", "default", "--direction", ""), "ingress\n", "egress\n")
	has(t, complete(here, "sg", "rule", "add", "default", "--protocol", ""), "tcp\n", "icmp\n")
	for _, words := range [][]string{{"port", "set", "p", "--host", ""}, {"port", "create", "p", "--host", ""}, {"host", "remove", ""}} {
		if text := complete(here, words...); !strings.Contains(text, ":4\n") {
			t.Errorf("%v: hosts are not listed: %s", words, text)
		}
	}
	if text, _ := outputWith(t, r.ns, []string{"HEDDLE_DATA=" + t.TempDir()}, "__complete", "net", "show", ""); !strings.HasPrefix(text, gaveUp) {
		t.Errorf("without a server: %s", text)
	}
}

// TestMetadataByDevice: a device names ports of one project alone, since every project can give its
// ports the device of another one's machine, and so ask for its secrets.
func TestMetadataByDevice(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	s := shell{r.ns, data}
	api := login(t, r.ns, "127.0.0.1", data)
	network := api.mustCreate(t, "network", map[string]any{"name": "shared", "shared": true})
	const red, blue = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	port := func(project, device string) object {
		t.Helper()
		attributes := map[string]any{"network_id": network.ID, "device_id": device}
		if project != "" {
			attributes["project_id"] = project
		}
		return api.mustCreate(t, "port", attributes)
	}
	hostname := func(p object) string {
		t.Helper()
		var shown []struct{ Hostname string }
		if err := json.Unmarshal([]byte(s.run(t, "metadata show -o json --port "+p.ID)), &shown); err != nil || len(shown) != 1 {
			t.Fatalf("metadata of port %s: %v, %v", p.ID, shown, err)
		}
		return shown[0].Hostname
	}
	meant, second, copied := port(red, "web-1"), port(red, "web-1"), port(blue, "web-1")
	for _, verb := range []string{"set --hostname secret", "show", "unset"} {
		s.refuse(t, 1, "this login's project has no port with the device web-1; ports of other projects have it: give the id of the one that you mean with --project, or a port with --port: "+
			red+", "+blue, "metadata "+verb+" --device web-1")
	}
	s.run(t, "metadata set --device web-1 --hostname secret --project "+red)
	later := port(blue, "web-1")
	for _, c := range []struct {
		port object
		want string
	}{{meant, "secret"}, {second, "secret"}, {copied, ""}, {later, ""}} {
		if got := hostname(c.port); got != c.want {
			t.Errorf("hostname of port %s is %q, want %q", c.port.ID, got, c.want)
		}
	}

	own := port("", "web-1")
	s.run(t, "metadata set --device web-1 --hostname own")
	if got, other := hostname(own), hostname(meant); got != "own" || other != "secret" {
		t.Errorf("the login's own port has the hostname %q, and another project's %q", got, other)
	}
	s.refuse(t, 1, "project "+blue[:8]+" has no port with the device web-1; ports of other projects", "metadata show --device web-1 --project "+blue[:8])
	s.refuse(t, 1, "no port has the device web-2: give it to one with", "metadata show --device web-2")
	s.refuse(t, 2, "want only one of --port, --project", "metadata show --port "+own.ID+" --project "+red)
}

// TestKeptToken: commands go on with one token; with one that was revoked they log in again.
func TestKeptToken(t *testing.T) {
	t.Parallel()
	r, data := startServer(t)
	env := []string{"XDG_CACHE_HOME=" + t.TempDir()}
	run := func(args ...string) string {
		t.Helper()
		text, code := outputWith(t, r.ns, env, append(args, "--data", data)...)
		if code != 0 {
			t.Fatal(text)
		}
		return text
	}
	kept := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(env[0], "XDG_CACHE_HOME="), "heddle", "token-*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("kept tokens: %v, %v, want one", files, err)
		}
		raw, err := os.ReadFile(files[0])
		var k struct{ Token string }
		if err := errors.Join(err, json.Unmarshal(raw, &k)); err != nil {
			t.Fatal(err)
		}
		return k.Token
	}
	run("net", "create", "blue")
	first := kept()
	run("net", "list")
	if again := kept(); again != first {
		t.Error("the second command has logged in again")
	}
	revoker := newClient(r.ns, "127.0.0.1", first)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://127.0.0.1:5000/v3/auth/tokens", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", first)
	req.Header.Set("X-Subject-Token", first)
	res, err := revoker.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	has(t, run("net", "list"), "blue")
	if after := kept(); after == first {
		t.Error("a revoked token is kept")
	}
}

// BenchmarkPortList measures `heddle port list` of 1,000 ports, from the start of the process to
// its end, with the token of an earlier command, beside `heddle net list` of one network.
func BenchmarkPortList(b *testing.B) {
	ns := netlab.ForTest(b).MustNamespace(b, "serve")
	data := b.TempDir()
	start(b, ns, "serve", "--data", data)
	api := login(b, ns, "127.0.0.1", data)
	api.unlimited(b)
	network := api.mustCreate(b, "network", map[string]any{"name": "blue"})
	api.mustCreate(b, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/16"})
	const ports = 1000
	for i := 0; i < ports; i += 100 {
		batch := make([]map[string]any, 100)
		for j := range batch {
			batch[j] = map[string]any{"network_id": network.ID, "name": fmt.Sprintf("vm%d", i+j)}
		}
		if err := api.call(b.Context(), http.MethodPost, "/v2.0/ports", map[string]any{"ports": batch}, nil); err != nil {
			b.Fatal(err)
		}
	}
	cache := "XDG_CACHE_HOME=" + b.TempDir()
	run := func(args ...string) (text string, ms float64) {
		begin := time.Now()
		text, code := outputWith(b, ns, []string{cache}, append(args, "--data", data)...)
		if code != 0 {
			b.Fatal(text)
		}
		return text, time.Since(begin).Seconds() * 1000
	}
	run("net", "list") // logs in
	var all, one, ratios []float64
	for b.Loop() {
		text, many := run("port", "list")
		if n := strings.Count(text, "blue"); n != ports {
			b.Fatalf("%d ports are listed, want %d", n, ports)
		}
		_, single := run("net", "list")
		all, one, ratios = append(all, many), append(one, single), append(ratios, many/single)
	}
	b.ReportMetric(netlab.Median(all), "ms/list")
	b.ReportMetric(netlab.Median(one), "ms/one-network")
	b.ReportMetric(netlab.Median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apis "heddle/internal/cloud"
	"heddle/internal/connectivity"
)

// connectivitySite is a server and two hosts.
type connectivitySite struct {
	*site
	h1, h2 *host
	agent2 *running // of h2
	api    *client

	run1, run2 string // directories of the agents' sockets
}

func newConnectivitySite(t *testing.T) *connectivitySite {
	t.Helper()
	s := &connectivitySite{site: newSite(t)}
	s.serve(t)
	s.h1, s.h2 = s.addHost(t, "h1", "192.0.2.11"), s.addHost(t, "h2", "192.0.2.12")
	s.run1, s.run2 = t.TempDir(), t.TempDir()
	start(t, s.h1.ns, s.h1.agent("--join", s.token(t), "--run-dir", s.run1)...)
	s.agent2 = start(t, s.h2.ns, s.h2.agent("--join", s.token(t), "--run-dir", s.run2)...)
	s.api = login(t, s.ctl, "127.0.0.1", s.data)
	return s
}

// args returns the arguments of heddle connectivity.
func (s *connectivitySite) args(more ...string) []string {
	return append([]string{"connectivity", "--data", s.data}, more...)
}

// legs runs heddle connectivity, which must end with a code, and returns its lines.
func (s *connectivitySite) legs(t *testing.T, code int, more ...string) (legs []connectivity.Leg) {
	t.Helper()
	text, got := output(t, s.ctl, s.args(append(more, "-o", "json")...)...)
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&legs); got != code || err != nil {
		t.Fatalf("exit code %d, want %d; %v\n%s", got, code, err, text)
	}
	return legs
}

// failed checks that these legs have failed and no others; each is "LEG FROM>TO" with the short
// names of hosts. It returns what the first of them says.
func (s *connectivitySite) failed(t *testing.T, legs []connectivity.Leg, want ...string) (said string) {
	t.Helper()
	short := strings.NewReplacer(s.h1.name, "h1", s.h2.name, "h2")
	var got []string
	for _, l := range legs {
		if l.Result != connectivity.Failed {
			continue
		}
		if said == "" {
			said = short.Replace(l.Found + "\n" + l.Next)
		}
		name := l.Name + " " + short.Replace(l.From)
		if l.To != "" {
			name += ">" + short.Replace(l.To)
		}
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("failed: %q, want %q of\n%+v", got, want, legs)
	}
	return said
}

// isClean checks that nothing of a test is left, in the store or on the hosts.
func (s *connectivitySite) isClean(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"network", "subnet", "port"} {
		if all := s.api.list(t, kind); len(all) > 0 {
			t.Errorf("%d %ss are left", len(all), kind)
		}
	}
	if groups := s.testGroups(t); len(groups) > 0 {
		t.Errorf("%d security groups are left", len(groups))
	}
	for _, h := range []*host{s.h1, s.h2} {
		s.hasNoTap(t, h)
	}
}

func (s *connectivitySite) hasNoTap(t *testing.T, h *host) {
	t.Helper()
	within(t, "the workload's interface to go", func() bool { return !strings.Contains(ip(t, h.ns, "-o", "link"), ": tap") })
}

// testGroups returns the security groups of tests with their rules.
func (s *connectivitySite) testGroups(t *testing.T) (found []testGroup) {
	t.Helper()
	var answer struct {
		SecurityGroups []testGroup `json:"security_groups"`
	}
	if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/security-groups?name=heddle-connectivity", nil, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.SecurityGroups
}

type testGroup struct {
	ID    string
	Rules []struct {
		ID       string
		Protocol string
	} `json:"security_group_rules"`
}

// session logs in from the server's machine.
func (s *connectivitySite) session(t *testing.T) *apis.Session {
	t.Helper()
	session, err := apis.Config{DataDir: s.data, Dial: dialer(s.ctl)}.Login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// prepare begins a test on both hosts, which is under way until it is removed.
func (s *connectivitySite) prepare(t *testing.T) *connectivity.Test {
	t.Helper()
	var hosts []connectivity.Host
	for _, h := range []*host{s.h1, s.h2} {
		hosts = append(hosts, connectivity.Host{Name: h.name, Alive: true})
	}
	test, err := connectivity.Prepare(t.Context(), s.session(t), hosts)
	t.Cleanup(func() { remove(t, test) })
	if err != nil {
		t.Fatal(err)
	}
	return test
}

func try(t *testing.T, test *connectivity.Test) []connectivity.Leg {
	t.Helper()
	legs, err := test.Try(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return legs
}

// remove removes a test, of which anything may be gone already.
func remove(t *testing.T, test *connectivity.Test) {
	t.Helper()
	if err := test.Remove(context.Background()); err != nil {
		t.Error(err)
	}
}

// between are the legs from h1 to h2, or back, by which packets pass the wire.
func between(from, to string, names ...string) (legs []string) {
	for _, n := range names {
		legs = append(legs, fmt.Sprintf("%s %s>%s", n, from, to))
	}
	return legs
}

// TestConnectivity: all is well between two hosts; then what is broken is named, and in each case
// nothing is left.
func TestConnectivity(t *testing.T) {
	t.Parallel()
	s := newConnectivitySite(t)
	t.Run("all is well", s.testWell)
	t.Run("a firewall between hosts", s.testFirewall)
	t.Run("a small MTU between hosts", s.testSmallMTU)
	t.Run("rules of the security group", s.testRules)
	t.Run("wrong calls", s.testRefusals)
	t.Run("interrupted and killed", s.testInterrupted)
	t.Run("a dead agent", s.testDeadAgent)
}

func (s *connectivitySite) testWell(t *testing.T) {
	text := succeed(t, s.ctl, s.args()...)
	for _, words := range []string{"RESULT", "leased 198.18.0.", "1450 bytes pass, 1451 are refused", "TCP port 7682 is closed", "18 versions"} {
		if !strings.Contains(text, words) {
			t.Errorf("want %q in\n%s", words, text)
		}
	}
	if n := strings.Count(text, "\nok "); n != 30 {
		t.Errorf("%d legs are ok, want 30:\n%s", n, text)
	}
	s.isClean(t)
	for _, line := range []string{"packets of 1500 bytes to 192.0.2.12", "UDP 6677 to 192.0.2.12", "UDP 6677 from 192.0.2.12", "tunnels to other hosts", "other programs at interfaces"} {
		s.doctorSays(t, s.h1, s.run1, s.h2.ip, "ok +"+line)
	}
}

// doctorSays waits until the doctor prints a line on a host with an agent.
func (s *connectivitySite) doctorSays(t *testing.T, h *host, run, peer, line string) {
	t.Helper()
	withinLease(t, "the doctor on "+h.name+" to say "+line, func() bool {
		text, _ := output(t, h.ns, "doctor", "--config", "", "--run-dir", run, "--peer", peer)
		return regexp.MustCompile(`(?m)^` + line).MatchString(text)
	})
}

// testFirewall drops what one of the hosts sends to the other.
func (s *connectivitySite) testFirewall(t *testing.T) {
	rules := "add table bridge wall; add chain bridge wall forward { type filter hook forward priority 0; }; add rule bridge wall forward ip daddr 192.0.2.12 udp dport 6677 drop"
	if text, err := s.ctl.Output(t.Context(), "nft", rules); err != nil {
		t.Fatal(err, text)
	}
	legs := s.legs(t, 1)
	s.doctorSays(t, s.h2, s.run2, s.h1.ip, "missing +UDP 6677 from 192.0.2.11 .*nothing arrives from there")
	s.doctorSays(t, s.h1, s.run1, s.h2.ip, "missing +UDP 6677 to 192.0.2.12 .*nothing arrives there")
	s.doctorSays(t, s.h1, s.run1, s.h2.ip, `optional +tunnels to other hosts .*nothing arrives at .* \(192.0.2.12\)`)
	if text, err := s.ctl.Output(t.Context(), "nft", "delete table bridge wall"); err != nil {
		t.Fatal(err, text)
	}
	lost := []string{"icmp", "tcp", "udp", "mtu", "icmp6", "tcp6", "udp6"}
	said := s.failed(t, legs, append(between("h1", "h2", lost...), between("h2", "h1", lost...)...)...)
	if want := "no answer; h2 received none of the UDP datagrams\nno rule drops it: a firewall, route or MTU between hosts. UDP 6677 from 192.0.2.11 to 192.0.2.12 has to pass: heddle status --host h1; on h1 heddle doctor --peer 192.0.2.12; "; !strings.HasPrefix(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	i := slices.IndexFunc(legs, func(l connectivity.Leg) bool { return l.Name == "udp" && l.From == s.h2.name })
	i6 := slices.IndexFunc(legs, func(l connectivity.Leg) bool { return l.Name == "udp6" && l.From == s.h1.name })
	if on := legs[i6]; !strings.Contains(on.Found, "received none of the UDP datagrams") || !strings.Contains(on.Next, "from 192.0.2.11 to 192.0.2.12") {
		t.Errorf("got %+v, want that packets are lost from h1 to h2", on)
	}
	if back := legs[i]; !strings.Contains(back.Found, "received UDP datagrams of") || !strings.Contains(back.Next, "from 192.0.2.11 to 192.0.2.12") {
		t.Errorf("got %+v, want that answers are lost from h1 to h2", back)
	}
	if blocked := legs[len(legs)-1]; blocked.Name != "blocked6" || blocked.Result != connectivity.Untried {
		t.Errorf("got %+v: what cannot pass is no proof of a security group", blocked)
	}
	s.isClean(t)
}

// testSmallMTU makes a link between the hosts smaller than the servers know.
func (s *connectivitySite) testSmallMTU(t *testing.T) {
	s.ctl.MustIP(t, "link set h2 mtu 1400")
	legs := s.legs(t, 1)
	s.ctl.MustIP(t, "link set h2 mtu 1500")
	said := s.failed(t, legs, "mtu h1>h2", "mtu h2>h1")
	if want := "1450 bytes: no answer\nsmaller packets pass: on h1 heddle doctor --peer 192.0.2.12"; !strings.HasPrefix(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	s.isClean(t)
}

// testRules takes a rule away from the security group, and adds one.
func (s *connectivitySite) testRules(t *testing.T) {
	test := s.prepare(t)
	group := s.testGroups(t)[0]
	for _, r := range group.Rules {
		if r.Protocol == "udp" {
			if err := s.api.call(t.Context(), http.MethodDelete, "/v2.0/security-group-rules/"+r.ID, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, version := range []string{"IPv4", "IPv6"} {
		anyTCP := map[string]any{"security_group_id": group.ID, "direction": "ingress", "protocol": "tcp", "ethertype": version}
		if err := s.api.call(t.Context(), http.MethodPost, "/v2.0/security-group-rules", map[string]any{"security_group_rule": anyTCP}, nil); err != nil {
			t.Fatal(err)
		}
	}
	legs := try(t, test)
	remove(t, test)
	var want []string
	for _, name := range []string{"udp", "blocked", "udp6", "blocked6"} {
		want = append(want, append(between("h1", "h2", name), between("h2", "h1", name)...)...)
	}
	s.failed(t, legs, want...)
	for _, l := range legs {
		if strings.HasPrefix(l.Name, "udp") && !strings.Contains(l.Found, "drops the packet: ") {
			t.Errorf("got %q, want that the host drops it and why", l.Found)
		}
		if strings.HasPrefix(l.Name, "blocked") && !strings.Contains(l.Found, "which no rule of the security group allows") {
			t.Errorf("got %q", l.Found)
		}
	}
	s.isClean(t)
}

func (s *connectivitySite) testRefusals(t *testing.T) {
	refuse(t, s.ctl, 1, "there is no host nowhere: see heddle host list", s.args("--hosts", "nowhere")...)
	refuse(t, s.ctl, 2, "is named twice", s.args("--hosts", s.h1.name+","+s.h1.name)...)
	refuse(t, s.ctl, 2, "at most 16 can be tried at once", s.args("--hosts", strings.Repeat("x,", 16)+"x")...)
	refuse(t, s.ctl, 2, "-o xml: want text or json", s.args("-o", "xml")...)
	s.isClean(t)
}

// testInterrupted ends tests under way: by Ctrl-C nothing is left, and what a killed one leaves is
// removed on request.
func (s *connectivitySite) testInterrupted(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, os.Kill} {
		cmd := heddle(s.args()...)
		if err := s.ctl.Start(cmd); err != nil {
			t.Fatal(err)
		}
		within(t, "a test to be under way", func() bool { return strings.Contains(ip(t, s.h1.ns, "-o", "link"), ": tap") })
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("after %s it ended well", signal)
		}
		if signal == os.Kill {
			text := succeed(t, s.ctl, s.args()...) // that may be under way elsewhere, for all it knows
			if words := "note: left 1 tests alone that may be under way elsewhere"; !strings.Contains(text, words) {
				t.Errorf("want %q in\n%s", words, text)
			}
			if text := succeed(t, s.ctl, s.args("--cleanup")...); text != "tests removed: 1\n" {
				t.Errorf("got %q", text)
			}
		}
		s.isClean(t)
	}
	test := s.prepare(t)
	removed, left, err := connectivity.CleanUp(t.Context(), s.session(t), time.Now().Add(time.Minute)) // as one that is begun a minute later
	if removed != 1 || left != 0 || err != nil {
		t.Errorf("removed %d tests and left %d: %v", removed, left, err)
	}
	remove(t, test) // what is gone
	s.isClean(t)
}

// testDeadAgent kills an agent that has a workload.
func (s *connectivitySite) testDeadAgent(t *testing.T) {
	test := s.prepare(t)
	s.failed(t, try(t, test))
	s.agent2.kill()
	s.hasNoTap(t, s.h2)
	legs := try(t, test)
	remove(t, test)
	said := s.failed(t, legs, "agent h2")
	if want := "the agent of host h2 did not answer within 8s\nheddle host list; on h2: systemctl status heddle-agent, and its log"; !strings.HasSuffix(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	s.isClean(t)

	s.waitGone(t, s.h2)
	if said := s.failed(t, s.legs(t, 1, "--hosts", s.h1.name+","+s.h2.name), "agent h2"); !strings.Contains(said, "host h2 is down") {
		t.Errorf("got %q", said)
	}
	legs = s.legs(t, 0) // with the only host that is up
	s.failed(t, legs)
	if last := legs[len(legs)-1]; len(legs) != 30 || last.From != s.h1.name || last.To != s.h1.name {
		t.Errorf("got %+v, want 30 legs on h1 alone", legs)
	}
	s.isClean(t)
}

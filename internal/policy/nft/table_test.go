package nft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/internal/netlab"

	"heddle/internal/policy/calc"
)

// world is a store with what follows from it in a table.
type world struct {
	calc  *calc.Calc
	table *Table
}

func newWorld(t rapid.TB, b Backend) *world {
	t.Helper()
	table, err := New(b, usual(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{calc.New(labHost), table}
}

func (w *world) put(t rapid.TB, s store) {
	t.Helper()
	for path, value := range s {
		key, ok := calico.ParseKey(path)
		if !ok {
			t.Fatalf("%s is no key", path)
		}
		if value == "" {
			w.calc.Update(key, nil)
			continue
		}
		object, err := calico.Decode(key, []byte(value))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		w.calc.Update(key, object)
	}
	w.table.Update(w.calc.Changes())
}

func compareFound(a, b *found) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(found{}, foundSet{}, chainSum{}, element{}, verdict{}, ref{}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "generation" }, cmp.Ignore()))
}

// recorded makes a fake keep the text of the last batch.
func recorded(f *Fake) *string {
	last := new(string)
	f.Refuse(func(b string) error { *last = b; return nil })
	return last
}

// other is an endpoint of another host with a label.
func other(n int, label string) store {
	return store{fmt.Sprintf("/calico/v1/host/other/workload/o/w%d/endpoint/e", n): fmt.Sprintf(
		`{"state": "active", "name": "cali1", "ipv4_nets": ["10.70.%d.%d/32"], "labels": {"role": "%s"}}`, n/256, n%256, label)}
}

// A change sends what has changed to the kernel, and nothing else.
func TestOnlyChangesAreSent(t *testing.T) {
	t.Parallel()
	var f Fake
	last := recorded(&f)
	w := newWorld(t, &f)
	for n := range 100 {
		w.put(t, other(n, "web"))
	}
	w.put(t, both())
	w.put(t, store{policyAt("a"): `{"selector": "w == \"1\"", "inbound_rules": [{"src_selector": "role == \"web\""}], "outbound_rules": []}`})
	must(t, w.table.Commit(t.Context()))
	selector, selector6 := "inet heddle "+setName(calcSet(t, `role == "web"`), 4), setName(calcSet(t, `role == "web"`), 6)
	for _, c := range []struct {
		do   store
		want string
	}{
		{other(5, "db"), "delete elements of " + selector + " 10.70.0.5\n"},
		{other(100, "web"), "add elements to " + selector + " 10.70.0.100\n"},
		{other(7, "web"), ""},
		{other(500, "db"), ""},
		{store{policyAt("b"): `{"selector": "w == \"7\"", "inbound_rules": [{}], "outbound_rules": []}`}, ""},
		{store{policyAt("a"): `{"selector": "w == \"1\"", "inbound_rules": [{"src_selector": "role == \"web\""}, {"ip_version": 4}], "outbound_rules": []}`},
			"add counter inet heddle policy/default/a/in/2\n" +
				"flush chain inet heddle policy/default/a/in\n" +
				"add rule to inet heddle policy/default/a/in ip saddr @" + strings.TrimPrefix(selector, "inet heddle ") +
				" counter name \"policy/default/a/in/1\" accept comment \"rule 1\"\n" +
				"add rule to inet heddle policy/default/a/in ip6 saddr @" + selector6 + " counter name \"policy/default/a/in/1\" accept comment \"rule 1\"\n" +
				"add rule to inet heddle policy/default/a/in meta nfproto ipv4 counter name \"policy/default/a/in/2\" accept comment \"rule 2\"\n"},
	} {
		*last = ""
		w.put(t, c.do)
		must(t, w.table.Commit(t.Context()))
		if *last != c.want {
			t.Errorf("after %v the batch is\n%s\nwant\n%s", c.do, *last, c.want)
		}
	}
	// A label change of a local endpoint: a new judge, and the interface leads to it.
	*last = ""
	w.put(t, store{policyAt("b"): `{"selector": "w in {\"2\", \"7\"}", "inbound_rules": [{}], "outbound_rules": []}`})
	must(t, w.table.Commit(t.Context()))
	if n := strings.Count(*last, "\n"); n > 19 || !strings.Contains(*last, `delete elements of inet heddle workload-in "cali2"`) || strings.Contains(*last, "cali1") {
		t.Errorf("a policy for one more endpoint is a batch of\n%s", *last)
	}
}

// calcSet is the identity of a selector's address set.
func calcSet(t *testing.T, text string) calc.SetID {
	t.Helper()
	c := calc.New(labHost)
	w := world{calc: c}
	w.table, _ = New(&Fake{}, usual(), nil)
	for path, value := range both() {
		key, _ := calico.ParseKey(path)
		o, err := calico.Decode(key, []byte(value))
		must(t, err)
		c.Update(key, o)
	}
	key, _ := calico.ParseKey(policyAt("x"))
	o, err := calico.Decode(key, []byte(fmt.Sprintf(`{"selector": "all()", "inbound_rules": [{"src_selector": %q}], "outbound_rules": []}`, text)))
	must(t, err)
	c.Update(key, o)
	for id := range c.Changes().Sets {
		return id
	}
	t.Fatal("no set")
	return ""
}

// Whatever happened before, the tables follow from what is stored now; also for a new table that
// finds an earlier one's rules, and after changes by other programs.
func TestAnyWayLeadsToTheSame(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		rapid.Check(t, func(rt *rapid.T) {
			must(t, Cleanup(t.Context(), b))
			w := newWorld(rt, b)
			stored, around := store{}, Surroundings{}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				switch rapid.IntRange(0, 9).Draw(rt, "kind") {
				case 0:
					around = drawSurroundings(rt)
					w.table.Surround(around)
				case 1:
					must(t, w.table.Commit(t.Context()))
				case 2: // a new life
					must(t, w.table.Commit(t.Context()))
					w = newWorld(rt, b)
					w.table.Surround(around)
					w.put(rt, stored)
				case 3:
					meddle(t, rt, b)
					if _, err := w.table.Mend(t.Context()); err != nil {
						rt.Fatal(err)
					}
				default:
					path, value := drawObject(rt)
					if stored[path] = value; value == "" {
						delete(stored, path)
					}
					w.put(rt, store{path: value})
				}
			}
			must(t, w.table.Commit(t.Context()))
			got, err := b.read(t.Context())
			must(t, err)
			var fresh Fake
			scratch := newWorld(rt, &fresh)
			scratch.table.Surround(around)
			scratch.put(rt, stored)
			must(t, scratch.table.Commit(t.Context()))
			want, err := fresh.read(t.Context())
			must(t, err)
			if diff := compareFound(want, got); diff != "" {
				rt.Fatalf("differs from what is made from scratch (-want +got):\n%s", diff)
			}
			if todo, err := w.table.Mend(t.Context()); err != nil || todo != "" {
				rt.Fatalf("there is something to mend: %s %v", todo, err)
			}
		})
	})
}

func drawSurroundings(t *rapid.T) Surroundings {
	s := Surroundings{HostInterfaces: map[string]calico.HostEndpointKey{}}
	for _, name := range []string{"eth0", "eth1"} {
		if e := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, name); e != "" {
			s.HostInterfaces[name] = calico.HostEndpointKey{Host: labHost, Endpoint: e}
		}
	}
	if rapid.Bool().Draw(t, "exempt") {
		s.Exempt = []string{"cali2"}
	}
	if rapid.Bool().Draw(t, "tunnels") {
		s.IPIP = &IPIP{Device: "tunl0", Peers: []netip.Addr{netip.MustParseAddr(net1)}}
		s.VXLAN = &VXLAN{Port: 4789, Peers: []netip.Addr{netip.MustParseAddr(net2), netip.MustParseAddr(net2v6)}}
	}
	if rapid.Bool().Draw(t, "pools") {
		s.Pools = []Pool{{netip.MustParsePrefix("10.65.0.0/16"), true}, {netip.MustParsePrefix("10.66.0.0/16"), false}}
	}
	return s
}

// drawObject is a key with a new value; empty: it is deleted.
func drawObject(t *rapid.T) (path, value string) {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	rule := func() string {
		return pick("rule", `{}`, `{"action": "deny"}`, `{"action": "next-tier"}`, `{"protocol": "tcp", "dst_ports": [80, "90:99"]}`,
			`{"src_selector": "w == \"1\""}`, `{"!src_tag": "t", "ip_version": 4}`, `{"dst_selector": "has(w)", "protocol": "icmp"}`,
			`{"src_nets": ["10.0.0.0/8", "fd00::/8", "10.0.0.0/9"], "action": "log", "log_prefix": "x"}`, `{"!dst_net": "10.1.0.0/16"}`)
	}
	rules := func() string {
		var all []string
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			all = append(all, rule())
		}
		return strings.Join(all, ", ")
	}
	selector := func() string {
		return pick("selector", "all()", `w == \"1\"`, `w == \"2\"`, "has(w)", "has(h)", `h == \"a\"`)
	}
	switch rapid.IntRange(0, 5).Draw(t, "object") {
	case 0, 1:
		n := rapid.IntRange(1, 3).Draw(t, "workload")
		path = workloadAt(fmt.Sprint(n))
		value = pick("workload", "", inactiveWorkload(n), workload(n, ""), workload(min(n, 2), ""), workload(n, fmt.Sprintf(
			`"ipv4_nat": [{"int_ip": "10.65.0.%d", "ext_ip": "192.0.2.1"}, {"int_ip": "10.65.0.%d", "ext_ip": "192.0.2.%d"}], `, n, n, n+1)))
	case 2:
		e := pick("host endpoint", "a", "b")
		path, value = hostAt(e), pick("host", "", `{"name": "eth0", "labels": {"h": "`+e+`"}, "profile_ids": ["p", "q"]}`, `{"name": "eth1", "labels": {"w": "1"}}`)
	case 3:
		path = rulesAt(pick("profile", "p", "q"))
		value = pick("profile rules", "", `{"inbound_rules": [`+rules()+`], "outbound_rules": [`+rules()+`]}`)
	default:
		tier := pick("tier", "default", "first")
		if rapid.Bool().Draw(t, "metadata") {
			return "/calico/v1/policy/tier/" + tier + "/metadata", pick("order", "", `{}`, `{"order": 1}`)
		}
		path = "/calico/v1/policy/tier/" + tier + "/policy/" + pick("policy", "a", "b", "c")
		value = pick("policy value", "", fmt.Sprintf(`{"selector": "%s", "order": %d, "inbound_rules": [%s], "outbound_rules": [%s], "untracked": %v}`,
			selector(), rapid.IntRange(1, 2).Draw(t, "order"), rules(), rules(), rapid.IntRange(0, 3).Draw(t, "untracked") == 0),
			fmt.Sprintf(`{"selector": "%s", "inbound_rules": [%s], "pre_dnat": true}`, selector(), rules()))
	}
	return path, value
}

// meddle changes something of ours, or puts something among it.
func meddle(t *testing.T, rt *rapid.T, b Backend) {
	there, err := b.read(t.Context())
	must(t, err)
	var all []batch
	for _, r := range slices.SortedFunc(mapKeys(there.chains), compareRefs) {
		all = append(all, batch{{kind: flushChain, ref: r}}, batch{{kind: addRules, ref: r, rules: func() []rule { return []rule{do(verdict{kind: returns})} }}})
	}
	for _, r := range slices.SortedFunc(mapKeys(there.sets), compareRefs) {
		all = append(all, batch{{kind: flushSet, ref: r}})
	}
	if there.tables[inet] {
		strange := verdictMap("strange")
		all = append(all, batch{{kind: deleteTable, ref: ref{table: inet}}}, batch{{kind: addChain, ref: inetRef("strange"), hook: &hook{"filter", "forward", -5}},
			{kind: addSet, ref: strange.ref, set: strange}, elementsOp(addElements, strange, dispatch("x", verdict{kind: accept})),
			ruleOps("strange", do(decide{inName(), "strange"}))})
	}
	if len(all) > 0 {
		must(t, b.commit(t.Context(), rapid.SampledFrom(all).Draw(rt, "meddle")))
	}
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A refused commit changes nothing; the next one goes on from what is there.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	var f Fake
	w := newWorld(t, &f)
	w.put(t, both())
	must(t, w.table.Commit(t.Context()))
	before := f.String()
	broken := errors.New("out of memory")
	f.Refuse(func(string) error { return broken })
	w.put(t, store{rulesAt("p"): `{}`, workloadAt("w2"): ""})
	if err := w.table.Commit(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}
	if f.String() != before {
		t.Errorf("a refused commit has changed\n%s\ninto\n%s", before, f.String())
	}
	f.Refuse(nil)
	w.put(t, store{policyAt("a"): `{"selector": "all()", "inbound_rules": [], "outbound_rules": []}`})
	must(t, w.table.Commit(t.Context()))
	if want := w.table.String(); f.String() != want {
		t.Errorf("there is\n%s\nwant\n%s", f.String(), want)
	}
	// Objects that another program has removed do not make a change fail.
	f.Wipe()
	w.put(t, store{workloadAt("w1"): ""})
	must(t, w.table.Commit(t.Context()))
	if want := w.table.String(); f.String() != want {
		t.Errorf("after a wipe there is\n%s\nwant\n%s", f.String(), want)
	}
}

// Changes to our table are noticed at once and repaired; other tables are left alone.
func TestDrift(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.everything()
	changed := make(chan struct{}, 1)
	watching := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		watching <- l.kernel.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	<-changed
	listed := func() (all string) {
		for _, table := range []string{"inet heddle", "arp heddle", "inet observer"} {
			out, err := l.host.Output(t.Context(), "nft", "-s", "list", "table "+table)
			must(t, err)
			all += sortedBlocks(out)
		}
		return all
	}
	before := listed()
	selector := setName(calcSet(t, `w == "1"`), 4)
	for _, command := range []string{
		"flush table inet heddle",
		"delete table inet heddle",
		"delete table arp heddle",
		"flush chain inet heddle policy/default/r/in",
		"add rule inet heddle policy/default/r/in accept",
		"insert rule inet heddle forward-from accept",
		"add element inet heddle " + selector + " { 192.0.2.99 }",
		"delete element inet heddle " + selector + " { 10.65.0.1 }",
		"flush set inet heddle " + selector,
		"flush map inet heddle workload-in",
		"add element inet heddle exempt { \"cali1\" }",
		"add chain inet heddle open { type filter hook forward priority -10; }",
		"add set inet heddle strange { type inet_service; flags interval; elements = { 1-5 }; }",
		"add counter inet heddle strange",
	} {
		if out, err := l.host.Output(t.Context(), "nft", strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
		<-changed
		mended, err := l.table.Mend(t.Context())
		must(t, err)
		if after := listed(); after != before || mended == "" {
			t.Errorf("%s: mended by\n%s\nwhich leaves\n%s", command, mended, cmp.Diff(before, after))
		}
	}
	stop()
	must(t, <-watching)

	// Objects that are replaced because they are of another kind.
	for _, command := range []string{
		"delete table inet heddle; add table inet heddle; add set inet heddle " + selector + " { type ipv6_addr; }",
		"delete table inet heddle; add table inet heddle; add chain inet heddle input { type filter hook output priority 5; }",
	} {
		if out, err := l.host.Output(t.Context(), "nft", command); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
		if _, err := l.table.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := listed(); after != before {
			t.Errorf("%s: left\n%s", command, cmp.Diff(before, after))
		}
	}

	must(t, Cleanup(t.Context(), l.kernel))
	if out := list(t, l.host); strings.Contains(out, tableName) || !strings.Contains(out, "table inet observer") {
		t.Errorf("cleanup leaves\n%s", out)
	}
	must(t, Cleanup(t.Context(), l.kernel)) // nothing of ours there is success
}

// While an agent starts again, and while policy changes, connections that are allowed all the time
// go on, and new ones begin.
func TestRestartUnderTraffic(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.everything()
	l.apply(store{policyAt("r"): "", policyAt("u"): "", policyAt("d"): "", policyAt("odd%2fname%25"): "", workloadAt("w1"): workload(1, "")})
	l.server("w1", ":8080")
	old := l.dial("net1", "", w1+":8080")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- l.keepConnecting(stop, w1+":8080") }()
	random := rand.New(rand.NewPCG(1, 2))
	var stored store
	for range 20 {
		stored = both()
		for n := range random.IntN(4) {
			stored[policyAt(fmt.Sprint("p", n))] = `{"selector": "all()", "inbound_rules": [{"protocol": "tcp"}], "outbound_rules": [{"action": "next-tier"}]}`
		}
		l.restart(stored)
		l.ask(old)
	}
	close(stop)
	must(t, <-done)
	before, err := l.kernel.generation(t.Context())
	must(t, err)
	l.restart(stored)
	if after, _ := l.kernel.generation(t.Context()); after != before {
		t.Errorf("a restart with nothing to change has committed something: generation %d after %d", after, before)
	}
}

// restart makes a new table for what is stored, over what an earlier one has left in the kernel.
func (l *lab) restart(stored store) {
	l.t.Helper()
	w := newWorld(l.t, l.kernel)
	w.put(l.t, stored)
	l.table, l.calc = w.table, w.calc
	l.commit()
}

// keepConnecting makes connections from the first outside network until it is stopped; none may be
// lost.
func (l *lab) keepConnecting(stop chan struct{}, to string) error {
	for n := 0; ; n++ {
		select {
		case <-stop:
			if n == 0 {
				return errors.New("no connection was made meanwhile")
			}
			return nil
		default:
		}
		err := l.spaces["net1"].Do(func() error {
			// Less than the second after which TCP would try again.
			d := net.Dialer{Timeout: retransmission}
			c, err := d.Dial("tcp", to)
			if err != nil {
				return fmt.Errorf("connection %d: %w", n, err)
			}
			return c.Close()
		})
		if err != nil {
			return err
		}
	}
}

// retransmission is after how long TCP sends its first packet again.
const retransmission = time.Second

// Somebody who changes tables of his own all the time neither stops us nor is stopped.
func TestBusyNeighbour(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "host")
	k, neighbour := openIn(t, ns), openIn(t, ns)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- keepChanging(neighbour, stop) }()
	table, err := New(k, usual(), nil)
	must(t, err)
	for n := range 10 {
		needs := large(100+n, 10)
		table.Update(needs)
		must(t, table.Commit(t.Context()))
		if _, err := table.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	must(t, <-stopped)
	if _, err := table.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if todo, err := table.Mend(t.Context()); err != nil || todo != "" || !table.have.certain {
		t.Errorf("after all there is something to mend: %s %v", todo, err)
	}
}

// keepChanging adds and deletes a table until it is stopped.
func keepChanging(k *Kernel, stop chan struct{}) error {
	for {
		for _, kind := range []uint16{unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE} {
			var b buffer
			b.bracket(unix.NFNL_MSG_BATCH_BEGIN, 0)
			m := b.table(kind, unix.NLM_F_CREATE, inet)
			b.text(unix.NFTA_TABLE_NAME, "busy")
			b.end(m)
			b.bracket(unix.NFNL_MSG_BATCH_END, 0)
			k.drain()
			if err := k.send(b.bytes); err != nil {
				return err
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// A kernel without ARP tables gets all the rest.
func TestWithoutARP(t *testing.T) {
	t.Parallel()
	f := Fake{withoutARP: true}
	w := newWorld(t, &f)
	w.put(t, both())
	w.put(t, store{workloadAt("w3"): inactiveWorkload(3)})
	w.table.Surround(Surroundings{Exempt: []string{"cali9"}})
	must(t, w.table.Commit(t.Context()))
	if got := f.String(); got != w.table.String() || strings.Contains(got, "table arp") || !strings.Contains(got, "source/cali1") {
		t.Errorf("without ARP there is\n%s", got)
	}
	w.put(t, store{workloadAt("w2"): ""})
	must(t, w.table.Commit(t.Context()))
	if todo, err := w.table.Mend(t.Context()); err != nil || todo != "" {
		t.Errorf("there is something to mend: %s %v", todo, err)
	}
}

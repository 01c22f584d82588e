package dnsupdate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"heddle/internal/api/apitest"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// world is a store with objects that have names.
type world struct {
	t   testing.TB
	st  store.Store
	rep *replica.Replica
	db  *records.DB
}

func newWorld(t testing.TB) *world {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	return &world{t, st, rep, records.NewDB(st, rep)}
}

// publisher returns one with the server's address, over a replica of its own, which runs.
func (w *world) publisher(server string, key Key, log *slog.Logger) *Publisher {
	w.t.Helper()
	rep := replica.New(w.st, replica.Options{Watch: schema.Root}, schema.All()...)
	p, err := New(Options{Store: w.st, Objects: rep, Server: server, Zones: zones(), Key: key, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	apitest.Run(w.t, rep)
	return p
}

// change runs a transaction.
func (w *world) change(f func(tx *records.Tx) error) {
	w.t.Helper()
	if _, err := w.db.Update(context.Background(), func(tx *records.Tx) error { return f(tx) }); err != nil {
		w.t.Fatal(err)
	}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func standard(id, project string) neutron.Standard {
	age := time.Duration(len(id)) * time.Second // longer ids are younger
	return neutron.Standard{ID: id, ProjectID: project, CreatedAt: epoch.Add(age)}
}

func (w *world) floatingIP(id, project, name, address string) {
	w.t.Helper()
	dnsName, domain, _ := strings.Cut(name, ".")
	w.change(func(tx *records.Tx) error {
		return schema.FloatingIPs.Put(tx, &neutron.FloatingIP{Standard: standard(id, project), FloatingIPAddress: netip.MustParseAddr(address),
			DNSName: dnsName, DNSDomain: domain})
	})
}

func (w *world) deleteFloatingIP(id string) {
	w.t.Helper()
	w.change(func(tx *records.Tx) error { return schema.FloatingIPs.Delete(tx, id) })
}

// network makes a network with a domain and a port on it. ips are the port's addresses.
func (w *world) network(n neutron.Network, p neutron.Port, ips ...string) {
	w.t.Helper()
	subnet := &neutron.Subnet{Standard: standard("s-"+n.ID, "p"), NetworkID: n.ID}
	p.NetworkID, p.MACAddress = n.ID, [6]byte{2, 0, 0, 0, 0, 1}
	for _, ip := range ips {
		p.FixedIPs = append(p.FixedIPs, neutron.FixedIP{SubnetID: subnet.ID, IPAddress: netip.MustParseAddr(ip)})
	}
	w.change(func(tx *records.Tx) error {
		return errors.Join(schema.Networks.Put(tx, &n), schema.Subnets.Put(tx, subnet), schema.Ports.Put(tx, &p))
	})
}

// TestDesired: names of floating IPs and of ports on networks that can be reached are published in
// the longest zone that they are in.
func TestDesired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	apitest.Run(t, w.rep)
	port := func(id, name, domain string) neutron.Port {
		return neutron.Port{Standard: standard(id, "p"), DNSName: name, DNSDomain: domain}
	}
	w.network(neutron.Network{Standard: standard("r", "p"), NetworkType: "routed", DNSDomain: "example.org."}, port("a", "vm", ""), "203.0.113.1", "2001:db8::1")
	w.network(neutron.Network{Standard: standard("f", "p"), NetworkType: "flat", PhysicalNetwork: "lan", DNSDomain: "example.org."},
		port("b", "own", "sub.example.org."), "203.0.113.2")
	w.network(neutron.Network{Standard: standard("x", "p"), NetworkType: "flat", PhysicalNetwork: "out", External: true, DNSDomain: "example.org."},
		port("c", "outside", ""), "203.0.113.3")
	w.network(neutron.Network{Standard: standard("v", "p"), NetworkType: "vxlan", DNSDomain: "example.org."}, port("d", "inside", ""), "10.0.0.4")
	w.network(neutron.Network{Standard: standard("n", "p"), NetworkType: "routed"}, port("e", "no-domain", ""), "203.0.113.5")
	w.change(func(tx *records.Tx) error {
		return schema.FloatingIPs.Put(tx, &neutron.FloatingIP{Standard: standard("fip", "p"), PortID: "d", FixedIPAddress: netip.MustParseAddr("10.0.0.4"),
			FloatingNetworkID: "x", FloatingIPAddress: netip.MustParseAddr("203.0.113.10")})
	})
	w.floatingIP("1", "p", "www.example.org.", "203.0.113.11")
	w.floatingIP("22", "p", "www.example.org.", "203.0.113.12")
	w.floatingIP("333", "q", "www.example.org.", "203.0.113.13")
	w.floatingIP("4444", "p", "www.example.com.", "203.0.113.14")
	w.floatingIP("55555", "p", "sub.example.org.", "198.51.100.1")
	w.floatingIP("666666", "p", strings.Repeat("a", 63)+"."+strings.Repeat("b.", 90)+"example.org.", "203.0.113.16")

	w.floatingIP("7777777", "p", "11.113.0.203.in-addr.arpa.", "203.0.113.17")
	w.floatingIP("88888888", "p", "www.ip6.arpa.", "203.0.113.18")

	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, refused := desired(snap, []string{"example.org.", "sub.example.org.", "113.0.203.in-addr.arpa.", "ip6.arpa."})
	reverse := func(last int, name string) (string, recordSet) {
		return fmt.Sprintf("%d.113.0.203.in-addr.arpa.", last), recordSet{"113.0.203.in-addr.arpa.", []string{"PTR " + name}}
	}
	want := map[string]recordSet{
		"vm.example.org.":      {"example.org.", []string{"A 203.0.113.1", "AAAA 2001:db8::1"}},
		"own.sub.example.org.": {"sub.example.org.", []string{"A 203.0.113.2"}},
		"inside.example.org.":  {"example.org.", []string{"A 203.0.113.10"}},
		"www.example.org.":     {"example.org.", []string{"A 203.0.113.11", "A 203.0.113.12"}},
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.": {"ip6.arpa.", []string{"PTR vm.example.org."}},
	}
	for last, name := range map[int]string{1: "vm", 2: "own.sub", 10: "inside", 11: "www", 12: "www"} {
		key, set := reverse(last, name+".example.org.")
		want[key] = set
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	wantRefused := map[string]string{
		"floating IP 333 www.example.org.":   "another project has the name",
		"floating IP 55555 sub.example.org.": "it is the name of the zone",
		"floating IP 666666 " + strings.Repeat("a", 63) + "." + strings.Repeat("b.", 90) + "example.org.": "it is longer than 254 characters",
		"floating IP 7777777 11.113.0.203.in-addr.arpa.":                                                  "names of reverse lookups belong to the addresses",
		"floating IP 88888888 www.ip6.arpa.":                                                              "names of reverse lookups belong to the addresses",
	}
	if d := cmp.Diff(wantRefused, refused); d != "" {
		t.Errorf("refused: -want +got\n%s", d)
	}
}

// TestPublish: records follow objects, those of others stay, and what changes while the DNS server
// is away is made up for.
func TestPublish(t *testing.T) {
	t.Parallel()
	k, w := newKnot(t), newWorld(t)
	apitest.Run(t, w.rep)
	log := &lines{}
	p := w.publisher(k.address, testKey(), slog.New(slog.NewTextHandler(log, nil)))
	apitest.Run(t, p)

	w.floatingIP("1", "p", "www.example.org.", "203.0.113.11")
	w.network(neutron.Network{Standard: standard("r", "p"), NetworkType: "routed", DNSDomain: "example.org."},
		neutron.Port{Standard: standard("a", "p"), DNSName: "vm"}, "203.0.113.1", "2001:db8::1")
	k.await("www.example.org.", dns.TypeA, "203.0.113.11")
	k.await("11.113.0.203.in-addr.arpa.", dns.TypePTR, "www.example.org.")
	k.await("vm.example.org.", dns.TypeAAAA, "2001:db8::1")
	k.await("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", dns.TypePTR, "vm.example.org.")

	w.floatingIP("22", "p", "www.example.org.", "203.0.113.12")
	k.await("www.example.org.", dns.TypeA, "203.0.113.11", "203.0.113.12")
	w.floatingIP("4444", "p", "taken.example.org.", "203.0.113.14")
	log.await(t, "what=taken.example.org. err=\""+errForeign.Error())
	if got := k.ask("taken.example.org.", dns.TypeA); len(got) > 0 {
		t.Errorf("the name of another has %q", got)
	}

	k.stop()
	w.deleteFloatingIP("1")
	w.change(func(tx *records.Tx) error {
		n, err := schema.Networks.Get(tx, "r")
		if err != nil {
			return err
		}
		changed := *n
		changed.DNSDomain = "lan.example.org."
		return schema.Networks.Put(tx, &changed)
	})
	log.await(t, `what="all names"`)
	k.start()
	k.await("www.example.org.", dns.TypeA, "203.0.113.12")
	k.await("11.113.0.203.in-addr.arpa.", dns.TypePTR)
	k.await("vm.example.org.", dns.TypeA)
	k.await("vm.lan.example.org.", dns.TypeA, "203.0.113.1")
	k.await("1.113.0.203.in-addr.arpa.", dns.TypePTR, "vm.lan.example.org.")
	if got := k.ask("taken.example.org.", dns.TypeTXT); len(got) != 1 {
		t.Errorf("the record of another has become %q", got)
	}
}

// TestOnePublisher: of two servers one publishes, and the other takes over. The records that it
// finds published and no longer desired go.
func TestOnePublisher(t *testing.T) {
	t.Parallel()
	k, w := newKnot(t), newWorld(t)
	apitest.Run(t, w.rep)
	first, second := &lines{}, &lines{}
	run := func(log *lines) (end func()) {
		p := w.publisher(k.address, testKey(), slog.New(slog.NewTextHandler(log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		return func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	endFirst := run(first)
	first.await(t, "publishing DNS names")
	defer run(second)()
	w.floatingIP("1", "p", "www.example.org.", "203.0.113.11")
	w.floatingIP("22", "p", "mail.example.org.", "203.0.113.12")
	k.await("mail.example.org.", dns.TypeA, "203.0.113.12")
	k.await("www.example.org.", dns.TypeA, "203.0.113.11")
	if second.has("publishing DNS names") {
		t.Error("both servers publish")
	}
	endFirst()
	w.deleteFloatingIP("1")
	k.await("www.example.org.", dns.TypeA)
	k.await("mail.example.org.", dns.TypeA, "203.0.113.12")
	second.await(t, "publishing DNS names")
}

// TestUnknownOutcome: a publisher that ended in the middle of an update leaves a note, by which the
// next one tells its own records from those of others.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	k, w := newKnot(t), newWorld(t)
	apitest.Run(t, w.rep)
	s := &server{k.address, mustKey(t)}
	note := func(name, value string) {
		t.Helper()
		if _, err := w.st.Commit(t.Context(), nil, []store.Op{{Key: recordsPrefix + name, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, record := range map[string]string{"new": "A 203.0.113.1", "gone": "A 203.0.113.2", "changed": "A 203.0.113.4", "restored": "A 203.0.113.5",
		"foreign": "A 203.0.113.66"} {
		if err := s.send(t.Context(), update{zone: "example.org.", name: name + ".example.org.", insert: []string{record}}); err != nil {
			t.Fatal(err)
		}
	}
	attempt := func(records string) string { return `{"zone":"example.org.",` + records + `,"pending":true}` }
	note("new.example.org.", attempt(`"attempt":["A 203.0.113.1"]`))
	note("gone.example.org.", attempt(`"attempt":["A 203.0.113.2"]`))
	note("unsent.example.org.", attempt(`"attempt":["A 203.0.113.3"]`))
	note("changed.example.org.", attempt(`"records":["A 203.0.113.9"],"attempt":["A 203.0.113.4"]`))
	note("foreign.example.org.", attempt(`"attempt":["A 203.0.113.6"]`))
	note("lost.example.org.", `{"zone":"example.org.","records":["A 203.0.113.7"]}`) // by the DNS server
	w.floatingIP("1", "p", "new.example.org.", "203.0.113.21")
	w.floatingIP("22", "p", "lost.example.org.", "203.0.113.7")
	w.floatingIP("4444", "p", "changed.example.org.", "203.0.113.24")
	w.floatingIP("55555", "p", "restored.example.org.", "203.0.113.5")
	w.floatingIP("666666", "p", "foreign.example.org.", "203.0.113.6")

	log := &lines{}
	apitest.Run(t, w.publisher(k.address, testKey(), slog.New(slog.NewTextHandler(log, nil))))
	for name, want := range map[string][]string{"new": {"203.0.113.21"}, "gone": {}, "unsent": {}, "changed": {"203.0.113.24"}, "restored": {"203.0.113.5"}, "lost": {"203.0.113.7"},
		"foreign": {"203.0.113.66"}} {
		k.await(name+".example.org.", dns.TypeA, want...)
	}
	log.await(t, "what=foreign.example.org.")
	w.deleteFloatingIP("55555") // which was taken over
	k.await("restored.example.org.", dns.TypeA)
}

// TestWrongSecret: updates that the server does not accept are reported once for the zone.
func TestWrongSecret(t *testing.T) {
	t.Parallel()
	k, w := newKnot(t), newWorld(t)
	apitest.Run(t, w.rep)
	key := testKey()
	key.Secret = "AAAA"
	log := &lines{}
	p := w.publisher(k.address, key, slog.New(slog.NewTextHandler(log, nil)))
	w.floatingIP("1", "p", "www.example.org.", "203.0.113.11")
	w.floatingIP("22", "p", "mail.example.org.", "203.0.113.12")
	apitest.Run(t, p)
	log.await(t, `what="zone example.org." err="the DNS server answers NOTAUTH: it does not have the zone, or does not accept the TSIG key"`)
	if log.has("what=mail") || log.has("what=www") {
		t.Errorf("names are reported beside their zone:\n%s", log)
	}
	until(t, func() bool { return p.Metrics()[2].Value >= 2 }, "fewer than two names fail, with the log\n%s", log)
}

func mustKey(t testing.TB) Key {
	t.Helper()
	o, err := Options{Server: "127.0.0.1", Zones: zones(), Key: testKey()}.complete()
	if err != nil {
		t.Fatal(err)
	}
	return o.Key
}

// TestOptions: options are completed, and wrong ones are named.
func TestOptions(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{"192.0.2.1": "192.0.2.1:53", "ns.example.org:5353": "ns.example.org:5353", "2001:db8::1": "[2001:db8::1]:53",
		"[2001:db8::1]": "[2001:db8::1]:53"} {
		o, err := Options{Server: server, Zones: []string{"Example.org"}, Key: testKey()}.complete()
		if err != nil || o.Server != want || o.Zones[0] != "example.org." || o.Key.Name != "heddle." || o.Key.Algorithm != "hmac-sha256." {
			t.Errorf("%s: %+v, %v", server, o, err)
		}
	}
	for want, change := range map[string]func(*Options){
		"no zone to publish names in": func(o *Options) { o.Zones = nil },
		`"." is no zone`:              func(o *Options) { o.Zones = []string{"."} },
		`"" is no name of a TSIG key`: func(o *Options) { o.Key.Name = "" },
		`TSIG algorithm "hmac-md5" is none of hmac-sha256, hmac-sha384, hmac-sha512`: func(o *Options) { o.Key.Algorithm = "hmac-md5" },
		"the secret of the TSIG key is not in base64":                                func(o *Options) { o.Key.Secret = "?" },
	} {
		o := Options{Server: "192.0.2.1", Zones: zones(), Key: testKey()}
		change(&o)
		if _, err := o.complete(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

package ovs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/ovs"
)

// TestFlush is pitfall 4: what was learnt behind a port that stays is forgotten at each flush, over
// OVSDB alone.
func TestFlush(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	edits := []func(*ovs.Edit) error{bridge("xapi0")}
	var machines []*netlab.Namespace
	for i := range 2 {
		m, end, err := h.Machine(fmt.Sprintf("m%d", i), fmt.Sprintf("10.77.0.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		machines, edits = append(machines, m), append(edits, port("xapi0", ovs.PortSpec{Name: end}))
	}
	change(t, c, edits...)
	learnt := func() string { // a line for each address, after that of headings
		out, err := h.Appctl("fdb/show", "xapi0")
		if err != nil {
			t.Fatal(err)
		}
		_, lines, _ := strings.Cut(out, "\n")
		return lines
	}
	for round := range 3 {
		if err := machines[0].Reach(within(t, 10*time.Second), "10.77.0.2"); err != nil {
			t.Fatal(err)
		}
		ctx := within(t, 10*time.Second) // frames of flows that are known are learnt from a little later
		if err := netlab.Until(ctx, "what is learnt of a ping", func() (bool, error) { return learnt() != "", nil }); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, m := range machines { // else a late frame would be learnt again
			m.MustIP(t, "link set eth0 down")
		}
		if _, err := h.Appctl("revalidator/wait"); err != nil { // else frames that were not counted yet would be learnt from after
			t.Fatal(err)
		}
		change(t, c, func(e *ovs.Edit) error { e.FlushMACs("xapi0"); return nil })
		if lines := learnt(); lines != "" {
			t.Fatalf("round %d: after a flush the switch still knows\n%s", round, lines)
		}
		for _, m := range machines {
			m.MustIP(t, "link set eth0 up")
		}
	}
}

// TestStateOutlivesTheHost is pitfall 6: a host that was killed comes back with the ports that it
// had.
func TestStateOutlivesTheHost(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 2)
	h := l.Hosts()[0]
	c := follow(t, h)
	before := change(t, c, bridge("xapi0"), port("xapi0", leg("gre", l.Hosts()[1], 7)))
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	snap, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost != nil })
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(snap.Lost, ovsdb.ErrLost) || snap.Bridge("xapi0") == nil {
		t.Fatalf("lost: %v, bridge %v; want %v and what was known", snap.Lost, snap.Bridge("xapi0"), ovsdb.ErrLost)
	}
	if _, err := c.Transact(within(t, time.Second), ovsdb.Comment("")); !errors.Is(err, ovsdb.ErrLost) {
		t.Fatalf("a transaction: %v, want %v", err, ovsdb.ErrLost)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	c.Retry()
	snap, err = c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost == nil })
	if err != nil {
		t.Fatal(err)
	}
	name := leg("gre", l.Hosts()[1], 7).Name
	if p := snap.Port(name); p == nil || p != before.Port(name) {
		t.Fatalf("port %s is %v, was %v; want the same row", name, p, before.Port(name))
	}
	after := change(t, c, func(e *ovs.Edit) error { return errors.Join(e.DeletePort(name), e.DeleteBridge("xapi0")) })
	if after.Port(name) != nil || after.Bridge("xapi0") != nil || after.Interface(name) != nil {
		t.Fatal("rows are left")
	}
}

// TestChangesWhileAwayAreTold kills the database's server under a client, has others change rows
// meanwhile, and sees all of it after.
func TestChangesWhileAwayAreTold(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	before := change(t, c, bridge("kept"), bridge("gone"))
	for range 3 {
		if err := h.KillDatabase(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost != nil }); err != nil {
			t.Fatal(err)
		}
		if err := h.StartDatabase(); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Vsctl("--if-exists", "del-br", "gone", "--", "--may-exist", "add-br", "new", "--", "set", "bridge", "new", "datapath_type=netdev"); err != nil {
			t.Fatal(err)
		}
		after, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool {
			return s.Lost == nil && s.Bridge("gone") == nil && s.Bridge("new") != nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if before.Bridge("kept") != after.Bridge("kept") {
			t.Fatal("the row of a bridge that nobody changed is another")
		}
		want := []ovsdb.UUID{after.Bridge("new").UUID, before.Bridge("gone").UUID}
		slices.Sort(want)
		if got := ovsdb.Changed(before.Bridges, after.Bridges); !slices.Equal(got, want) {
			t.Fatalf("bridges %v have changed, want %v", got, want)
		}
	}
}

// TestKilledUnderWrites kills the server again and again while one client writes: what it was told
// to be done is done, in order, and all else fails with ErrLost.
func TestKilledUnderWrites(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	written := 0
	for range 3 {
		lost := make(chan error, 1)
		at := written
		enough := make(chan struct{})
		go func() {
			for n := at + 1; ; n++ {
				_, err := c.Transact(within(t, 10*time.Second), ovsdb.Update(ovs.Database, nil, ovsdb.Row{"external_ids": ovsdb.Strings{"n": fmt.Sprint(n)}}))
				if err != nil {
					written = n - 1
					lost <- err
					return
				}
				if n == at+20 {
					close(enough)
				}
			}
		}()
		<-enough
		if err := h.KillDatabase(); err != nil {
			t.Fatal(err)
		}
		if err := <-lost; !errors.Is(err, ovsdb.ErrLost) {
			t.Fatalf("after write %d: %v, want %v", written, err, ovsdb.ErrLost)
		}
		if err := h.StartDatabase(); err != nil {
			t.Fatal(err)
		}
		c.Retry()
		snap, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost == nil })
		if err != nil {
			t.Fatal(err)
		}
		// The write that was not answered may have been done.
		if n := snap.Root.ExternalIDs["n"]; n != fmt.Sprint(written) && n != fmt.Sprint(written+1) {
			t.Fatalf("%d was the last write that was done, and now it is %s", written, n)
		}
	}
}

// TestSlowServer stops a server in its tracks: requests end in time, and when it goes on so does
// the client.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	patient := follow(t, h)
	probing := follow(t, h, func(o *ovsdb.Options) { o.Probe = 100 * time.Millisecond })
	if err := h.FreezeDatabase(true); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := patient.Transact(within(t, 200*time.Millisecond), ovsdb.Comment("slow"))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2*time.Second {
		t.Fatalf("after %s: %v, want that time is over", time.Since(start), err)
	}
	snap, err := probing.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost != nil })
	if err != nil || !strings.Contains(snap.Lost.Error(), "has not answered") {
		t.Fatalf("the probing client: %v, lost: %v", err, snap.Lost)
	}
	if err := h.FreezeDatabase(false); err != nil {
		t.Fatal(err)
	}
	if _, err := patient.Transact(within(t, 10*time.Second), ovsdb.Comment("fast again")); err != nil {
		t.Fatal(err)
	}
	if _, err := probing.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost == nil }); err != nil {
		t.Fatal(err)
	}
}

// TestSwitchThatDoesNotAct tells the database's success from the switch's.
func TestSwitchThatDoesNotAct(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	if err := h.FreezeSwitch(true); err != nil {
		t.Fatal(err)
	}
	e := ovs.NewEdit(c.Snapshot(), ours)
	if err := bridge("xapi0")(e); err != nil {
		t.Fatal(err)
	}
	snap, _, err := c.Apply(within(t, 300*time.Millisecond), e.Ops()...)
	if !errors.Is(err, ovs.ErrNotApplied) {
		t.Fatalf("%v, want %v", err, ovs.ErrNotApplied)
	}
	if i := snap.Interface("xapi0"); i == nil || i.OfPort != 0 {
		t.Fatalf("interface %+v, want one without ofport", i)
	}
	if err := h.FreezeSwitch(false); err != nil {
		t.Fatal(err)
	}
	if snap = change(t, c); snap.Interface("xapi0").OfPort == 0 {
		t.Fatal("the interface still has no ofport")
	}
}

// TestBrokenPathsAreTold follows BFD over a leg: the switch says some 300 ms after its peer is gone
// that it is, and when it is back.
func TestBrokenPathsAreTold(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 2)
	var clients []*ovs.Client
	var name string
	for i, h := range l.Hosts() {
		spec := leg("gre", l.Hosts()[1-i], 7)
		spec.BFD = map[string]string{"enable": "true", "min_rx": "100", "min_tx": "100"}
		name = spec.Name
		c := follow(t, h)
		change(t, c, bridge("xapi0"), port("xapi0", spec))
		clients = append(clients, c)
	}
	c := clients[1] // whose leg is the last name
	forwarding := func(want string) {
		t.Helper()
		snap, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Interface(name).BFDStatus["forwarding"] == want })
		if err != nil {
			t.Fatalf("%v: %v, want forwarding %s", err, snap.Interface(name).BFDStatus, want)
		}
	}
	forwarding("true")
	// A session that has just come up is slow for a moment: its ends agree on how fast only then.
	err := netlab.Until(within(t, 10*time.Second), "BFD to be fast", func() (bool, error) {
		out, err := l.Hosts()[1].Appctl("bfd/show", name)
		return strings.Contains(out, "RX Interval: Approx 100ms"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []bool{true, false} {
		if err := l.Hosts()[0].Cut(cut); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		forwarding(fmt.Sprint(!cut))
		t.Logf("cut %v: told after %s", cut, time.Since(start))
	}
}

// TestRefusedTransactions maps errors to their operations, and nothing has changed.
func TestRefusedTransactions(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	c := follow(t, l.Hosts()[0])
	snap := change(t, c, bridge("xapi0"))
	row := snap.Bridge("xapi0").UUID
	cases := map[string]struct {
		ops   []ovsdb.Op
		index int
		code  string
		says  string
	}{
		"unknown column": {[]ovsdb.Op{ovsdb.Comment("x"), ovsdb.Update("Bridge", nil, ovsdb.Row{"colour": "red"})}, 1, "unknown column", "update Bridge"},
		"unknown table":  {[]ovsdb.Op{ovsdb.Insert("Paint", "", ovsdb.Row{"name": "red"})}, 0, "syntax error", "insert Paint red"},
		"wrong type":     {[]ovsdb.Op{ovsdb.Update("Bridge", ovsdb.Is(row), ovsdb.Row{"name": 5})}, 0, "syntax error", ""},
		"constraint":     {[]ovsdb.Op{ovsdb.Update("Bridge", ovsdb.Is(row), ovsdb.Row{"fail_mode": "maybe"})}, 0, "constraint violation", "maybe"},
		"same name": {[]ovsdb.Op{ovsdb.Insert("Bridge", "b", ovsdb.Row{"name": "xapi0"}), ovsdb.Mutate(ovs.Database, nil, ovsdb.Mutation{"bridges", "insert", ovsdb.Named("b")})},
			2, "constraint violation", "commit"},
		"dead reference": {[]ovsdb.Op{ovsdb.Mutate("Bridge", ovsdb.Is(row), ovsdb.Mutation{"ports", "insert", ovsdb.UUID("01234567-89ab-cdef-0123-456789abcdef")})},
			1, "referential integrity violation", "commit"},
		"wait": {[]ovsdb.Op{ovsdb.Wait("Bridge", ovsdb.Is(row), "==", 20*time.Millisecond, []string{"name"}, ovsdb.Row{"name": "xapi9"})}, 0, "timed out", "wait Bridge"},
	}
	for name, tc := range cases {
		_, err := c.Transact(within(t, 5*time.Second), tc.ops...)
		var refused *ovsdb.OpError
		if !errors.As(err, &refused) || refused.Index != tc.index || refused.Code != tc.code || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want operation %d, %q, %q", name, err, tc.index, tc.code, tc.says)
		}
	}
	if c.Snapshot() != snap && len(ovsdb.Changed(snap.Bridges, c.Snapshot().Bridges)) > 0 {
		t.Error("a bridge has changed")
	}
}

// TestWaitingTransactionIsCancelled gives up a transaction that waits in the database, which then
// never happens.
func TestWaitingTransactionIsCancelled(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	c := follow(t, l.Hosts()[0])
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	go cancel(why)
	_, err := c.Transact(ctx, ovsdb.Wait("Bridge", []ovsdb.Condition{{"name", "==", "xapi0"}}, "==", time.Minute, []string{"name"}, ovsdb.Row{"name": "xapi0"}),
		ovsdb.Update("Bridge", nil, ovsdb.Row{"external_ids": ovsdb.Strings{"late": "yes"}}))
	if !errors.Is(err, why) {
		t.Fatalf("%v, want %v", err, why)
	}
	change(t, c, bridge("xapi0")) // what it waited for
	for _, b := range change(t, c).Bridges {
		if b.ExternalIDs["late"] != "" {
			t.Fatal("the transaction was carried out")
		}
	}
}

// TestOwnWritesAreSeen reads back at once what a transaction did.
func TestOwnWritesAreSeen(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	c := follow(t, l.Hosts()[0])
	for n := range 100 {
		if _, err := c.Transact(within(t, 5*time.Second), ovsdb.Update(ovs.Database, nil, ovsdb.Row{"external_ids": ovsdb.Strings{"n": fmt.Sprint(n)}})); err != nil {
			t.Fatal(err)
		}
		if got := c.Snapshot().Root.ExternalIDs["n"]; got != fmt.Sprint(n) {
			t.Fatalf("after writing %d the snapshot has %s", n, got)
		}
	}
}

// TestRemotes has a database listen with a certificate, both sides verified, set up through the
// client itself.
func TestRemotes(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	dir := t.TempDir()
	authority, err := storetest.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(authority.Pair("host", h.Address.String()), authority.Pair("controller")); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	target := fmt.Sprintf("pssl:%d:%s", netlab.OVSDBPort, h.Address)
	local := follow(t, h)
	listen := func(e *ovs.Edit) error {
		e.EnsureManager(target)
		return e.EnsureSSL(file("host.key"), file("host.crt"), file("ca.crt"))
	}
	snap := change(t, local, listen)
	if len(snap.Managers) != 1 || len(snap.SSLs) != 1 {
		t.Fatalf("%d managers, %d certificates", len(snap.Managers), len(snap.SSLs))
	}
	again := ovs.NewEdit(snap, ours)
	if err := listen(again); err != nil || len(again.Ops()) > 0 {
		t.Fatalf("the second time: %v, operations %v", err, again.Ops())
	}
	if err := ovs.NewEdit(snap, ovs.Mark{Key: "other", Value: "one"}).EnsureSSL("a", "b", "c"); !errors.Is(err, ovs.ErrForeign) {
		t.Fatalf("somebody else's certificate: %v, want %v", err, ovs.ErrForeign)
	}

	raw, err := os.ReadFile(file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(raw)
	pair, err := tls.LoadX509KeyPair(file("controller.crt"), file("controller.key"))
	if err != nil {
		t.Fatal(err)
	}
	fromFabric := func(ctx context.Context, network, address string) (stream net.Conn, err error) {
		err = l.Fabric.Do(func() (err error) {
			stream, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return stream, err
	}
	secure := func(config *tls.Config) (*ovs.Client, error) {
		return ovs.Dial(within(t, 5*time.Second), ovsdb.Options{Address: "ssl:" + h.Address.String(), TLS: config, Dial: fromFabric})
	}
	c, err := secure(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	change(t, c, bridge("xapi0"))
	for name, config := range map[string]*tls.Config{
		"no certificate of ours": {RootCAs: pool},
		"unknown authority":      {Certificates: []tls.Certificate{pair}},
		"another host's name":    {RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "192.0.2.1"},
	} {
		if stranger, err := secure(config); err == nil {
			stranger.Close()
			t.Errorf("%s: let in", name)
		}
	}
	// Over TCP, a host whose wire is cut is noticed by its silence, and it is back at once when
	// there is reason to try.
	change(t, local, func(e *ovs.Edit) error { e.EnsureManager(fmt.Sprintf("ptcp:6641:%s", h.Address)); return nil })
	plain := dial(t, ovsdb.Options{Address: fmt.Sprintf("tcp:%s:6641", h.Address), Dial: fromFabric, Probe: 100 * time.Millisecond})
	if err := h.Cut(true); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Lost != nil }); err != nil {
		t.Fatal(err)
	}
	if err := h.Cut(false); err != nil {
		t.Fatal(err)
	}
	err = netlab.Until(within(t, 10*time.Second), "the host", func() (bool, error) {
		plain.Retry()
		return plain.Snapshot().Lost == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	snap = change(t, local, func(e *ovs.Edit) error { e.KeepManagers(); return nil })
	if len(snap.Managers) > 0 {
		t.Fatal("the manager is still there")
	}
}

// TestOtherDatabases opens databases that are not a switch's, or an old one's, and expects the
// error to name the reason.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(string) string
		want   string
	}{
		"another": {func(s string) string { return strings.Replace(s, `"name": "Open_vSwitch"`, `"name": "Paint"`, 1) }, "Open_vSwitch"},
		"old":     {func(s string) string { return strings.Replace(s, `"bfd":`, `"fdb":`, 1) }, "no column Interface.bfd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := ovs.Dial(within(t, 5*time.Second), ovsdb.Options{Address: database(t, tc.change)})
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want that it says %q", err, tc.want)
			}
		})
	}
}

// TestAddresses lists how databases are written.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "unix", "unix:", "tcp:", "udp:host:1", "ssl:2001:db8::1", "ssl:host", "tcp::6640", "/run/db.sock"} {
		c, err := ovs.Open(ovsdb.Options{Address: bad})
		if err == nil {
			c.Close()
			t.Errorf("%q was taken", bad)
		}
	}
	for _, good := range []string{"unix:/nowhere", "tcp:127.0.0.1:1", "tcp:127.0.0.1", "tcp:[::1]:1", "tcp:[::1]"} {
		c, err := ovs.Open(ovsdb.Options{Address: good})
		if err != nil {
			t.Errorf("%q: %v", good, err)
			continue
		}
		c.Close()
	}
}

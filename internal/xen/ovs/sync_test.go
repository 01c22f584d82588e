package ovs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"

	"pgregory.net/rapid"
)

// database runs an ovsdb-server without a switch, which needs no rights, over a changed schema of
// Open vSwitch, and tells its address.
func database(t testing.TB, change func(string) string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs") // short: it goes into a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	raw, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		t.Skipf("this test runs ovsdb-server: install openvswitch-switch (%v)", err)
	}
	if err := os.WriteFile(dir+"/schema", []byte(change(string(raw))), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ovsdb-tool", "create", dir+"/db", dir+"/schema").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := exec.Command("ovsdb-server", dir+"/db", "--remote=punix:"+dir+"/sock", "--unixctl="+dir+"/ctl", "-vconsole:off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	err = netlab.Until(within(t, 10*time.Second), "the server", func() (bool, error) {
		c, err := net.Dial("unix", dir+"/sock")
		if err == nil {
			c.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return "unix:" + dir + "/sock"
}

func asItIs(schema string) string { return schema }

// dial follows a database until the test ends.
func dial(t testing.TB, o ovsdb.Options) *ovs.Client {
	t.Helper()
	c, err := ovs.Dial(within(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// oldServer stands before a server and does not let it hear of monitor_cond_since: Open vSwitch
// before 2.12.
func oldServer(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(strings.TrimPrefix(address, "unix:")), "old")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var streams sync.WaitGroup
	t.Cleanup(streams.Wait)
	t.Cleanup(func() { l.Close() })
	pass := func(from, to net.Conn) {
		defer to.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if _, err := to.Write(bytes.ReplaceAll(buf[:n], []byte("monitor_cond_since"), []byte("monitor_cond_what?"))); err != nil {
				return
			}
		}
	}
	streams.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", strings.TrimPrefix(address, "unix:"))
			if err != nil {
				near.Close()
				return
			}
			streams.Go(func() { pass(near, far) })
			streams.Go(func() { pass(far, near) })
		}
	})
	return "unix:" + path
}

// content is a snapshot's rows.
type content struct {
	Root       *ovs.Root
	Bridges    map[ovsdb.UUID]*ovs.Bridge
	Ports      map[ovsdb.UUID]*ovs.Port
	Interfaces map[ovsdb.UUID]*ovs.Interface
	Managers   map[ovsdb.UUID]*ovs.Manager
}

func rows(s *ovs.Snapshot) content {
	return content{s.Root, s.Bridges, s.Ports, s.Interfaces, s.Managers}
}

// TestFollowersAgree carries out random transactions: who followed them, by either way of being
// told, knows what a client knows that has just come.
func TestFollowersAgree(t *testing.T) {
	t.Parallel()
	address := database(t, asItIs)
	writer := dial(t, ovsdb.Options{Address: address})
	if _, err := writer.Transact(t.Context(), ovsdb.Insert(ovs.Database, "", ovsdb.Row{})); err != nil {
		t.Fatal(err)
	}
	followers := []*ovs.Client{writer, dial(t, ovsdb.Options{Address: oldServer(t, address)})}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 5).Draw(rt, "transactions") {
			if _, err := writer.Transact(t.Context(), randomOps(rt, writer.Snapshot())...); err != nil {
				rt.Fatal(err)
			}
		}
		late, err := ovs.Dial(t.Context(), ovsdb.Options{Address: address})
		if err != nil {
			rt.Fatal(err)
		}
		defer late.Close()
		want := rows(late.Snapshot())
		for i, f := range followers {
			got, err := f.Wait(within(t, 5*time.Second), func(s *ovs.Snapshot) bool { return reflect.DeepEqual(rows(s), want) })
			if err != nil {
				have, _ := json.Marshal(rows(got))
				should, _ := json.Marshal(want)
				rt.Fatalf("follower %d knows\n%s, not\n%s", i, have, should)
			}
		}
	})
}

// randomOps changes rows of several tables in all the ways that databases tell differently.
func randomOps(t *rapid.T, s *ovs.Snapshot) []ovsdb.Op {
	e := ovs.NewEdit(s, ours)
	name := func(of string) string { return fmt.Sprintf("%s%d", of, rapid.IntRange(0, 4).Draw(t, of)) }
	text := rapid.StringMatching(`[a-c]{0,2}`)
	keys := func(label string) map[string]string {
		return rapid.MapOfN(rapid.StringMatching(`[k-m]`), text, 0, 3).Draw(t, label)
	}
	at := name("br")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		_ = e.EnsureBridge(ovs.BridgeSpec{Name: at, DatapathType: text.Draw(t, "type"), ExternalIDs: keys("ids"), OtherConfig: keys("other"),
			FailMode: rapid.SampledFrom([]string{"", "standalone", "secure"}).Draw(t, "mode")})
	case 1:
		_ = e.DeleteBridge(at)
	case 2:
		_ = e.EnsurePort(at, ovs.PortSpec{Name: name("p"), Type: rapid.SampledFrom([]string{"", "gre", "vxlan"}).Draw(t, "type"), Options: keys("options"),
			BFD: keys("bfd"), ExternalIDs: keys("ids"), InterfaceIDs: keys("interface ids"), Tag: rapid.Int64Range(0, 3).Draw(t, "tag"),
			Protected: rapid.Bool().Draw(t, "protected")})
	case 3:
		_ = e.DeletePort(name("p"))
	case 4:
		e.FlushMACs(at)
	case 5:
		e.EnsureManager("ptcp:" + fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "port")))
		e.KeepManagers("ptcp:1")
	}
	ops := e.Ops()
	if rapid.Bool().Draw(t, "vlans") {
		vlans := ovsdb.Set{}
		for _, v := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 3, rapid.ID[int]).Draw(t, "flood_vlans") {
			vlans = append(vlans, v)
		}
		ops = append(ops, ovsdb.Update("Bridge", []ovsdb.Condition{{"name", "==", name("br")}}, ovsdb.Row{"flood_vlans": vlans}))
	}
	return append(ops, ovsdb.Update(ovs.Database, nil, ovsdb.Row{"external_ids": ovsdb.Strings(keys("root ids"))}))
}

// TestResume has a server of a cluster, which keeps its history, tell only what happened since the
// connection was lost.
func TestResume(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		t.Skipf("this test reads the schema of Open vSwitch: install openvswitch-switch (%v)", err)
	}
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	since := make(chan string, 2)
	answers := []string{
		`[false,"T1",{"Bridge":{"b1":{"initial":{"name":"one"}},"b2":{"initial":{"name":"two"}}}}]`,
		`[true,"T3",{"Bridge":{"b2":{"delete":null},"b3":{"insert":{"name":"three"}}}}]`,
	}
	go func() {
		for _, answer := range answers {
			stream, err := l.Accept()
			if err != nil {
				return
			}
			in := json.NewDecoder(stream)
			for {
				var m struct {
					ID     json.RawMessage
					Method string
					Params []json.RawMessage
				}
				if in.Decode(&m) != nil {
					break
				}
				switch m.Method {
				case "get_schema":
					fmt.Fprintf(stream, `{"id":%s,"result":%s,"error":null}`, m.ID, raw)
					continue
				case "monitor_cond_since":
					since <- string(m.Params[3])
					fmt.Fprintf(stream, `{"id":%s,"result":%s,"error":null}`, m.ID, answer)
					io.WriteString(stream, `{"method":"update3","params":["heddle","T2",{"Bridge":{"b1":{"modify":{"fail_mode":"secure"}}}}],"id":null}`)
				}
				if answer == answers[0] {
					break // and the connection is lost
				}
			}
			stream.Close()
		}
	}()
	c, err := ovs.Open(ovsdb.Options{Address: "unix:" + dir + "/sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	snap, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return s.Bridge("three") != nil && s.Lost == nil })
	if err != nil {
		t.Fatal(err)
	}
	if b := snap.Bridge("one"); snap.Bridge("two") != nil || b == nil || b.FailMode != "secure" {
		t.Errorf("after it came back: one is %+v, two is %+v", b, snap.Bridge("two"))
	}
	for _, want := range []string{`"00000000-0000-0000-0000-000000000000"`, `"T2"`} {
		if got := <-since; got != want {
			t.Errorf("it was asked for what happened since %s, want %s", got, want)
		}
	}
}

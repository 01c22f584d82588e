package datapath

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// TestFullCache fills the cache many times over: every install succeeds, idle flows go, the busy
// one stays, and the log says so.
func TestFullCache(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := labOf(t, open(t, func(o *Options) {
		o.MaxFlows = 64
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	}), PortOptions{})
	busy := udp4(nil)
	key := l.keyOf(busy)
	l.install(Flow{Key: key, Out: Output{Port: l.out}})
	other := key
	for i := range 640 {
		other.SrcPort = uint16(2000 + i)
		l.install(Flow{Key: other, Out: Output{Port: l.out}})
		if i%8 == 0 {
			nextTick(t) // the clock of last use is coarse
			l.workload(busy)
		}
	}
	if _, ok, err := l.Lookup(key); err != nil || !ok {
		t.Errorf("the busy flow: %v, %v; want it kept", ok, err)
	}
	if _, ok, err := l.Lookup(other); err != nil || !ok {
		t.Errorf("the last flow: %v, %v; want it there", ok, err)
	}
	if l.Evicted() < 500 {
		t.Errorf("%d flows evicted, want more than 500", l.Evicted())
	}
	if n := strings.Count(log.String(), "flow cache is full"); n != 1 {
		t.Errorf("the log tells %d times that the cache is full, want once:\n%s", n, log.String())
	}
	many := make([]Flow, 100)
	for i := range many {
		many[i] = Flow{Key: key}
		many[i].SrcPort = uint16(i)
	}
	if err := l.Install(many); err != nil {
		t.Errorf("more at once than fit: %v", err)
	}
}

// nextTick waits until the coarse clock has moved.
func nextTick(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for start := coarseNow(); coarseNow() == start; {
		if ctx.Err() != nil {
			t.Fatal("the coarse clock stands still")
		}
	}
}

func TestDumpAndDelete(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	want := map[Key]Flow{}
	var flows []Flow
	for i := range 300 {
		k := l.keyOf(udp4(nil))
		if i%2 == 1 {
			k = l.keyOf(udp6(nil))
		}
		k.SrcPort = uint16(i)
		f := Flow{Key: k, Out: []Output{{}, {Port: l.out}, {Tunnel: l.tunnel, TunnelKey: testKey}}[i%3], Cookie: uint64(i), Tags: l.Tags(Slot(i))}
		want[k] = f
		flows = append(flows, f)
	}
	if err := l.Install(flows); err != nil {
		t.Fatal(err)
	}
	got := map[Key]Flow{}
	if err := l.Dump(func(s FlowState) bool { got[s.Key] = s.Flow; return true }); err != nil {
		t.Fatal(err)
	}
	compare(t, "flows", got, want)
	n := 0
	if err := l.Dump(func(FlowState) bool { n++; return n < 5 }); err != nil || n != 5 {
		t.Errorf("Dump went on after false: %d calls, %v", n, err)
	}
	for k := range want {
		if err := l.Delete(k, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Dump(func(s FlowState) bool { t.Errorf("left: %+v", s); return true }); err != nil {
		t.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d := openWith(t, opts)
	table, err := d.Table("connections", 3, 2, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(10) {
		if err := table.Put([]byte{i, 0, 0}, []byte{i, 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Put([]byte{99, 0, 0}, []byte{0, 0}); !errors.Is(err, ErrTableFull) {
		t.Errorf("put into a full table: %v, want %v", err, ErrTableFull)
	}
	if err := table.Delete([]byte{0, 0, 0}, []byte{77, 0, 0}); err != nil {
		t.Error(err)
	}
	if v, err := table.Get([]byte{0, 0, 0}); v != nil || err != nil {
		t.Errorf("deleted entry: %v, %v", v, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := openWith(t, opts)
	if table, err = again.Table("connections", 3, 2, 10); err != nil {
		t.Fatal(err)
	}
	seen := map[byte]byte{}
	if err := table.Each(func(k, v []byte) bool { seen[k[0]] = v[0]; return true }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 9 || seen[5] != 5 {
		t.Errorf("after a restart the table holds %v, want 1 to 9", seen)
	}
	if table, err = again.Table("connections", 4, 2, 10); err != nil {
		t.Fatal(err)
	}
	if err := table.Each(func(k, v []byte) bool { t.Errorf("%v is left in a table of other sizes", k); return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Table("../x", 1, 1, 1); err == nil {
		t.Error("a table was named ../x")
	}
}

// TestNameInUse opens a datapath in another namespace under the name of one that is open.
func TestNameInUse(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d := openWith(t, opts)
	other := testOptions(t)
	other.Name = opts.Name
	if second, err := Open(other); err == nil || !strings.Contains(err.Error(), "an agent named "+opts.Name+" runs on this machine") {
		t.Errorf("open a name in use: %v, %v", second, err)
	}
	if err := Cleanup(other); err == nil || !strings.Contains(err.Error(), "runs on this machine") {
		t.Errorf("clean a name in use: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openWith(t, opts).Close(); err != nil {
		t.Error(err)
	}
}

// TestOtherLayout finds pinned maps of an older version: it starts empty and says so.
func TestOtherLayout(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	var log bytes.Buffer
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	old := filepath.Join("/sys/fs/bpf/heddle", opts.Name, "v0")
	if err := mountBPFFS("/sys/fs/bpf"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(old, "flows4")); err != nil {
		t.Fatal(err)
	}
	openWith(t, opts)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("maps of the old layout: %v, want them gone", err)
	}
	if !strings.Contains(log.String(), "another layout") {
		t.Errorf("the log does not tell of the other layout:\n%s", log.String())
	}
}

// TestOtherSize opens with another number of flows than before: flows stay as far as they find
// room, and ports.
func TestOtherSize(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	var log bytes.Buffer
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := openWith(t, opts)
	l := labOf(t, d, PortOptions{})
	key := l.keyOf(udp4(nil))
	for i := range uint16(10) {
		key.SrcPort = i
		l.install(Flow{Key: key, Out: Output{Port: l.out}})
	}
	ports := d.Ports()
	for i := range ports { // no program was attached, so no interface is found
		ports[i].Interface = ""
	}
	for _, c := range []struct {
		most, want int
		said       string
	}{
		{2 * opts.MaxFlows, 10, "entries were carried over"},
		{4, 4, "without_room=6"},
	} {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		opts.MaxFlows = c.most
		d = openWith(t, opts)
		flows := 0
		if err := d.Dump(func(s FlowState) bool { flows++; return true }); err != nil {
			t.Fatal(err)
		}
		if flows != c.want || !strings.Contains(log.String(), c.said) {
			t.Errorf("with room for %d: %d flows, want %d, and %q in the log:\n%s", c.most, flows, c.want, c.said, log.String())
		}
		compare(t, "ports", d.Ports(), ports)
	}
}

// TestFlowsOfOtherSize finds flows of a version that had no rewrites: those start anew, the rest
// stays, and the log says so.
func TestFlowsOfOtherSize(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	var log bytes.Buffer
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := openWith(t, opts)
	labOf(t, d, PortOptions{})
	ports, tags, root := d.Ports(), d.Tags(7), d.pins.maps()
	table, err := d.Table("connections", 3, 2, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(table.Put([]byte{1, 2, 3}, []byte{4, 5}), d.Close()); err != nil {
		t.Fatal(err)
	}
	old := map[string]uint32{"flows4": 32, "flows6": 56}
	for name, keySize := range old {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, Flags: flagNoPrealloc, KeySize: keySize, ValueSize: 96, MaxEntries: uint32(opts.MaxFlows)})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		path := filepath.Join(root, name)
		if err := errors.Join(m.Put(make([]byte, keySize), make([]byte, 96)), os.Remove(path), m.Pin(path)); err != nil {
			t.Fatal(err)
		}
	}
	l := labOf(t, openWith(t, opts), PortOptions{})
	if err := l.Dump(func(s FlowState) bool { t.Errorf("left: %+v", s); return true }); err != nil {
		t.Fatal(err)
	}
	for i := range ports { // no program was attached, so no interface is found
		ports[i].Interface = ""
	}
	compare(t, "ports", l.Ports(), ports)
	compare(t, "epochs", l.Tags(7), tags)
	if table, err = l.Table("connections", 3, 2, 10); err != nil {
		t.Fatal(err)
	}
	if v, err := table.Get([]byte{1, 2, 3}); err != nil || !bytes.Equal(v, []byte{4, 5}) {
		t.Errorf("a connection of the earlier agent: %v, %v", v, err)
	}
	for name := range old {
		if !strings.Contains(log.String(), "map="+name) {
			t.Errorf("the log does not name %s:\n%s", name, log.String())
		}
	}
	frame := udp4(nil)
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}})
	if verdict, _ := l.workload(frame); verdict != tcxRedirect {
		t.Errorf("a flow in the new map: verdict %d, want redirect", verdict)
	}
}

func TestOptionsAndNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a/b", "..", "a.b", strings.Repeat("x", 65)} {
		if _, err := Open(Options{Name: name}); err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("Open with name %q: %v, want an error about the name", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	for name, err := range map[string]error{
		"IPv6 underlay":        l.AttachUnderlay("lo", ip6A),
		"no tunnel address":    l.AttachUnderlay("lo"),
		"no such underlay":     l.AttachUnderlay("nowhere", hostIP),
		"port without name":    second(l.AttachPort("", "lo", PortOptions{})),
		"reserved tunnel key":  second(l.AttachPort("x", "lo", PortOptions{TunnelKey: StateKey})),
		"IPv6 tunnel":          second(l.SetTunnel(TunnelPath{Local: hostIP, Remote: ip6B, MTU: 1500})),
		"tunnel without MTU":   second(l.SetTunnel(TunnelPath{Local: hostIP, Remote: farIP})),
		"send nowhere":         l.Send(Output{}, udp4(nil), Offload{}),
		"send to gone port":    l.Send(Output{Port: 99}, udp4(nil), Offload{}),
		"send a stump":         l.Send(Output{Port: l.out}, []byte{1, 2, 3}, Offload{}),
		"state to gone tunnel": l.SendState(99, []byte("x")),
		"mixed addresses":      l.Install([]Flow{{Key: Key{Src: ipA, Dst: ip6B}}}),
		"no addresses":         l.Install([]Flow{{}}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var tooBig *TooBigError
	if err := l.Send(Output{Tunnel: l.tunnel, TunnelKey: 5}, udp4(make([]byte, 1450)), Offload{}); !errors.As(err, &tooBig) || tooBig.MTU != 1450 {
		t.Errorf("send a packet of 1478 bytes into a tunnel: %v, want too big for 1450", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestFairQueue serves ports in turn, state messages first, and each port's frames in order.
func TestFairQueue(t *testing.T) {
	t.Parallel()
	var q fairQueue
	push := func(port Port, n int, reason Reason) {
		q.push(&item{upcall: Upcall{Port: port, Length: n, Reason: reason}})
	}
	for i := range 5 {
		push(1, i, Miss) // floods
	}
	push(2, 0, Miss)
	push(3, 0, Miss)
	push(3, 1, Miss)
	push(0, 9, State)
	var got []string
	pop := func() {
		u := q.pop().upcall
		got = append(got, string('0'+rune(u.Port))+"."+string('0'+rune(u.Length)))
	}
	for range 4 {
		pop()
	}
	push(2, 1, Miss)
	push(0, 8, State)
	for !q.empty() {
		pop()
	}
	compare(t, "order", strings.Join(got, " "), "0.9 1.0 2.0 3.0 0.8 1.1 3.1 2.1 1.2 1.3 1.4")
	if q.pop() != nil || len(q.lanes) != 0 {
		t.Errorf("the empty queue holds %d lanes", len(q.lanes))
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	needRoot(t)
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

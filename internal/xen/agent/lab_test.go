package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// testOptions are those of an agent that a test starts as a process. MoveTo, if set, is what its
// Move accepts as token.
type testOptions struct {
	Options
	MoveTo string
}

func TestMain(m *testing.M) {
	storetest.BeAgent(func(ctx context.Context, st *backend.Etcd, log *slog.Logger, o testOptions) error {
		o.Store, o.Log = st, log
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		if o.MoveTo != "" {
			o.Move = func(_ context.Context, token string) (func(), error) {
				if token != o.MoveTo {
					return nil, errors.New("this token is not good")
				}
				return stop, nil
			}
		}
		return New(o.Options).Run(ctx)
	})
	os.Exit(m.Run())
}

const timeout = 20 * time.Second

// lab is a pool in a store, and hosts with Open vSwitch in namespaces, whose agents are processes.
type lab struct {
	t     testing.TB
	dir   string
	st    *backend.Etcd
	db    *records.DB
	hosts []*host
	// closeStore stops the store; its data stays.
	closeStore func()
}

// host is one of them. Its switch is looked at from outside.
type host struct {
	*netlab.OVSHost
	lab     *lab
	ref     string
	options testOptions
	sw      *ovs.Client
	log     *netlab.Log
	cmd     *exec.Cmd
}

// newLab makes a lab. Agents do not run yet.
func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	network := netlab.OVSForTest(t, hosts)
	l := &lab{t: t, dir: t.TempDir()}
	l.openStore()
	t.Cleanup(func() { l.closeStore() })
	l.write(func(tx *records.Tx) error { return objects.Table("pool").Put(tx, l.object("pool", nil)) })
	for _, o := range network.Hosts() {
		id := uuid.NewString()
		h := &host{OVSHost: o, lab: l, ref: HostRef(id), log: &netlab.Log{},
			options: testOptions{Options: Options{HostID: id, HostName: o.Name, Version: "test", OVSDB: o.DB(), Datapath: "netdev"}}}
		sw, err := ovs.Open(ovsdb.Options{Address: o.DB()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sw.Close)
		h.sw = sw
		t.Cleanup(func() {
			h.stop()
			if t.Failed() {
				t.Logf("agent of %s:\n%s", h.Name, h.log)
			}
		})
		l.hosts = append(l.hosts, h)
	}
	return l
}

// openStore starts the store over the lab's data, and a copy of it.
func (l *lab) openStore() {
	l.t.Helper()
	st, err := backend.Open(l.t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: l.dir, Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		l.t.Fatal(err)
	}
	rep := replica.New(st, replica.Options{Watch: "/heddle/xen/"}, objects.Tables()...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rep.Run(ctx) }()
	l.st, l.db = st, records.NewDB(st, rep)
	l.closeStore = func() {
		l.closeStore = func() {}
		stop()
		if err := errors.Join(<-done, st.Close()); err != nil {
			l.t.Error(err)
		}
	}
	<-rep.Ready()
}

// start runs the host's agent as a process in its namespace.
func (h *host) start() {
	h.lab.t.Helper()
	h.cmd = storetest.StartAgent(h.lab.t, h.Space.Start, h.lab.dir, h.options, h.log)
}

// end sends the agent a signal and waits for its end.
func (h *host) end(signal os.Signal) {
	if h.cmd == nil {
		return
	}
	if err := h.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		h.lab.t.Error(err)
	}
	if err := h.cmd.Wait(); err != nil && signal == syscall.SIGTERM {
		h.lab.t.Errorf("agent of %s: %v", h.Name, err)
	}
	h.cmd = nil
}

func (h *host) stop() { h.end(syscall.SIGTERM) }
func (h *host) kill() { h.end(os.Kill) }

// ready starts the agent and waits until the pool knows of it.
func (h *host) ready() {
	h.lab.t.Helper()
	h.start()
	h.lab.until("report of "+h.Name, func() bool { r := h.report(); return r != nil && r.Backend == openVSwitch })
}

// view reads the pool as it is now.
func (l *lab) view() *records.Snap {
	l.t.Helper()
	snap, err := l.db.View(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return snap
}

func (l *lab) write(f func(tx *records.Tx) error) {
	l.t.Helper()
	if _, err := l.db.Update(l.t.Context(), f); err != nil {
		l.t.Fatal(err)
	}
}

// until waits until cond is true.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Fatal(err)
	}
}

func (h *host) report() *objects.HostReport {
	r, _ := objects.HostReports.Peek(h.lab.view(), h.ref)
	return r
}

func (h *host) bridgeReport(name string) *objects.BridgeReport {
	r, _ := objects.BridgeReports.Peek(h.lab.view(), h.ref+"/"+name)
	return r
}

// object makes one of a class; fields override its defaults.
func (l *lab) object(class string, fields model.Record) *objects.Object {
	o := &objects.Object{Class: class, Ref: "OpaqueRef:" + uuid.NewString(), Fields: model.New(class)}
	o.Fields["uuid"] = uuid.NewString()
	for k, v := range fields {
		o.Fields[k] = v
	}
	return o
}

// network makes a tunnel network with that bridge.
func (l *lab) network(bridge string, otherConfig map[string]string) *objects.Object {
	l.t.Helper()
	if otherConfig == nil {
		otherConfig = map[string]string{}
	}
	n := l.object("network", model.Record{"name_label": bridge, "bridge": bridge, "MTU": int64(1400), "other_config": otherConfig})
	l.write(func(tx *records.Tx) error { return objects.Table("network").Put(tx, n) })
	return n
}

// tunnel gives the host a tunnel on the network, plugged, as the server does once the host has made
// the bridge.
func (h *host) tunnel(network *objects.Object) (tunnel, access *objects.Object) {
	h.lab.t.Helper()
	access = h.lab.object("PIF", model.Record{"device": "tunnel" + network.Text("bridge"), "network": network.Ref, "host": h.ref, "MAC": "02:00:00:00:aa:01", "currently_attached": true})
	tunnel = h.lab.object("tunnel", model.Record{"access_PIF": access.Ref})
	h.lab.write(func(tx *records.Tx) error {
		return errors.Join(objects.Table("PIF").Put(tx, access), objects.Table("tunnel").Put(tx, tunnel))
	})
	return tunnel, access
}

// change stores an object with other fields.
func (l *lab) change(o *objects.Object, fields model.Record) {
	l.t.Helper()
	l.write(func(tx *records.Tx) error {
		old, err := objects.Table(o.Class).Get(tx, o.Ref)
		if err != nil {
			return err
		}
		now := &objects.Object{Class: o.Class, Ref: o.Ref, Fields: model.Record{}}
		for k, v := range old.Fields {
			now.Fields[k] = v
		}
		for k, v := range fields {
			now.Fields[k] = v
		}
		return objects.Table(o.Class).Put(tx, now)
	})
}

func (l *lab) delete(all ...*objects.Object) {
	l.t.Helper()
	l.write(func(tx *records.Tx) error {
		for _, o := range all {
			if err := objects.Table(o.Class).Delete(tx, o.Ref); err != nil {
				return err
			}
		}
		return nil
	})
}

// bridge finds a bridge of the host's switch; nil without.
func (h *host) bridge(name string) *ovs.Bridge { return h.sw.Snapshot().Bridge(name) }

// vsctl runs ovs-vsctl.
func (h *host) vsctl(args ...string) string {
	h.lab.t.Helper()
	out, err := h.Vsctl(args...)
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// vm makes a VM that runs on the host, with a VIF on the network; its device is not there yet.
func (h *host) vm(domid int64, network *objects.Object) (vm, vif *objects.Object) {
	h.lab.t.Helper()
	vm = h.lab.object("VM", model.Record{"name_label": "vm", "resident_on": h.ref, "domid": domid, "power_state": "Running"})
	vif = h.lab.object("VIF", model.Record{"VM": vm.Ref, "network": network.Ref, "device": "0", "MAC": "02:00:00:00:00:0a", "currently_attached": true})
	h.lab.write(func(tx *records.Tx) error {
		return errors.Join(objects.Table("VM").Put(tx, vm), objects.Table("VIF").Put(tx, vif))
	})
	return vm, vif
}

// plug makes a VM's device: the other end of a namespace's eth0 with that address.
func (h *host) plug(device, name, address string) *netlab.Namespace {
	h.lab.t.Helper()
	space, port, err := h.Machine(name, address)
	if err != nil {
		h.lab.t.Fatal(err)
	}
	h.Space.MustIP(h.lab.t, "link set "+port+" down", "link set "+port+" name "+device, "link set "+device+" up")
	return space
}

// reaches pings until an answer comes.
func (l *lab) reaches(from *netlab.Namespace, address string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	if err := from.Reach(ctx, address); err != nil {
		l.t.Fatal(err)
	}
}

// logged waits until the agent's log has a text.
func (h *host) logged(text string) {
	h.lab.t.Helper()
	h.lab.until(h.Name+" to log "+text, func() bool { return strings.Contains(h.log.String(), text) })
}

// dial connects from inside the host's namespace.
func (h *host) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = h.Space.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

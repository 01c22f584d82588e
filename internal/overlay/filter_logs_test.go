package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/topology"
)

// logRecord is a line of a log's file, as its readers see it.
type logRecord struct {
	Event, Log, Port, Direction, Rule, Src, Dst, Host string
	InPort                                            string `json:"in_port"`
	OutPort                                           string `json:"out_port"`
	Proto, Suppressed                                 int
	DstPort                                           int `json:"dport"`
}

// recorded returns the records of a log on a host that a condition is true for.
func (h *testHost) recorded(log string, is func(*logRecord) bool) (all []logRecord) {
	h.lab.t.Helper()
	f, err := os.Open(filepath.Join(h.options.Logs.Dir, "security_group", log+".log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		h.lab.t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var r logRecord
		if err := d.Decode(&r); errors.Is(err, io.ErrUnexpectedEOF) {
			break // it is being written
		} else if err != nil {
			h.lab.t.Fatal(err)
		}
		if is(&r) {
			all = append(all, r)
		}
	}
	return all
}

// awaitRecorded waits for a record, and returns the first.
func (h *testHost) awaitRecorded(what, log string, is func(*logRecord) bool) (r logRecord) {
	h.lab.t.Helper()
	h.lab.wait("a record of "+what, func() bool {
		all := h.recorded(log, is)
		if len(all) > 0 {
			r = all[0]
		}
		return len(all) > 0
	})
	return r
}

// logOp makes a log in the store, or removes it if it is not enabled.
func (l *lab) logOp(x *neutron.Log) store.Op {
	l.t.Helper()
	owner := topology.Owner{Kind: "log", ID: x.ID}
	if !x.Enabled {
		return l.op(owner, nil)
	}
	b := translate.Log(x)
	return l.op(owner, &b)
}

// fillDisk mounts a tiny file system on a directory and returns functions that use it up, and that
// give it back.
func fillDisk(t *testing.T, dir string) (fill, empty func()) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	return func() {
			t.Helper()
			f, err := os.Create(filler)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for err == nil {
				_, err = f.Write(make([]byte, 512))
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}, func() {
			t.Helper()
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
}

// TestLogsOfSecurityGroups: a connection that a group lets in, and one that it does not, are
// recorded on the hosts where they come in, for the logs that ask for it; one that is not enabled
// gets nothing, and a full disk stops no packet.
func TestLogsOfSecurityGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	for _, h := range l.hosts {
		h.options.Logs.Dir = t.TempDir()
	}
	first, second := l.hosts[0], l.hosts[1]
	fill, empty := fillDisk(t, first.options.Logs.Dir)
	n := l.network("logged")
	group := l.group(append(everything()[:2], allow("ingress", "IPv4", "tcp", 80))...)
	web, client := n.port(second, group), n.port(first, l.group(everything()...))
	makeLog := func(x neutron.Log) *neutron.Log {
		x.ID, x.ResourceType, x.Enabled = uuid.NewString(), neutron.LogSecurityGroup, true
		l.commit(l.logOp(&x))
		return &x
	}
	ofGroup := makeLog(neutron.Log{ResourceID: group.ID, Event: neutron.LogAll})
	ofPort := makeLog(neutron.Log{TargetID: web.port.ID, Event: neutron.LogAccept})
	l.start()
	for _, m := range []*machine{web, client} {
		m.plug()
		m.bind()
		m.served()
	}
	web.listen("tcp4", 80)
	connect := func() {
		t.Helper()
		c, err := client.dial(web.v4, 80, 10*short)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := exchange(c, 1000, 10*short); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(port int) {
		t.Helper()
		if c, err := client.dial(web.v4, port, short); err == nil {
			c.Close()
			t.Errorf("port %d is open", port)
		}
	}

	connect()
	refused(81)
	about := func(event string, port int) func(*logRecord) bool {
		return func(r *logRecord) bool { return r.Event == event && r.DstPort == port }
	}
	check := func(what string, got logRecord, event, log, direction, rule string, host *testHost) {
		t.Helper()
		want := logRecord{Event: event, Log: log, Port: web.port.ID, Direction: direction, Rule: rule, Proto: 6, Host: host.name, DstPort: got.DstPort,
			Src: client.v4.String(), Dst: web.v4.String(), InPort: client.port.ID, OutPort: web.port.ID}
		if direction == "egress" {
			want.Src, want.Dst, want.InPort, want.OutPort = want.Dst, want.Src, web.port.ID, ""
		}
		if rule == "" {
			got.Rule = ""
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("accepted", first.awaitRecorded("an accepted connection", ofGroup.ID, about("ACCEPT", 80)), "ACCEPT", ofGroup.ID, "ingress", group.Rules[2].ID, first)
	check("dropped", first.awaitRecorded("a dropped connection", ofGroup.ID, about("DROP", 81)), "DROP", ofGroup.ID, "ingress", "", first)
	check("accepted at the port", first.awaitRecorded("an accepted connection at the port", ofPort.ID, about("ACCEPT", 80)), "ACCEPT", ofPort.ID, "ingress", group.Rules[2].ID, first)
	isReply := func(r *logRecord) bool { return r.Direction == "egress" }
	check("reply", second.awaitRecorded("a reply", ofPort.ID, isReply), "ACCEPT", ofPort.ID, "egress", "", second)
	if wrong := first.recorded(ofPort.ID, func(r *logRecord) bool { return r.Event != "ACCEPT" }); len(wrong) > 0 {
		t.Errorf("of a log of accepted packets: %+v", wrong)
	}

	fill()
	lost := func() (n int) {
		for _, v := range first.agent.engine.filterLogs.Figures() {
			if v.Label("reason") == "not written" {
				n = int(v.Value)
			}
		}
		return n
	}
	l.wait("a record that cannot be written", func() bool {
		connect()
		refused(83)
		return lost() > 0
	})
	connect()
	empty()
	isNext := func(r *logRecord) bool { return r.Suppressed > 0 }
	l.wait("records that count those that were lost", func() bool {
		connect()
		return len(first.recorded(ofGroup.ID, isNext)) > 0
	})

	ofGroup.Enabled = false
	instead := &neutron.Log{Standard: neutron.Standard{ID: uuid.NewString()}, ResourceID: group.ID, Event: neutron.LogDrop, Enabled: true}
	l.commit(l.logOp(ofGroup), l.logOp(instead))
	var drops []int
	port := 1000
	l.wait("records of the log in place of the other", func() bool {
		port++
		refused(port)
		for _, r := range first.recorded(instead.ID, func(r *logRecord) bool { return r.DstPort > 1000 && !slices.Contains(drops, r.DstPort) }) {
			drops = append(drops, r.DstPort)
		}
		return len(drops) > 2
	})
	for _, p := range drops[:2] {
		if got := first.recorded(ofGroup.ID, about("DROP", p)); len(got) > 0 {
			t.Errorf("a log that is not enabled has records: %s", fmt.Sprint(got))
		}
	}
}

package filterlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// writerLab is a writer with its own time, of which Run does not work.
type writerLab struct {
	*Writer
	t      *testing.T
	now    time.Time
	report bytes.Buffer
}

func newWriterLab(t *testing.T, o Options) *writerLab {
	w := &writerLab{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "heddle")
	}
	o.Host, o.Now, o.Log = "host-1", func() time.Time { return w.now }, slog.New(slog.NewTextHandler(&w.report, nil))
	w.Writer = New(o)
	t.Cleanup(w.closeAll)
	return w
}

// drain writes what was given.
func (w *writerLab) drain() {
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writerLab) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.opts.Dir, "security_group", name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func dropped(log string) flow.Logged {
	return flow.Logged{Log: log, PortID: "p", TenantID: "t", Ingress: true, Chain: "c", Rule: "r", InPort: "in", OutPort: "out", Proto: packet.ProtoTCP,
		Src: netip.MustParseAddr("10.0.1.10"), Dst: netip.MustParseAddr("10.0.2.5"), HasPorts: true, SrcPort: 1000, DstPort: 80}
}

// TestLines: a record is a line of JSON; directories and files are for their owner and group.
func TestLines(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{})
	echo := dropped("x")
	echo.Accepted, echo.Ingress, echo.Proto, echo.SrcPort, echo.DstPort, echo.InPort, echo.OutPort = true, false, packet.ProtoICMP, 8, 0, "p", ""
	later := dropped("x")
	later.HasPorts, later.SrcPort, later.DstPort, later.Frag = false, 0, 0, packet.FragLater
	w.Add([]flow.Logged{dropped("x"), echo, later})
	w.drain()
	const want = `{"time":"2026-01-02T03:04:05.123456Z","event":"DROP","log":"x","tenant":"t","port":"p","direction":"ingress","chain":"c","rule":"r","proto":6,"src":"10.0.1.10","dst":"10.0.2.5","sport":1000,"dport":80,"in_port":"in","out_port":"out","host":"host-1","suppressed":0}
{"time":"2026-01-02T03:04:05.123456Z","event":"ACCEPT","log":"x","tenant":"t","port":"p","direction":"egress","chain":"c","rule":"r","proto":1,"src":"10.0.1.10","dst":"10.0.2.5","sport":0,"dport":0,"icmp":[8,0],"in_port":"p","host":"host-1","suppressed":0}
{"time":"2026-01-02T03:04:05.123456Z","event":"DROP","log":"x","tenant":"t","port":"p","direction":"ingress","chain":"c","rule":"r","proto":6,"src":"10.0.1.10","dst":"10.0.2.5","sport":0,"dport":0,"frag":"later","in_port":"in","out_port":"out","host":"host-1","suppressed":0}
`
	if got := w.read("x.log"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, mode := range map[string]os.FileMode{"": 0o750, "x.log": 0o640} {
		st, err := os.Stat(filepath.Join(w.opts.Dir, "security_group", name))
		if err != nil || st.Mode().Perm()&^mode != 0 {
			t.Errorf("%q: %v, %v; want at most %v", name, st.Mode(), err, mode)
		}
	}
}

// TestHalfALine: half of a line that a killed agent has left goes, and what comes next is whole.
func TestHalfALine(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{})
	w.Add([]flow.Logged{dropped("x")})
	w.drain()
	w.closeAll()
	line := w.read("x.log")
	for _, left := range []string{line, line + line[:len(line)-1], line[:1], ""} {
		if err := os.WriteFile(w.path(fileOf(groupFolder, "x")), []byte(left), 0o640); err != nil {
			t.Fatal(err)
		}
		w.Add([]flow.Logged{dropped("x")})
		w.drain()
		w.closeAll()
		if got, want := w.read("x.log"), left[:strings.LastIndex(left, "\n")+1]+line; got != want {
			t.Errorf("after %q the file has %q", left, got)
		}
	}
}

// TestRate: a log gets a burst and then one record at a time; the next record counts those left
// out, and another log has a share of its own.
func TestRate(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{Rate: 10, Burst: 5})
	for range 100 {
		w.Add([]flow.Logged{dropped("x")})
	}
	w.Add([]flow.Logged{dropped("y")})
	w.now = w.now.Add(100 * time.Millisecond)
	for range 2 {
		w.Add([]flow.Logged{dropped("x")})
	}
	w.now = w.now.Add(time.Hour)
	w.Add([]flow.Logged{dropped("x")})
	w.drain()
	var suppressed []int
	for line := range strings.Lines(w.read("x.log")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		suppressed = append(suppressed, r.Suppressed)
	}
	if got, want := fmt.Sprint(suppressed), "[0 0 0 0 0 95 1]"; got != want {
		t.Errorf("left out before each record: %s, want %s", got, want)
	}
	if n := strings.Count(w.read("y.log"), "\n"); n != 1 {
		t.Errorf("%d records of the other log, want 1", n)
	}
}

// TestQueueFull: records for which there is no room are left out and counted.
func TestQueueFull(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{Rate: 1_000_000, Burst: 1_000_000})
	for range queueMost + 7 {
		w.Add([]flow.Logged{dropped("x")})
	}
	w.drain()
	w.Add([]flow.Logged{dropped("x")})
	w.drain()
	lines := strings.Split(strings.TrimSpace(w.read("x.log")), "\n")
	if last := lines[len(lines)-1]; len(lines) != queueMost+1 || !strings.Contains(last, `"suppressed":7`) {
		t.Errorf("%d lines, the last is %s; want %d, and 7 left out", len(lines), last, queueMost+1)
	}
}

// TestRotate: a full file becomes the first of the older ones, compressed, of which nine stay.
func TestRotate(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{})
	w.fileMost = 10_000
	w.Add([]flow.Logged{dropped("x")})
	w.drain()
	dir := filepath.Join(w.opts.Dir, "security_group")
	for i := range 12 {
		full := bytes.Repeat([]byte{byte('a' + i)}, int(w.fileMost))
		if err := os.WriteFile(filepath.Join(dir, "x.log"), full, 0o640); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Hour)
		w.Add([]flow.Logged{dropped("x")})
		w.drain()
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != filesMost {
		t.Fatalf("%v, %v: want %d files", entries, err, filesMost)
	}
	if n := strings.Count(w.read("x.log"), "\n"); n != 1 {
		t.Errorf("%d lines in the present file, want 1", n)
	}
	for i, want := range map[int]byte{1: 'l', 9: 'd'} {
		z, err := gzip.NewReader(strings.NewReader(w.read(fmt.Sprintf("x.log.%d.gz", i))))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(z)
		if err != nil || int64(len(b)) != w.fileMost || b[0] != want {
			t.Errorf("older file %d: %d bytes, %v; want %d of %q", i, len(b), err, w.fileMost, want)
		}
	}
}

// TestReopen: files that were renamed are left alone after Reopen, and those of logs that are gone
// are closed.
func TestReopen(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	w.Add([]flow.Logged{dropped("x")})
	w.write(<-w.queue)
	path := filepath.Join(w.opts.Dir, "security_group", "x.log")
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	w.Reopen()
	<-w.wake
	w.closeSome()
	w.Add([]flow.Logged{dropped("x")})
	w.write(<-w.queue)
	if a, b := w.read("x.log-old"), w.read("x.log"); strings.Count(a, "\n") != 1 || strings.Count(b, "\n") != 1 {
		t.Errorf("renamed file:\n%snew file:\n%s", a, b)
	}
	w.Forget("x")
	<-w.wake
	w.closeSome()
	if len(w.files) > 0 {
		t.Error("the file of a log that is gone is open")
	}
	go func() { done <- w.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDiskFull: with no space left records are left out, which is logged now and then, and there is
// no half of a line; once there is space, records are written, and count those, as does the log.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	w := newWriterLab(t, Options{Dir: dir, Rate: 1_000_000, Burst: 1_000_000})
	t.Cleanup(w.closeAll)
	for range 100 {
		w.Add([]flow.Logged{dropped("x")})
	}
	w.drain()
	whole := w.read("x.log")
	lines := strings.Count(whole, "\n")
	if lines == 0 || lines == 100 || !strings.HasSuffix(whole, "\n") {
		t.Fatalf("%d lines of 100, of which the last ends in %q", lines, whole[len(whole)-1:])
	}
	if n := strings.Count(w.report.String(), "cannot write records of logs"); n != 1 {
		t.Errorf("%d warnings in a minute, want one\n%s", n, w.report.String())
	}
	if err := CheckDir(dir); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("check of a full disk: %v", err)
	}
	if strings.Contains(w.report.String(), "written again") {
		t.Errorf("the disk is full, and the log says:\n%s", w.report.String())
	}
	if err := os.Truncate(filepath.Join(dir, "security_group", "x.log"), 0); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	w.Add([]flow.Logged{dropped("x")})
	w.drain()
	if got, want := w.read("x.log"), fmt.Sprintf(`"suppressed":%d}`, 100-lines); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
		t.Errorf("got %q, want one line with %s", got, want)
	}
	if want := fmt.Sprintf(`msg="records of logs are written again" lost=%d`, 100-lines); strings.Count(w.report.String(), want) != 1 {
		t.Errorf("the log has no line %s once:\n%s", want, w.report.String())
	}
	if err := os.Remove(filepath.Join(dir, "security_group", "x.log")); err != nil {
		t.Fatal(err)
	}
	w.closeAll()
	if err := CheckDir(dir); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("check of a disk of 16 KiB: %v", err)
	}
	if err := CheckDir(t.TempDir()); err != nil {
		t.Errorf("check of a disk with room: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the checks leave %v, %v", left, err)
	}
}

// TestFirewallLines: records of firewalls go to the file of their logging resource, each log with a
// rate of its own.
func TestFirewallLines(t *testing.T) {
	t.Parallel()
	w := newWriterLab(t, Options{})
	x := dropped("x")
	x.PortID, x.Ingress, x.TenantID, x.Resource, x.Firewall, x.RouterID = "", false, "t", "file", "fw", "r1"
	y := x
	y.Log, y.Accepted = "y", true
	w.Add([]flow.Logged{x, y})
	w.drain()
	const want = `{"time":"2026-01-02T03:04:05.123456Z","event":"DROP","log":"x","resource":"file","firewall":"fw","tenant":"t","router":"r1","chain":"c","rule":"r","proto":6,"src":"10.0.1.10","dst":"10.0.2.5","sport":1000,"dport":80,"in_port":"in","out_port":"out","host":"host-1","suppressed":0}
{"time":"2026-01-02T03:04:05.123456Z","event":"ACCEPT","log":"y","resource":"file","firewall":"fw","tenant":"t","router":"r1","chain":"c","rule":"r","proto":6,"src":"10.0.1.10","dst":"10.0.2.5","sport":1000,"dport":80,"in_port":"in","out_port":"out","host":"host-1","suppressed":0}
`
	if got := w.read("../firewall/file.log"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w.ForgetResource("file")
	w.closeSome()
	if len(w.files) > 0 {
		t.Error("the file of a resource that is gone is open")
	}
}

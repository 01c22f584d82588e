package telemetry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeJournal is a socket of the native protocol, and the stream that a unit's standard error is.
type fakeJournal struct {
	t      *testing.T
	path   string
	socket *net.UnixConn
	stderr int // the journal's end of the stream
	writer *journalWriter
}

func newFakeJournal(t *testing.T) *fakeJournal {
	t.Helper()
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(stream[0]), unix.Close(stream[1]) })
	f := &fakeJournal{t: t, path: filepath.Join(t.TempDir(), "socket"), stderr: stream[1]}
	f.writer = &journalWriter{socket: f.path, stderr: stream[0], now: time.Now}
	return f
}

// listen makes the socket, in place of the one before.
func (f *fakeJournal) listen() {
	f.t.Helper()
	f.close()
	var err error
	if f.socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.path, Net: "unixgram"}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(f.close)
}

// close takes the socket away, if there is one.
func (f *fakeJournal) close() {
	if f.socket != nil {
		_ = errors.Join(f.socket.Close(), os.Remove(f.path)) // it may have been closed before
	}
}

func (f *fakeJournal) logger(format string) *slog.Logger {
	f.t.Helper()
	h, err := newJournalHandler(f.writer, format)
	if err != nil {
		f.t.Fatal(err)
	}
	return slog.New(NewLevels(slog.LevelDebug).Handler(LimitWarnings(h)))
}

// entry returns the fields of the next entry, each as NAME=VALUE.
func (f *fakeJournal) entry() []string {
	f.t.Helper()
	raw, control := make([]byte, 1<<16), make([]byte, 64)
	if err := f.socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	n, c, _, _, err := f.socket.ReadMsgUnix(raw, control)
	if err != nil {
		f.t.Fatal(err)
	}
	if raw = raw[:n]; c > 0 {
		raw = readPassed(f.t, control[:c])
	}
	var fields []string
	for len(raw) > 0 {
		name, rest, _ := bytes.Cut(raw, []byte("\n"))
		if bytes.Contains(name, []byte("=")) {
			fields, raw = append(fields, string(name)), rest
			continue
		}
		size := binary.LittleEndian.Uint64(rest)
		fields, raw = append(fields, string(name)+"="+string(rest[8:8+size])), rest[8+size+1:]
	}
	return fields
}

// readPassed returns what is in a file that was passed, which must be sealed.
func readPassed(t *testing.T, control []byte) []byte {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	file := os.NewFile(uintptr(fds[0]), "entry")
	defer file.Close()
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil || seals != all {
		t.Errorf("seals %x, %v, want %x", seals, err, all)
	}
	raw, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// discard reads the entries that wait, and returns their number.
func (f *fakeJournal) discard() (n int) {
	f.t.Helper()
	conn, err := f.socket.SyscallConn()
	if err != nil {
		f.t.Fatal(err)
	}
	raw := make([]byte, 1<<16)
	err = conn.Control(func(fd uintptr) {
		for {
			if _, _, err := unix.Recvfrom(int(fd), raw, unix.MSG_DONTWAIT); err != nil {
				return
			}
			n++
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// printed returns what standard error has received.
func (f *fakeJournal) printed() string {
	f.t.Helper()
	var all []byte
	for raw := make([]byte, 1<<16); ; {
		n, err := unix.Read(f.stderr, raw)
		if errors.Is(err, unix.EAGAIN) {
			return string(all)
		} else if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, raw[:n]...)
	}
}

// TestJournalFields: a record is an entry with its line, level and id, and with fields of the
// attributes that operators filter by, those of its logger, too.
func TestJournalFields(t *testing.T) {
	t.Parallel()
	f := newFakeJournal(t)
	f.listen()
	log := f.logger("text")
	log.With("part", "overlay", "port", "p1").Warn("no path to host", "host", "h1\nPRIORITY=0", "network", "n1", "request", "req-1", "err", "lost")
	id := ""
	for _, e := range Events() {
		if e.Message == "no path to host" {
			id = e.ID
		}
	}
	want := []string{"PRIORITY=4", `MESSAGE=level=WARN msg="no path to host" part=overlay port=p1 host="h1\nPRIORITY=0" network=n1 request=req-1 err=lost`,
		"SYSLOG_IDENTIFIER=heddle", "MESSAGE_ID=" + id, "PORT=p1", "HOST=h1\nPRIORITY=0", "NETWORK=n1", "REQUEST_ID=req-1"}
	if got := f.entry(); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	log.WithGroup("of").Info("plain", "host", "h1")
	log.Debug("fine", "time", "now")
	log.Error("bad")
	for _, want := range [][]string{
		{"PRIORITY=6", "MESSAGE=level=INFO msg=plain of.host=h1", "SYSLOG_IDENTIFIER=heddle"},
		{"PRIORITY=7", "MESSAGE=level=DEBUG msg=fine time=now", "SYSLOG_IDENTIFIER=heddle"},
		{"PRIORITY=3", "MESSAGE=level=ERROR msg=bad", "SYSLOG_IDENTIFIER=heddle"},
	} {
		if got := f.entry(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f.logger("json").Info("plain", "host", "h1")
	if got := f.entry(); len(got) != 4 || !regexp.MustCompile(`^MESSAGE=\{"time":"[^"]+","level":"INFO","msg":"plain","host":"h1"\}$`).MatchString(got[1]) || got[3] != "HOST=h1" {
		t.Errorf("got %q", got)
	}
	if said := f.printed(); said != "" {
		t.Errorf("standard error has %q", said)
	}
	if _, err := newJournalHandler(f.writer, "xml"); err == nil {
		t.Error("took the format xml")
	}
}

// TestJournalLargeEntry: an entry that is too large for a datagram is passed as a file.
func TestJournalLargeEntry(t *testing.T) {
	t.Parallel()
	f := newFakeJournal(t)
	f.listen()
	f.logger("text").Error("panic", "stack", strings.Repeat("frame ", 200_000), "host", strings.Repeat("h", 2000))
	got := f.entry()
	if len(got) != 4 || len(got[1]) < 1_200_000 || len(got[3]) > 1100 {
		t.Errorf("%d fields: %.200q", len(got), got)
	}
}

// TestJournalAway: without the journal's socket, records go to standard error with their priority.
// The next socket is used.
func TestJournalAway(t *testing.T) {
	t.Parallel()
	f := newFakeJournal(t)
	log := f.logger("text")
	log.Warn("away")
	if got := f.printed(); got != "<4>level=WARN msg=away\n" {
		t.Errorf("standard error has %q", got)
	}
	for range 2 { // the second in place of the first
		f.listen()
		log.Info("back")
		if got := f.entry(); got[1] != "MESSAGE=level=INFO msg=back" {
			t.Errorf("got %q", got)
		}
	}
	f.close()
	log.Info("away again")
	if got := f.printed(); got != "<6>level=INFO msg=\"away again\"\n" {
		t.Errorf("standard error has %q", got)
	}
	if err := unix.Shutdown(f.stderr, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	log.Info("not taken") // and the process goes on
	if f.writer.leftOut != 1 {
		t.Errorf("%d records are counted, want 1", f.writer.leftOut)
	}
}

// TestJournalHangs: a journal that reads nothing keeps no part of the process from its work. What
// neither its socket nor standard error has room for is counted, and the number is logged later.
func TestJournalHangs(t *testing.T) {
	t.Parallel()
	f := newFakeJournal(t)
	f.listen()
	log := f.logger("text")
	const enough = 100_000
	logged := 0
	for ; f.writer.leftOut < 10 && logged < enough; logged++ {
		log.Info("busy", "filler", strings.Repeat("x", 500))
	}
	if logged == enough {
		t.Fatal("all records were taken")
	}
	printed := strings.Count(f.printed(), "<6>")
	if printed == 0 {
		t.Error("standard error has nothing")
	}
	received := f.discard()
	// A line that standard error has a part of is there, and counts as left out.
	if left := f.writer.leftOut; received+printed+left < logged || received+printed+left > logged+left {
		t.Errorf("%d of %d records received, %d printed, %d left out", received, logged, printed, left)
	}
	f.writer.now = func() time.Time { return time.Now().Add(journalPause) }
	log.Info("over")
	if got := f.entry(); got[1] != "MESSAGE=level=INFO msg=over" {
		t.Errorf("got %q", got)
	}
	if got := f.entry(); got[0] != "PRIORITY=4" || got[1] != `MESSAGE=level=WARN msg="left out log records" records=10` {
		t.Errorf("got %q", got)
	}
}

// TestEvents: ids and messages are given once, and the guide has all of them.
func TestEvents(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/guides/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var table strings.Builder
	for _, e := range Events() {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(e.ID) || seen[e.ID] || seen[e.Message] {
			t.Errorf("%s %q: want 32 hex digits, once", e.ID, e.Message)
		}
		seen[e.ID], seen[e.Message] = true, true
		table.WriteString("| `" + e.ID + "` | `" + e.Message + "` |\n")
	}
	if !strings.Contains(string(guide), "\n| `MESSAGE_ID` | message |\n|---|---|\n"+table.String()+"\n") {
		t.Errorf("docs/guides/operating.md has another table of messages than\n%s", &table)
	}
}

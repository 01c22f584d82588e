package telemetry

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"
)

const (
	journalSocket = "/run/systemd/journal/socket"
	// journalTimeout bounds the wait for a journal that takes no record.
	journalTimeout = 100 * time.Millisecond
	// journalPause is the time after such a wait in which records go to standard error at once.
	journalPause = time.Second
	// leftOutMessage is logged with the number of records that were left out.
	leftOutMessage = "left out log records"
)

// NewProcessLogger returns the logger of this process: to standard error as [NewLogger] does, or,
// where systemd has connected that with the journal, to the journal with fields. From then on the
// process goes on when the reader of its standard error has ended; Go would end it.
func NewProcessLogger(format string, levels *Levels) (*slog.Logger, error) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the write fails with EPIPE now
	// A JOURNAL_STREAM that is no device and inode is not systemd's.
	if native, err := journal.StderrIsJournalStream(); err != nil || !native {
		return NewLogger(os.Stderr, format, levels)
	}
	j := &journalWriter{socket: journalSocket, stderr: unix.Stderr, now: time.Now}
	h, err := newJournalHandler(j, format)
	if err != nil {
		return nil, err
	}
	return slog.New(levels.Handler(LimitWarnings(h))), nil
}

// journalHandler writes records to the journal: the line that [NewLogger] would write as MESSAGE,
// and attributes that operators filter by as fields. The line has the level, though the journal has
// it as PRIORITY, since journalctl does not print that; the line of the text format lacks the time.
type journalHandler struct {
	journal *journalWriter
	events  map[string]string // ids by message
	// format returns a handler that writes the line.
	format  func(io.Writer) slog.Handler
	fields  []journalField
	grouped bool // attributes that follow belong to a group, and are no fields
}

type journalField struct{ name, value string }

func newJournalHandler(j *journalWriter, format string) (*journalHandler, error) {
	opts := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: CutValue}
	if format == "text" {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
				return slog.Attr{}
			}
			return CutValue(groups, a)
		}
	}
	if _, err := newFormat(io.Discard, format, opts); err != nil {
		return nil, err
	}
	h := &journalHandler{journal: j, events: map[string]string{}, format: func(w io.Writer) slog.Handler {
		line, _ := newFormat(w, format, opts) // as above
		return line
	}}
	for _, e := range Events() {
		h.events[e.Message] = e.ID
	}
	return h, nil
}

// Enabled implements [slog.Handler].
func (h *journalHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler]. A record that neither the journal nor standard error takes is
// counted; it is no error.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	var line bytes.Buffer
	if err := h.format(&line).Handle(ctx, r); err != nil {
		return err
	}
	fields := []journalField{{"MESSAGE", strings.TrimSuffix(line.String(), "\n")}, {"SYSLOG_IDENTIFIER", "heddle"}}
	if id, known := h.events[r.Message]; known {
		fields = append(fields, journalField{"MESSAGE_ID", id})
	}
	fields = append(fields, h.fields...)
	r.Attrs(func(a slog.Attr) bool {
		fields = h.appendField(fields, a)
		return true
	})
	leftOut := h.journal.write(priority(r.Level), fields)
	if leftOut == 0 {
		return nil
	}
	more := slog.NewRecord(time.Now(), slog.LevelWarn, leftOutMessage, 0)
	more.Add("records", leftOut)
	return h.Handle(ctx, more)
}

// appendField appends the field of an attribute that has one.
func (h *journalHandler) appendField(fields []journalField, a slog.Attr) []journalField {
	name := ""
	switch a.Key {
	case "host":
		name = "HOST"
	case "network":
		name = "NETWORK"
	case "port":
		name = "PORT"
	case "request":
		name = "REQUEST_ID"
	}
	if name == "" || h.grouped {
		return fields
	}
	a.Value = a.Value.Resolve()
	return append(fields, journalField{name, CutValue(nil, a).Value.String()})
}

// WithAttrs implements [slog.Handler].
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	derived.fields = h.fields[:len(h.fields):len(h.fields)]
	for _, a := range attrs {
		derived.fields = h.appendField(derived.fields, a)
	}
	derived.format = func(w io.Writer) slog.Handler { return h.format(w).WithAttrs(attrs) }
	return &derived
}

// WithGroup implements [slog.Handler].
func (h *journalHandler) WithGroup(name string) slog.Handler {
	derived := *h
	derived.grouped = true
	derived.format = func(w io.Writer) slog.Handler { return h.format(w).WithGroup(name) }
	return &derived
}

// priority returns the syslog priority of a level.
func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// journalWriter sends entries by the journal's native protocol. journal.Send of go-systemd would
// wait for a journal that hangs as long as that does, and every part that logs with it.
type journalWriter struct {
	socket string
	stderr int // the descriptor of standard error, a stream to the journal
	now    func() time.Time

	mu      sync.Mutex // guards the fields below
	conn    *net.UnixConn
	resume  time.Time // the socket is not tried before
	leftOut int       // entries that were not taken
}

// write sends an entry, by standard error where the journal does not take it. It waits for
// journalTimeout at most. Once an entry is taken it returns how many before that were not.
func (w *journalWriter) write(p journal.Priority, fields []journalField) (leftOut int) {
	entry := encodeEntry(p, fields)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deliver(entry) && !w.print(p, fields[0].value) {
		w.leftOut++
		return 0
	}
	leftOut, w.leftOut = w.leftOut, 0
	return leftOut
}

// deliver reports whether the journal takes an entry. The caller holds mu.
func (w *journalWriter) deliver(entry []byte) bool {
	if w.now().Before(w.resume) {
		return false
	}
	err := w.send(entry)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.resume = w.now().Add(journalPause)
	}
	return err == nil
}

// print reports whether standard error takes a line. A write to os.Stderr would wait for a journal
// that hangs, and end the process where it is away. The journal takes the number for the priority.
func (w *journalWriter) print(p journal.Priority, message string) bool {
	line := fmt.Appendf(nil, "<%d>%s\n", p, message)
	n, err := unix.SendmsgN(w.stderr, line, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err == nil && n == len(line)
}

// send sends an entry to the socket, which another journal may have made anew. The caller holds mu.
func (w *journalWriter) send(entry []byte) error {
	if w.conn != nil {
		err := w.sendConnected(entry)
		if !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		_ = w.conn.Close() // it leads nowhere
		w.conn = nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: w.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	w.conn = conn
	return w.sendConnected(entry)
}

func (w *journalWriter) sendConnected(entry []byte) error {
	if err := w.conn.SetWriteDeadline(w.now().Add(journalTimeout)); err != nil {
		return err
	}
	_, err := w.conn.Write(entry)
	if !errors.Is(err, unix.EMSGSIZE) {
		return err
	}
	file, err := sealed(entry)
	if err != nil {
		return err
	}
	defer file.Close()
	raw, err := w.conn.SyscallConn() // net's WriteMsgUnix sends no datagrams on a connected socket
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), nil, unix.UnixRights(int(file.Fd())), nil, 0)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}

// sealed returns a file in memory that can no longer be changed, as the journal takes entries that
// are too large for a datagram.
func sealed(entry []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("heddle-log", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "heddle-log")
	_, err = file.Write(entry)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// encodeEntry returns an entry of the native protocol. A value with line breaks, which others may
// have chosen, begins no field of its own: its length goes before it.
func encodeEntry(p journal.Priority, fields []journalField) []byte {
	entry := fmt.Appendf(nil, "PRIORITY=%d\n", p)
	for _, f := range fields {
		entry = append(entry, f.name...)
		if strings.Contains(f.value, "\n") {
			entry = binary.LittleEndian.AppendUint64(append(entry, '\n'), uint64(len(f.value)))
		} else {
			entry = append(entry, '=')
		}
		entry = append(append(entry, f.value...), '\n')
	}
	return entry
}

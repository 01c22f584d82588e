package dhcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"heddle/internal/dhcp/plan"
)

// line is a line of a dnsmasq's log: "dnsmasq-dhcp[123]: text".
type line struct {
	pid  int
	text string
}

// lineForm splits a line of a dnsmasq's log.
var lineForm = regexp.MustCompile(`^dnsmasq[^\[]*\[(\d+)\]: (.*)$`)

// parseLine splits a line; one of another form is all text.
func parseLine(raw string) line {
	if m := lineForm.FindStringSubmatch(raw); m != nil {
		if pid, err := strconv.Atoi(m[1]); err == nil {
			return line{pid, m[2]}
		}
	}
	return line{text: raw}
}

const (
	// longestLine bounds the lines that are read whole, in bytes.
	longestLine = 4096
	// longestLog bounds the log, in bytes that it takes: what has been read of more is freed.
	longestLog = 1 << 20
)

// openLog opens the file that instances log to, and follows it from its end on. It is a file
// because dnsmasq outlives the agent, and blocks on a pipe without a reader.
func openLog(path string) (*os.File, *logReader, error) {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("log of dnsmasq: %w", err)
	}
	r, err := followLog(path)
	if err != nil {
		w.Close()
		return nil, nil, fmt.Errorf("log of dnsmasq: %w", err)
	}
	return w, r, nil
}

// logReader reads a log as it grows.
type logReader struct {
	file    *os.File
	changes *os.File // of inotify
	freed   int64    // bytes at the file's start that take no space any more
}

func followLog(path string) (*logReader, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	r := &logReader{changes: os.NewFile(uintptr(fd), "changes of "+path)}
	if _, err = unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err == nil {
		if r.file, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
			r.freed, err = r.file.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		r.changes.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// run sends the lines until ctx ends.
func (r *logReader) run(ctx context.Context, out chan<- line) error {
	defer r.file.Close()
	stop := context.AfterFunc(ctx, func() { r.changes.Close() })
	defer stop()
	lines, events := bufio.NewReaderSize(r.file, longestLine), make([]byte, 4096)
	begun := ""
	for {
		text, err := lines.ReadSlice('\n')
		begun += string(text)
		switch {
		case err == nil || len(begun) >= longestLine:
			select {
			case out <- parseLine(strings.TrimSuffix(begun, "\n")):
			case <-ctx.Done():
				return nil
			}
			begun = ""
		case err == io.EOF:
			if err := r.shorten(lines, begun); err != nil {
				return err
			}
			if _, err := r.changes.Read(events); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("follow the log of dnsmasq: %w", err)
			}
		case err != bufio.ErrBufferFull:
			return fmt.Errorf("log of dnsmasq: %w", err)
		}
	}
}

// shorten frees what has been read of the log, once it is long. Writers go on at its end, so that
// no line is lost that one of them writes meanwhile.
func (r *logReader) shorten(lines *bufio.Reader, begun string) error {
	at, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil || at-r.freed < longestLog || begun != "" {
		return err
	}
	err = unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, r.freed, at-r.freed)
	if errors.Is(err, unix.EOPNOTSUPP) { // on a ramfs
		return r.empty(lines)
	}
	r.freed = at
	return err
}

// empty empties the log. Lines that are written since it was read to its end are lost.
func (r *logReader) empty(lines *bufio.Reader) error {
	err := os.Truncate(r.file.Name(), 0)
	if err == nil {
		_, err = r.file.Seek(0, io.SeekStart)
	}
	lines.Reset(r.file)
	return err
}

// started reports whether the line announces that an instance listens.
func (l line) started() bool { return strings.HasPrefix(l.text, "started, version") }

// probed reports whether the line shows that an instance has read the probe.
func (l line) probed() bool {
	return strings.HasPrefix(l.text, "inotify: ") && strings.Contains(l.text, "/"+probeFile+" ")
}

// event splits a line about a request, "448589412 DHCPACK(ns-calico) 10.65.0.7 02:65:00:00:00:0a
// vm1", into DHCPACK and the rest. name is "" for other lines.
func (l line) event() (name, outcome string) {
	text := strings.TrimLeft(strings.TrimLeft(l.text, "0123456789"), " ")
	name, rest, ok := strings.Cut(text, "(")
	if !ok || !strings.HasPrefix(name, "DHCP") || strings.Contains(name, " ") {
		return "", ""
	}
	_, outcome, _ = strings.Cut(rest, ") ")
	return name, outcome
}

// level returns the level of a line: refusals are warnings, leases information, the rest is for
// debugging. Names that machines give themselves hold no spaces, so they cannot pass for a refusal.
func (l line) level() slog.Level {
	name, outcome := l.event()
	switch {
	case name == "DHCPNAK" || name == "DHCPDECLINE" || name != "" && containsAny(outcome, " address available", " addresses available", " ignored", " not on link"):
		return slog.LevelWarn
	case name == "DHCPACK" || name == "DHCPREPLY" || name == "DHCPRELEASE":
		return slog.LevelInfo
	case strings.HasPrefix(l.text, "cannot read ") && strings.HasSuffix(l.text, ": No such file or directory"):
		return slog.LevelDebug // a file that we have taken away
	case name == "" && containsAny(l.text, "failed", "cannot", "duplicate", "not using configured address", "no address range available",
		"bad ", "error", "overflow", "not available", "Maximum number of concurrent"):
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// resolverLevel returns the level of a line of the dnsmasq for DNS. It logs queries only on the
// operator's request.
func (l line) resolverLevel() slog.Level {
	for _, head := range []string{"query[", "forwarded ", "reply ", "cached ", "config ", "validation ", "/"} {
		if strings.HasPrefix(l.text, head) {
			return slog.LevelInfo
		}
	}
	return l.level()
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}

// interfacesOf maps the words that lines use for a machine, its MAC and IP addresses and its
// interface, to the interface.
func interfacesOf(p *plan.Plan) map[string]string {
	all := make(map[string]string, 3*len(p.Ports))
	for _, port := range p.Ports {
		all[port.MAC.String()], all[port.Interface] = port.Interface, port.Interface
		for _, a := range port.Addresses {
			all[a.IP.String()] = port.Interface
		}
	}
	return all
}

// attributes returns a line's attributes, with the interface of the machine that it is about. Of a
// query, which may name anything, only the client counts.
func (l line) attributes(interfaces map[string]string) []slog.Attr {
	list := []slog.Attr{slog.String("says", l.text), slog.Int("pid", l.pid)}
	text := l.text
	if strings.HasPrefix(text, "query[") {
		text = text[strings.LastIndexByte(text, ' ')+1:]
	}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" (),", r) }) {
		if name := interfaces[strings.ToLower(word)]; name != "" {
			return append(list, slog.String("interface", name))
		}
		if name := interfaces[path.Base(word)]; name != "" { // an endpoint's file is called so too
			return append(list, slog.String("interface", name))
		}
	}
	return list
}

// optionOf returns the interface of the machine whose option a line complains about, "bad
// dhcp-option at line 5 of /…/opts/subnet-a"; "" for another line. files are those of a plan.
func (l line) optionOf(files map[string]string) string {
	_, place, _ := strings.Cut(l.text, " at line ")
	number, file, ok := strings.Cut(place, " of ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return ""
	}
	lines := strings.Split(files[plan.OptionsDir+"/"+path.Base(file)], "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	tag, _, _ := strings.Cut(lines[n-1], ",")
	name, _ := strings.CutPrefix(tag, "tag:"+plan.PortTag(""))
	if name == tag {
		return ""
	}
	return name
}

package dhcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// line is what a dnsmasq says: "dnsmasq-dhcp[123]: text".
type line struct {
	pid  int
	text string
}

// parseLine splits a line; one that has not that form is all text.
func parseLine(raw string) line {
	if rest, ok := strings.CutPrefix(raw, "dnsmasq"); ok {
		if head, text, ok := strings.Cut(rest, "]: "); ok {
			if _, number, ok := strings.Cut(head, "["); ok {
				if pid, err := strconv.Atoi(number); err == nil {
					return line{pid, text}
				}
			}
		}
	}
	return line{text: raw}
}

const (
	// longestLine is the longest that is read whole, in bytes.
	longestLine = 4096
	// longestLog is how long the log may become before what has been read of it is thrown away, in bytes.
	longestLog = 1 << 20
)

// openLog opens the file that instances log to. It is a file because dnsmasq stands still when nobody empties a pipe,
// and it outlives the agent.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// logReader reads a log as it grows.
type logReader struct {
	file    *os.File
	changes *os.File // of inotify
}

// followLog reads a log from its end on.
func followLog(path string) (*logReader, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	r := &logReader{changes: os.NewFile(uintptr(fd), "changes of "+path)}
	if _, err = unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err == nil {
		if r.file, err = os.Open(path); err == nil {
			_, err = r.file.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		r.changes.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// run tells the lines until ctx ends.
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

// shorten empties a long log that has been read to its end. Whoever writes goes on at the new end.
func (r *logReader) shorten(lines *bufio.Reader, begun string) error {
	at, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil || at < longestLog || begun != "" {
		return err
	}
	if err := os.Truncate(r.file.Name(), 0); err != nil {
		return err
	}
	if _, err = r.file.Seek(0, io.SeekStart); err == nil {
		lines.Reset(r.file)
	}
	return err
}

// started says that an instance listens.
func (l line) started() bool { return strings.HasPrefix(l.text, "started, version") }

// probed says that an instance has seen the probe.
func (l line) probed() bool {
	return strings.HasPrefix(l.text, "inotify: ") && strings.Contains(l.text, "/"+probeFile+" ")
}

// level is how much a line matters: refusals are warnings, leases are news, the rest is chatter.
func (l line) level() slog.Level {
	for _, w := range []string{"failed", "cannot", "duplicate", "not using configured address", "no address available", "NAK", "DECLINE",
		"wrong", "bad ", "error", "overflow", "ignored", "not available"} {
		if strings.Contains(l.text, w) {
			return slog.LevelWarn
		}
	}
	for _, w := range []string{"DHCPACK(", "DHCPREPLY(", "DHCPRELEASE("} {
		if strings.Contains(l.text, w) {
			return slog.LevelInfo
		}
	}
	return slog.LevelDebug
}

// mac finds the MAC address in a line; "" without one.
func (l line) mac() string {
	for _, word := range strings.Fields(l.text) {
		if len(word) == 17 && strings.Count(word, ":") == 5 {
			return strings.ToLower(word)
		}
	}
	return ""
}

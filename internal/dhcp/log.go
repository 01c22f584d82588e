package dhcp

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
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

// longestLine is the longest that is read whole, in bytes.
const longestLine = 4096

// readLines tells the lines of a pipe until ctx ends or the pipe is closed. Those that nobody takes hold dnsmasq's pipe
// full, which its own queue bridges (--log-async).
func readLines(ctx context.Context, pipe io.Reader, out chan<- line) {
	r := bufio.NewReaderSize(pipe, longestLine)
	for {
		raw, err := r.ReadSlice('\n')
		if len(raw) > 0 {
			select {
			case out <- parseLine(strings.TrimSuffix(string(raw), "\n")):
			case <-ctx.Done():
				return
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
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
	for _, w := range []string{"DHCPACK", "DHCPREPLY", "DHCPRELEASE"} {
		if strings.HasPrefix(l.text, w) {
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

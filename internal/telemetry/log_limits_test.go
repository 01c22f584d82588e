package telemetry

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Values that others choose can be as long as a request to the store: the log cuts them.
func TestLogCutsValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x00", 900_000)
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log, err := NewLogger(&b, format, NewLevels(slog.LevelInfo))
		if err != nil {
			t.Fatal(err)
		}
		log.Error("invalid", "key", long, "err", errors.New(long), "names", []string{long}, "count", 7)
		if b.Len() > 20_000 || !strings.Contains(b.String(), "(900000 bytes)") || !strings.Contains(b.String(), "7") {
			t.Errorf("%s: %d bytes in the log, want 20000 at most, with the length of what was cut: %.300s", format, b.Len(), b.String())
		}
		b.Reset()
		log.Error("panic", "stack", strings.Repeat("frame ", 1000), "err", "é")
		if !strings.Contains(b.String(), strings.Repeat("frame ", 1000)) || !strings.Contains(b.String(), "é") {
			t.Errorf("%s: a stack is cut: %s", format, b.String())
		}
	}
}

// A message that repeats is logged a limited number of times, then counted. Others, those of other
// tables, and information are not affected.
func TestLogLimitsWarnings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := LimitWarnings(slog.NewJSONHandler(&b, nil)).(*warningLimit)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.now = func() time.Time { return now }
	log := slog.New(w)
	other := log.With("table", "other")
	for range 10_000 {
		log.Error("invalid")
		log.Info("placed")
	}
	other.Error("invalid")
	log.Warn("rare")
	counts := func() map[string]int {
		t.Helper()
		all := map[string]int{}
		for line := range strings.Lines(b.String()) {
			var r struct {
				Msg, Message, Table string
				Records             int
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			all[strings.Join([]string{r.Msg, r.Message, r.Table}, "|")] += max(1, r.Records)
		}
		b.Reset()
		return all
	}
	check := func(want map[string]int) {
		t.Helper()
		got := counts()
		for line, n := range want {
			if got[line] != n {
				t.Errorf("%q: %d, want %d", line, got[line], n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	check(map[string]int{"invalid||": mostWarnings, "leaving out further log records of a message|invalid|": 1, "placed||": 10_000, "invalid||other": 1, "rare||": 1})
	now = now.Add(limitWindow)
	log.Warn("rare")
	log.Error("invalid")
	other.Error("invalid")
	check(map[string]int{"left out log records|invalid|": 10_000 - mostWarnings, "rare||": 1, "invalid||": 1, "invalid||other": 1})
}

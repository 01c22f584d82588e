package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logged returns which of the parts one and two log debug and info records.
func logged(t *testing.T, one, two *slog.Logger, b *bytes.Buffer) string {
	t.Helper()
	b.Reset()
	for _, l := range []*slog.Logger{one, two} {
		l.Debug("fine")
		l.WithGroup("g").Info("plain", "key", 1)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		level, rest, _ := strings.Cut(line[strings.Index(line, "level=")+len("level="):], " ")
		_, part, _ := strings.Cut(rest, "part=")
		got = append(got, strings.Fields(part)[0]+":"+level)
	}
	return strings.Join(got, " ")
}

// TestLevels: the level of all parts or of one changes while a logger is in use, for a time or for
// good, and goes back to the one configured last.
func TestLevels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		levels := NewLevels(slog.LevelInfo)
		log, err := NewLogger(&b, "text", levels)
		if err != nil {
			t.Fatal(err)
		}
		one, two := log.With("part", "one"), log.With("part", "two").With("request", "r")
		want := func(when, want string) {
			t.Helper()
			if got := logged(t, one, two, &b); got != want {
				t.Errorf("%s: got %s, want %s", when, got, want)
			}
		}
		const configured, all = "one:INFO two:INFO", "one:DEBUG one:INFO two:DEBUG two:INFO"
		override := func(part string, level slog.Level, lasting time.Duration) {
			t.Helper()
			if err := levels.Override(part, level, lasting); err != nil {
				t.Fatal(err)
			}
		}
		want("at the start", configured)
		override("one", slog.LevelDebug, time.Minute)
		want("one part", "one:DEBUG one:INFO two:INFO")
		override("", slog.LevelError, 0)
		want("a part goes before all", "one:DEBUG one:INFO")
		time.Sleep(time.Minute)
		synctest.Wait()
		want("after the time", "")
		levels.Reset("")
		want("as configured", configured)

		override("", slog.LevelDebug, time.Minute)
		override("", slog.LevelDebug, time.Hour)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		want("a later override replaces the time", all)
		levels.Configure(slog.LevelWarn)
		want("configured meanwhile", all)
		if o := levels.Overrides(); len(o) != 1 || !o[0].Until.Equal(time.Now().Add(30*time.Minute)) {
			t.Errorf("overrides: %+v", o)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		want("after the time", "")
		if err := levels.Override("three", slog.LevelDebug, 0); err == nil || !strings.Contains(err.Error(), "parts: one, two") {
			t.Errorf("a part that there is not: %v", err)
		}
	})
}

func TestParseLevel(t *testing.T) {
	t.Parallel()
	if l, err := ParseLevel("warn"); l != slog.LevelWarn || err != nil {
		t.Errorf("warn: %v, %v", l, err)
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("took the level loud")
	}
}

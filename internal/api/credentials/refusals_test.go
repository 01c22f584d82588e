package credentials

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/telemetry"
)

// TestRefusals: the log has a line a minute for each account, address and reason, with the number
// of those left out, whatever is in a name; the metrics have all of them and no name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger, err := telemetry.NewLogger(&log, "text", telemetry.NewLevels(slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	r := NewRefusals(RefusalOptions{API: "test", Message: "log-in refused", Subject: "account", Reasons: LoginReasons(), Log: logger, Now: func() time.Time { return now }})
	expect := func(what string, want ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		log.Reset()
		for i, line := range lines {
			_, lines[i], _ = strings.Cut(line, "level=WARN ")
		}
		if fmt.Sprintf("%q", lines) != fmt.Sprintf("%q", append([]string{}, want...)) {
			t.Errorf("%s: logged %q, want %q", what, lines, want)
		}
	}
	other := netip.MustParseAddr("2001:db8::1")
	for range 5 {
		r.Note("ann", here, WrongPassword)
	}
	expect("one client", `msg="log-in refused" account=ann from=192.0.2.1 reason="wrong password"`)
	r.Note("ann", other, WrongPassword)
	r.Note("ann", here, TooManyAttempts)
	expect("another address, another reason", `msg="log-in refused" account=ann from=2001:db8::1 reason="wrong password"`,
		`msg="log-in refused" account=ann from=192.0.2.1 reason="too many attempts"`)
	now = now.Add(logInterval)
	r.Note("ann", here, WrongPassword)
	expect("a minute later", `msg="log-in refused" account=ann from=192.0.2.1 reason="wrong password" left_out=4`)
	r.Note("a\nlevel=ERROR\x1b]0;x\a"+strings.Repeat("x", 1000), here, UnknownAccount)
	expect("a forged name", `msg="log-in refused" account="a\nlevel=ERROR\x1b]0;x\a`+strings.Repeat("x", 81)+`… (1019 bytes)" from=192.0.2.1 reason="unknown account"`)

	got := ""
	for _, v := range r.Metrics() {
		got += fmt.Sprintf("%s %s %s %v\n", v.Name, v.Label("api"), v.Label("reason"), v.Value)
	}
	if want := "heddle_logins_refused_total test unknown account 1\nheddle_logins_refused_total test wrong password 7\nheddle_logins_refused_total test too many attempts 1\n"; got != want {
		t.Errorf("metrics:\n%swant:\n%s", got, want)
	}
	for i := range 2 * maxRemember {
		r.Note(fmt.Sprint(i), here, UnknownAccount)
	}
	if len(r.lines) > maxRemember {
		t.Errorf("%d refusals are remembered", len(r.lines))
	}
}

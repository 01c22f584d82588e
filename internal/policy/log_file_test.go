package policy

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestJournal: LogSeverityScreen, LogFilePath and LogSeverityFile, as they change while the agent
// runs.
func TestJournal(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path := filepath.Join(directory, "calico", "felix.log")
	var screen bytes.Buffer
	j := newLogSwitch(directory)
	log := j.logger(slog.New(slog.NewTextHandler(&screen, nil))).With("part", "policy").WithGroup("g")
	defer j.close()
	debug := slog.LevelDebug
	quiet := silent
	expect := func(step string, onScreen, inFile bool) {
		t.Helper()
		if got := strings.Contains(screen.String(), "msg="+step+" part=policy g.a=1"); got != onScreen {
			t.Errorf("%s is on the screen: %v, want %v:\n%s", step, got, onScreen, screen.String())
		}
		text, err := os.ReadFile(path)
		if got := strings.Contains(string(text), "msg="+step+" part=policy g.a=1"); got != inFile {
			t.Errorf("%s is in the file: %v, %v; want %v:\n%s", step, got, err, inFile, text)
		}
	}
	for _, c := range []struct {
		step             string
		logging          Logging
		level            slog.Level
		onScreen, inFile bool
	}{
		{"usual", Logging{}, slog.LevelInfo, true, false},
		{"detail", Logging{}, slog.LevelDebug, false, false},
		{"asked", Logging{Screen: &debug}, slog.LevelDebug, true, false},
		{"quiet", Logging{Screen: &quiet}, slog.LevelError, false, false},
		{"both", Logging{File: path}, slog.LevelInfo, true, true},
		{"minor", Logging{File: path, FileLevel: slog.LevelWarn}, slog.LevelInfo, true, false},
		{"fine", Logging{File: path, FileLevel: slog.LevelDebug}, slog.LevelDebug, false, true},
		{"closed", Logging{}, slog.LevelError, true, false},
	} {
		if err := j.configure(c.logging); err != nil {
			t.Fatalf("%s: %v", c.step, err)
		}
		log.Log(t.Context(), c.level, c.step, "a", 1)
		expect(c.step, c.onScreen, c.inFile)
	}

	if err := j.configure(Logging{File: path}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Info("rotated", "a", 1)
	expect("rotated", true, true)
}

// TestLogFileStaysInPlace: nothing that is written into etcd makes the agent write elsewhere.
func TestLogFileStaysInPlace(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for name, target := range map[string]string{"link": victim, "way": outside} {
		if err := os.Symlink(target, filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		victim, directory, directory + "/", directory + "/../" + filepath.Base(outside) + "/victim", "relative",
		directory + "/link", directory + "/way/victim", directory + "/way/new", directory + "/pipe",
	} {
		j := newLogSwitch(directory)
		if err := j.configure(Logging{File: path}); err == nil {
			t.Errorf("%s is taken", path)
		}
		var screen bytes.Buffer
		j.logger(slog.New(slog.NewTextHandler(&screen, nil))).Info("x")
		if screen.Len() == 0 {
			t.Errorf("with the file %s the screen has nothing", path)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || len(text) > 0 {
		t.Errorf("the file outside has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
}

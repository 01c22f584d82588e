package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"heddle/internal/telemetry"
)

// Logging has the settings of the agent's log (seed 001, "config").
type Logging struct {
	Screen *slog.Level // lowest level that goes to the process's own log; nil: as the process logs
	// File is the path, below logDirectory, of a file that gets the records too; empty: none.
	File      string
	FileLevel slog.Level
}

// logDirectory bounds where log files may be: a writer of settings in etcd must not gain access to
// other files of every host.
const logDirectory = "/var/log"

// silent is a level that no record has.
const silent = slog.Level(math.MaxInt)

// logSwitch sends records to the process's own log, and to a file, as the settings say.
type logSwitch struct {
	screen    atomic.Pointer[slog.Level]
	fileLevel slog.LevelVar
	file      logFile
}

func newLogSwitch(directory string) *logSwitch {
	s := &logSwitch{file: logFile{directory: directory}}
	s.fileLevel.Set(silent)
	return s
}

// logger returns a logger whose records go to log and to the file.
func (s *logSwitch) logger(log *slog.Logger) *slog.Logger {
	file := telemetry.LimitWarnings(slog.NewTextHandler(&s.file, &slog.HandlerOptions{Level: &s.fileLevel, ReplaceAttr: telemetry.CutValue}))
	return slog.New(slog.NewMultiHandler(screenHandler{log.Handler(), &s.screen}, file))
}

// configure applies new settings. When the file cannot be opened, the process's own log goes on.
func (s *logSwitch) configure(l Logging) error {
	s.screen.Store(l.Screen)
	level := l.FileLevel
	if l.File == "" {
		level = silent
	}
	s.fileLevel.Set(level)
	return s.file.use(l.File)
}

func (s *logSwitch) close() error { return s.configure(Logging{}) }

// screenHandler is the process's handler with a level of its own, if there is one.
type screenHandler struct {
	slog.Handler
	level *atomic.Pointer[slog.Level]
}

func (h screenHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if lowest := h.level.Load(); lowest != nil {
		return level >= *lowest
	}
	return h.Handler.Enabled(ctx, level)
}

func (h screenHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return screenHandler{h.Handler.WithAttrs(attrs), h.level}
}

func (h screenHandler) WithGroup(name string) slog.Handler {
	return screenHandler{h.Handler.WithGroup(name), h.level}
}

// logFile appends to a file below a directory, and reopens it when logrotate has moved it away.
type logFile struct {
	directory string

	mu   sync.Mutex
	path string // below directory; empty: no file
	file *os.File
}

// use changes to another file; an empty path: to none.
func (f *logFile) use(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	relative, err := relativeTo(f.directory, path)
	if err != nil || relative == f.path && f.file != nil {
		return err
	}
	f.closeFile()
	if f.path = relative; relative == "" {
		return nil
	}
	if err := f.open(); err != nil {
		return fmt.Errorf("log file %s: %w", path, err)
	}
	return nil
}

// relativeTo returns a path below a directory relative to that.
func relativeTo(directory, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	rest, found := strings.CutPrefix(filepath.Clean(path), directory+"/")
	if !found {
		return "", fmt.Errorf("want a file below %s", directory)
	}
	return rest, nil
}

// open opens the file for appending: regular files only, and none outside the directory.
func (f *logFile) open() error {
	root, err := os.OpenRoot(f.directory)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, file.Close(), fmt.Errorf("%w: want a regular file", fs.ErrInvalid))
	}
	f.file = file
	return nil
}

func (f *logFile) closeFile() {
	if f.file != nil {
		f.file.Close() // every record was written at once
		f.file = nil
	}
}

// Write appends one record.
func (f *logFile) Write(record []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return len(record), nil
	}
	if f.file != nil && !f.inPlace() {
		f.closeFile()
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	return f.file.Write(record)
}

// inPlace reports whether the path still leads to the file.
func (f *logFile) inPlace() bool {
	there, err := os.Lstat(filepath.Join(f.directory, f.path))
	if err != nil {
		return false
	}
	info, err := f.file.Stat()
	return err == nil && os.SameFile(info, there)
}

// levels are the severities as peers name them.
var levels = map[string]slog.Level{"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARNING": slog.LevelWarn, "WARN": slog.LevelWarn,
	"ERROR": slog.LevelError, "CRITICAL": slog.LevelError, "FATAL": slog.LevelError, "PANIC": slog.LevelError, "NONE": silent}

func readLevel(text string) (slog.Level, error) {
	level, ok := levels[strings.ToUpper(text)]
	if !ok {
		return 0, errors.New("want DEBUG, INFO, WARNING, ERROR, CRITICAL or none")
	}
	return level, nil
}

func readScreenLevel(s *Settings, v string) error {
	if v == "" {
		s.Logging.Screen = nil
		return nil
	}
	level, err := readLevel(v)
	s.Logging.Screen = &level
	return err
}

func readLogFile(s *Settings, v string) error {
	if isNone(v) {
		v = ""
	}
	s.Logging.File = v
	_, err := relativeTo(logDirectory, v)
	return err
}

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
)

// Logging is what settings say of the agent's log (seed 001, "config").
type Logging struct {
	Screen *slog.Level // from which level on the process's own log has it; nil: as the process logs
	// File is the path, below logDirectory, of a file that has it too; empty: none.
	File      string
	FileLevel slog.Level
}

// logDirectory is where log files may lie. Whoever may write settings into etcd must not thereby write into other files
// of every host.
const logDirectory = "/var/log"

// silent is a level that no record has.
const silent = slog.Level(math.MaxInt)

// journal sends records to the process's own log, and to a file beside it, as settings say at the moment.
type journal struct {
	screen    atomic.Pointer[slog.Level]
	fileLevel atomic.Int64
	file      logFile
}

func newJournal(directory string) *journal {
	j := &journal{file: logFile{directory: directory}}
	j.fileLevel.Store(int64(silent))
	return j
}

// logger is a logger for records that log would have.
func (j *journal) logger(log *slog.Logger) *slog.Logger {
	everything := &slog.HandlerOptions{Level: slog.Level(math.MinInt)}
	return slog.New(journalHandler{j, log.Handler(), slog.NewTextHandler(&j.file, everything)})
}

// configure takes new settings. When the file cannot be opened, the process's own log has what it had.
func (j *journal) configure(l Logging) error {
	j.screen.Store(l.Screen)
	level := l.FileLevel
	if l.File == "" {
		level = silent
	}
	j.fileLevel.Store(int64(level))
	return j.file.use(l.File)
}

func (j *journal) close() error { return j.configure(Logging{}) }

// journalHandler is a [slog.Handler] for one set of attributes.
type journalHandler struct {
	*journal
	own, beside slog.Handler
}

func (h journalHandler) onScreen(ctx context.Context, level slog.Level) bool {
	if least := h.screen.Load(); least != nil {
		return level >= *least
	}
	return h.own.Enabled(ctx, level)
}

func (h journalHandler) inFile(level slog.Level) bool {
	return level >= slog.Level(h.fileLevel.Load())
}

func (h journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.onScreen(ctx, level) || h.inFile(level)
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	if h.onScreen(ctx, r.Level) {
		errs = append(errs, h.own.Handle(ctx, r.Clone()))
	}
	if h.inFile(r.Level) {
		errs = append(errs, h.beside.Handle(ctx, r))
	}
	return errors.Join(errs...)
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journalHandler{h.journal, h.own.WithAttrs(attrs), h.beside.WithAttrs(attrs)}
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.journal, h.own.WithGroup(name), h.beside.WithGroup(name)}
}

// logFile appends to a file below a directory, and makes it anew when it has been moved away, as logrotate does.
type logFile struct {
	directory string

	mu   sync.Mutex
	path string // below directory; empty: no file
	file *os.File
}

// use changes to another file: its path, or nothing.
func (f *logFile) use(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	below, err := below(f.directory, path)
	if err != nil || below == f.path && f.file != nil {
		return err
	}
	f.closeFile()
	f.path = below
	if below == "" {
		return nil
	}
	if err := f.open(); err != nil {
		return fmt.Errorf("log file %s: %w", path, err)
	}
	return nil
}

// below is a path relative to a directory that it lies in.
func below(directory, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	rest, found := strings.CutPrefix(filepath.Clean(path), directory+"/")
	if !found {
		return "", fmt.Errorf("want a file below %s", directory)
	}
	return rest, nil
}

// open opens the file for appending. No link leads out of the directory, and nothing but a file is written into.
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
		f.file.Close() // nothing is lost: it was written at once
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

// inPlace says whether the path still leads to the file.
func (f *logFile) inPlace() bool {
	there, err := os.Lstat(filepath.Join(f.directory, f.path))
	if err != nil {
		return false
	}
	info, err := f.file.Stat()
	return err == nil && os.SameFile(info, there)
}

// readLevel reads a severity as peers name them; none is silence.
func readLevel(text string) (slog.Level, error) {
	switch strings.ToUpper(text) {
	case "DEBUG":
		return slog.LevelDebug, nil
	case "INFO":
		return slog.LevelInfo, nil
	case "WARNING", "WARN":
		return slog.LevelWarn, nil
	case "ERROR", "CRITICAL", "FATAL", "PANIC":
		return slog.LevelError, nil
	case "NONE":
		return silent, nil
	}
	return 0, errors.New("want DEBUG, INFO, WARNING, ERROR, CRITICAL or none")
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

func readFileLevel(s *Settings, v string) (err error) {
	s.Logging.FileLevel, err = readLevel(v)
	return err
}

func readLogFile(s *Settings, v string) error {
	if isNone(v) {
		v = ""
	}
	s.Logging.File = v
	_, err := below(logDirectory, v)
	return err
}

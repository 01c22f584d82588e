package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// partKey is the attribute that names the part of a process that logs.
const partKey = "part"

// Levels holds the level of a process's log, as configured and as overridden while it runs, for
// all parts or for single ones.
type Levels struct {
	configured atomic.Int64 // a slog.Level
	overrides  atomic.Pointer[map[string]Override]

	mu     sync.Mutex // guards the fields below, and changes of overrides
	parts  map[string]bool
	timers map[string]*time.Timer
}

// Override is a level in place of the configured one.
type Override struct {
	Part  string     `json:"part,omitempty"` // "" for all that have none of their own
	Level slog.Level `json:"level"`
	Until time.Time  `json:"until,omitzero"` // the zero time: until the process ends
}

// ParseLevel returns the level named debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, fmt.Errorf("log level %q: want debug, info, warn or error", text)
	}
	return l, nil
}

// NewLevels returns levels with a configured one.
func NewLevels(configured slog.Level) *Levels {
	l := &Levels{parts: map[string]bool{}, timers: map[string]*time.Timer{}}
	l.overrides.Store(&map[string]Override{})
	l.Configure(configured)
	return l
}

// Configure changes the configured level. Overrides stay.
func (l *Levels) Configure(level slog.Level) { l.configured.Store(int64(level)) }

// Configured returns the configured level.
func (l *Levels) Configured() slog.Level { return slog.Level(l.configured.Load()) }

// Overrides returns the overrides in force, by part.
func (l *Levels) Overrides() []Override {
	return slices.SortedFunc(maps.Values(*l.overrides.Load()), func(a, b Override) int { return strings.Compare(a.Part, b.Part) })
}

// Parts returns the names of the parts that log.
func (l *Levels) Parts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.parts))
}

// Override sets the level of a part, or of all parts if it is "", for a time, or until the process
// ends if that is 0.
func (l *Levels) Override(part string, level slog.Level, lasting time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if part != "" && !l.parts[part] {
		return fmt.Errorf("no part %q logs here; parts: %s", part, strings.Join(slices.Sorted(maps.Keys(l.parts)), ", "))
	}
	o := Override{Part: part, Level: level}
	l.stopTimer(part)
	if lasting > 0 {
		o.Until = time.Now().Add(lasting).UTC().Truncate(time.Second)
		var timer *time.Timer
		timer = time.AfterFunc(lasting, func() {
			l.mu.Lock() // timer is set under it
			defer l.mu.Unlock()
			if l.timers[part] == timer {
				l.remove(part)
			}
		})
		l.timers[part] = timer
	}
	l.change(func(all map[string]Override) { all[part] = o })
	return nil
}

// Reset ends the override of a part, or all overrides if it is "".
func (l *Levels) Reset(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.Overrides() {
		if part == "" || o.Part == part {
			l.remove(o.Part)
		}
	}
}

// remove ends an override. The caller holds mu.
func (l *Levels) remove(part string) {
	l.stopTimer(part)
	l.change(func(all map[string]Override) { delete(all, part) })
}

func (l *Levels) stopTimer(part string) {
	if timer := l.timers[part]; timer != nil {
		timer.Stop()
		delete(l.timers, part)
	}
}

// change replaces the overrides by a changed copy: those that log read them without a lock.
func (l *Levels) change(apply func(map[string]Override)) {
	all := maps.Clone(*l.overrides.Load())
	apply(all)
	l.overrides.Store(&all)
}

// of returns the level of a part.
func (l *Levels) of(part string) slog.Level {
	all := *l.overrides.Load()
	if o, ok := all[part]; ok {
		return o.Level
	}
	if o, ok := all[""]; ok {
		return o.Level
	}
	return l.Configured()
}

// Handler returns a handler that passes records at or above the level of their part to next.
func (l *Levels) Handler(next slog.Handler) slog.Handler {
	return &levelHandler{Handler: next, levels: l}
}

// levelHandler drops records below the level of its part.
type levelHandler struct {
	slog.Handler
	levels *Levels
	part   string
}

// Enabled implements [slog.Handler].
func (h *levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.levels.of(h.part) && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := &levelHandler{h.Handler.WithAttrs(attrs), h.levels, h.part}
	for _, a := range attrs {
		if a.Key == partKey {
			derived.part = a.Value.String()
			h.levels.addPart(derived.part)
		}
	}
	return derived
}

// WithGroup implements [slog.Handler].
func (h *levelHandler) WithGroup(name string) slog.Handler {
	return &levelHandler{h.Handler.WithGroup(name), h.levels, h.part}
}

func (l *Levels) addPart(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[part] = true
}

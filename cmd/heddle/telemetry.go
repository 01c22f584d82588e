package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"heddle/internal/admin"
	"heddle/internal/api"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// logConfig holds the settings of the log.
type logConfig struct {
	level, format string
	levels        *telemetry.Levels // set by logger
}

func (c *logConfig) flags(f *pflag.FlagSet) {
	c.level = "info"
	f.Var((*levelValue)(&c.level), logLevelFlag, "debug, info, warn or error")
	f.StringVar(&c.format, "log-format", "text", "text or json")
}

// levelValue is the flag of a log level.
type levelValue string

// Set implements [pflag.Value].
func (l *levelValue) Set(text string) error {
	if _, err := telemetry.ParseLevel(text); err != nil {
		return errors.New("want debug, info, warn or error")
	}
	*l = levelValue(text)
	return nil
}

// String implements [pflag.Value].
func (l *levelValue) String() string { return string(*l) }

// Type implements [pflag.Value].
func (l *levelValue) Type() string { return "string" }

func (c *logConfig) logger() (*slog.Logger, error) {
	level, err := telemetry.ParseLevel(c.level)
	if err != nil {
		return nil, err
	}
	c.levels = telemetry.NewLevels(level)
	return telemetry.NewProcessLogger(c.format, c.levels)
}

// adminConfig holds the settings of a role's socket for administrators.
type adminConfig struct {
	role, dir string
	apis      []*api.Server // of the role, whose certificates are read again
}

func (c *adminConfig) flags(f *pflag.FlagSet, role string) {
	c.role = role
	f.StringVar(&c.dir, "run-dir", admin.DefaultDir, "`directory` of this role's socket for heddle status, reload, log-level and support; \"\" for none")
}

// observed describes a role to those who look at it and change its settings.
type observed struct {
	telemetry.Options
	log      *logConfig
	settings flagValues // at the start
	// readFiles reads the settings that the role has from files of other programs' forms, and
	// starting has those of the start. A role without such files has neither.
	readFiles func() (flagValues, error)
	starting  flagValues
}

// newHealth returns the tasks that serve a role's metrics and health, and its socket for
// administrators. o lacks Waiting.
func (c *adminConfig) newHealth(o observed, waiting func() []string) []task.Task {
	o.Waiting = waiting
	health := telemetry.NewServer(o.Options)
	if o.readFiles == nil {
		o.readFiles = func() (flagValues, error) { return nil, nil }
	}
	r := &reloader{running: o.settings.with(o.starting), readFiles: o.readFiles, levels: o.log.levels, health: health, apis: func() []*api.Server { return c.apis }, waiting: waiting}
	return []task.Task{health, admin.NewServer(admin.Options{
		Dir: c.dir, Role: c.role, Version: version, Levels: o.log.levels, Metrics: o.Metrics, Waiting: waiting, Reload: r.reload, Log: o.Log.With("part", "admin"),
	})}
}

// waitingFor returns a function that returns the tasks that are not ready, and problems of those
// that are: functions that return "" for none. Tasks may be added until they run.
func waitingFor(tasks *[]task.Task, problems ...func() string) func() []string {
	return func() []string {
		all := task.Waiting(*tasks)
		for _, problem := range problems {
			if text := problem(); text != "" {
				all = append(all, text)
			}
		}
		return all
	}
}

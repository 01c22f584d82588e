package main

import (
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// logConfig holds the settings of the log.
type logConfig struct{ level, format string }

func (c *logConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.format, "log-format", "text", "text or json")
}

func (c *logConfig) logger() (*slog.Logger, error) {
	return telemetry.NewLogger(os.Stderr, c.format, c.level)
}

// newHealth returns the server of metrics and health, which reports the tasks that are not ready,
// and problems of those that are: functions that return "" for none. Tasks may be added until it
// runs. The options lack Waiting.
func newHealth(o telemetry.Options, tasks *[]task.Task, problems ...func() string) task.Task {
	o.Waiting = func() []string {
		all := task.Waiting(*tasks)
		for _, problem := range problems {
			if text := problem(); text != "" {
				all = append(all, text)
			}
		}
		return all
	}
	return telemetry.NewServer(o)
}

package backend

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// slogCore logs etcd's errors and some of its warnings; the other warnings are for debugging.
type slogCore struct{ log *slog.Logger }

func (c slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log.With(attributes(fields)...)}
}

func (c slogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelDebug
	switch {
	case e.Level >= zapcore.ErrorLevel && !harmless(e.Message):
		level = slog.LevelError
	case notable(e.Message):
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "etcd: "+e.Message, attributes(fields)...)
	return nil
}

// harmless reports whether an error of etcd's log is none for an embedded server's owner.
func harmless(message string) bool {
	switch message {
	case "failed to update storage version", // at the very first start, before there was an election; tried again soon
		"setting up serving from embedded etcd failed.", // a listener closed because the store is
		"cannot find a user for permission check":       // a removed host
		return true
	}
	return false
}

// notable reports whether a warning matters to the owner: a slow disk, overload, a full database.
func notable(message string) bool {
	switch message {
	case "slow fdatasync", "apply request took too long", "alarm raised",
		"waiting for ReadIndex response took too long, retrying",
		"leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk":
		return true
	}
	return false
}

func (c slogCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	var attrs []any
	for k, v := range m.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	return attrs
}

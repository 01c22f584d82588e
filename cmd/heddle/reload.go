package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/admin"
	"heddle/internal/api"
	"heddle/internal/telemetry"
)

// Flags that a running role takes new values of.
const (
	logLevelFlag = "log-level"
	metricsFlag  = "metrics"
)

// flagValues are the values of a command's flags, by name.
type flagValues map[string]string

// with returns the values with more.
func (v flagValues) with(more flagValues) flagValues {
	all := flagValues{}
	maps.Copy(all, v)
	maps.Copy(all, more)
	return all
}

// settingsOf returns the settings of a command that is configured.
func settingsOf(cmd *cobra.Command) flagValues {
	s := flagValues{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if configurable(f) {
			s[f.Name] = f.Value.String()
		}
	})
	return s
}

// settingsKey is the key of a command's settings in its context.
type settingsKey struct{}

// withSettings keeps the settings of a command for when it runs: what runs may change variables.
func withSettings(cmd *cobra.Command) {
	cmd.SetContext(context.WithValue(cmd.Context(), settingsKey{}, settingsOf(cmd)))
}

// startedWith returns the settings of the command whose context this is.
func startedWith(ctx context.Context) flagValues {
	s, _ := ctx.Value(settingsKey{}).(flagValues)
	return s
}

// readSettings returns the settings that this process would have if it started now. Variables are
// those of its start.
func readSettings() (flagValues, error) {
	cmd, args, err := newRoot().Find(commandArgs(os.Args))
	if err != nil {
		return nil, err
	}
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	if err := configure(cmd, file, os.LookupEnv); err != nil {
		return nil, err
	}
	return settingsOf(cmd), nil
}

// reloader reads the settings and certificates of a running role again.
type reloader struct {
	levels  *telemetry.Levels
	health  *telemetry.Server
	apis    func() []*api.Server
	waiting func() []string
	// readFiles reads the settings in files that are not Heddle's own.
	readFiles func() (flagValues, error)

	mu      sync.Mutex
	running flagValues // in force
}

// change is a change that a role is ready to put in force.
type change struct {
	name           string
	apply, discard func() // discard may be nil
}

// reload puts in force what changed, or nothing if any of it cannot be.
func (r *reloader) reload() (done admin.Reloaded, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting()) == 0 { // otherwise the service manager waits for the start
		defer telemetry.Reloading()()
	}
	now, err := readSettings()
	if err != nil {
		return done, err
	}
	files, err := r.readFiles()
	if err != nil {
		return done, err
	}
	now = now.with(files)
	changes, err := r.prepare(now)
	if err != nil {
		for _, c := range changes {
			if c.discard != nil {
				c.discard()
			}
		}
		return done, err
	}
	done = admin.Reloaded{Applied: []string{}, Restart: r.needRestart(now)}
	for _, c := range changes {
		c.apply()
		done.Applied = append(done.Applied, c.name)
	}
	for _, name := range []string{logLevelFlag, metricsFlag} {
		r.running[name] = now[name]
	}
	return done, nil
}

// needRestart names the settings that differ and are read at the start alone.
func (r *reloader) needRestart(now flagValues) []string {
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(r.running.with(now))) { // a file may have lost some
		if now[name] != r.running[name] && name != logLevelFlag && name != metricsFlag {
			names = append(names, name)
		}
	}
	return names
}

// prepare returns the changes, with those prepared before an error.
func (r *reloader) prepare(now flagValues) (changes []change, err error) {
	level, err := telemetry.ParseLevel(now[logLevelFlag])
	if err != nil {
		return nil, err
	}
	if level != r.levels.Configured() {
		changes = append(changes, change{name: logLevelFlag, apply: func() { r.levels.Configure(level) }})
	}
	if now[metricsFlag] != r.running[metricsFlag] {
		move, discard, err := r.health.Listen(now[metricsFlag])
		if err != nil {
			return changes, err
		}
		changes = append(changes, change{metricsFlag, move, discard})
	}
	certificates, err := r.certificates()
	return append(changes, certificates...), err
}

// certificates returns the changes of the APIs' certificates, one for each file.
func (r *reloader) certificates() ([]change, error) {
	byFile, failed := map[string]change{}, map[string]error{}
	for _, server := range r.apis() {
		file, apply, err := server.ReadCertificate()
		if err != nil {
			failed[file] = err
		}
		if apply == nil {
			continue
		}
		before := byFile[file].apply
		byFile[file] = change{name: "certificate " + file, apply: func() {
			if before != nil {
				before()
			}
			apply()
		}}
	}
	var changes []change
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		changes = append(changes, byFile[file])
	}
	return changes, errors.Join(slices.Collect(maps.Values(failed))...)
}

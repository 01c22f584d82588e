package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/admin"
	"heddle/internal/command"
	"heddle/internal/telemetry"
	"heddle/internal/terminal"
)

// roleNames are the roles that have sockets.
var roleNames = []string{"agent", "dhcp-agent", "serve", "tunnel-controller", "xapi"}

// defaultLevel names the configured level of the log.
const defaultLevel = "default"

// sockets locates the sockets of this machine's roles.
type sockets struct{ dir string }

// socketFlags adds the flag of the sockets' directory.
func socketFlags(cmd *cobra.Command) *sockets {
	s := &sockets{}
	f := cmd.Flags()
	f.StringVar(&s.dir, "run-dir", admin.DefaultDir, "`directory` of the sockets of this machine's roles")
	ofSections(f, "run-dir", roleNames...)
	return s
}

// clients returns clients of a role, or of all that run here for "".
func (s *sockets) clients(ctx context.Context, role string) ([]*admin.Client, error) {
	if role != "" {
		if !slices.Contains(roleNames, role) {
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("role %q: want %s", role, strings.Join(roleNames, ", "))}
		}
		return []*admin.Client{admin.Dial(s.dir, role)}, nil
	}
	roles, err := admin.Roles(s.dir)
	if err != nil {
		return nil, err
	}
	var running []*admin.Client
	for _, name := range roles {
		c := admin.Dial(s.dir, name)
		if _, err := c.Status(ctx); errors.Is(err, admin.ErrNotRunning) {
			continue
		} else if err != nil {
			return nil, err
		}
		running = append(running, c)
	}
	if len(running) == 0 {
		return nil, fmt.Errorf("no role of Heddle has a socket in %s: is one running here? `systemctl status 'heddle*'` says so", s.dir)
	}
	return running, nil
}

// completeRoles completes the roles that run here.
func (s *sockets) completeRoles(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if err := settle(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	roles, err := admin.Roles(s.dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return plainWords(roles), cobra.ShellCompDirectiveNoFileComp
}

// completeLevels completes [PART=]LEVEL with the parts of a role, or of all that run here for "".
func (s *sockets) completeLevels(role *string) cobra.CompletionFunc {
	levels := []cobra.Completion{"debug", "info", "warn", "error", defaultLevel}
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if part, _, found := strings.Cut(word, "="); found {
			words := make([]cobra.Completion, len(levels))
			for i, level := range levels {
				words[i] = part + "=" + level
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		if err := settle(cmd); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		words := slices.Clone(levels)
		for _, part := range plainWords(s.parts(cmd.Context(), *role)) {
			words = append(words, part+"=")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// parts returns the parts that log of a role, or of all that run here for "". Roles that do not
// answer in time have none.
func (s *sockets) parts(ctx context.Context, role string) []string {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	roles := []string{role}
	if role == "" {
		roles, _ = admin.Roles(s.dir) // which fails for a bad pattern alone: none
	}
	found := make([][]string, len(roles))
	var done sync.WaitGroup
	for i, name := range roles {
		done.Go(func() {
			if l, err := admin.Dial(s.dir, name).LogLevels(ctx); err == nil {
				found[i] = l.Parts
			}
		})
	}
	done.Wait()
	all := slices.Concat(found...)
	slices.Sort(all)
	return slices.Compact(all)
}

func reloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload [ROLE]",
		Short: "Have the roles of this machine read settings and certificates again",
		Long: "Has one role, or all that run on this machine, read the configuration file and the certificates of the APIs again.\n" +
			"log-level, metrics and changed certificates are put in force: all of a role's, or none if one cannot be, which is\n" +
			"an error. Other settings that have changed are named; they take a restart.",
		Args: cobra.MaximumNArgs(1),
	}
	s := socketFlags(cmd)
	cmd.ValidArgsFunction = s.completeRoles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		clients, err := s.clients(cmd.Context(), strings.Join(args, ""))
		if err != nil {
			return err
		}
		var failed []error
		for _, c := range clients {
			done, err := c.Reload(cmd.Context())
			if err != nil {
				failed = append(failed, err)
				continue
			}
			printReloaded(cmd.OutOrStdout(), c.Role, done)
		}
		return errors.Join(failed...)
	}
	return cmd
}

func printReloaded(w io.Writer, role string, done admin.Reloaded) {
	applied := "nothing else has changed"
	if len(done.Applied) > 0 {
		applied = "reloaded " + strings.Join(done.Applied, ", ")
	} else if len(done.Restart) == 0 {
		applied = "nothing has changed"
	}
	if len(done.Restart) > 0 {
		applied = "needs a restart for " + strings.Join(done.Restart, ", ") + "; " + applied
	}
	terminal.Fprintf(w, "%s: %s\n", role, applied)
}

func logLevelCommand() *cobra.Command {
	var role string
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:   "log-level [PART=]LEVEL",
		Short: "Show or change what running roles of this machine log",
		Long: "Shows the levels of the logs of running roles and the parts that log, or changes the level of all parts or of one:\n" +
			"debug, info, warn, error, or default, which is the configured one. It lasts until the role ends, or --for a time.",
		Example: "  heddle log-level\n  heddle log-level debug --role agent --for 10m\n  heddle log-level overlay=debug\n  heddle log-level default",
		Args:    cobra.MaximumNArgs(1),
	}
	s := socketFlags(cmd)
	cmd.Flags().StringVar(&role, "role", "", "`role` such as agent or serve; default: all that run here")
	cmd.Flags().DurationVar(&lasting, "for", 0, "`time` after which the level is the configured one again, such as 10m (default until the role ends)")
	cmd.ValidArgsFunction = s.completeLevels(&role)
	registerCompletion(cmd, "role", s.completeRoles)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseLevelChange(args, lasting)
		if err != nil {
			return &command.Exit{Code: 2, Text: err.Error()}
		}
		clients, err := s.clients(cmd.Context(), role)
		if err != nil {
			return err
		}
		return changeLevels(cmd, clients, change)
	}
	return cmd
}

// parseLevelChange reads [PART=]LEVEL; nil for no argument.
func parseLevelChange(args []string, lasting time.Duration) (*admin.LogLevelChange, error) {
	if lasting < 0 || lasting%time.Second != 0 {
		return nil, fmt.Errorf("--for %v: want whole seconds", lasting)
	}
	if len(args) == 0 {
		if lasting != 0 {
			return nil, errors.New("--for: give a level, too")
		}
		return nil, nil
	}
	c := &admin.LogLevelChange{Level: args[0], Seconds: int(lasting / time.Second)}
	if part, level, found := strings.Cut(args[0], "="); found {
		c.Part, c.Level = part, level
	}
	if c.Level == defaultLevel {
		c.Level = ""
		return c, nil
	}
	_, err := telemetry.ParseLevel(c.Level)
	if err != nil {
		err = fmt.Errorf("%w, or default", err)
	}
	return c, err
}

// changeLevels changes the levels of roles, unless change is nil, and prints them. A part need be
// one of a single role only.
func changeLevels(cmd *cobra.Command, clients []*admin.Client, change *admin.LogLevelChange) error {
	var failed []error
	for _, c := range clients {
		var levels admin.LogLevels
		var err error
		if change == nil {
			levels, err = c.LogLevels(cmd.Context())
		} else {
			levels, err = c.SetLogLevel(cmd.Context(), *change)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		printLevels(cmd.OutOrStdout(), c.Role, levels)
	}
	if change != nil && change.Part != "" && len(failed) < len(clients) {
		return nil
	}
	return errors.Join(failed...)
}

func printLevels(w io.Writer, role string, l admin.LogLevels) {
	terminal.Fprintf(w, "%s: %s as configured; parts: %s\n", role, levelName(l.Level.String()), strings.Join(l.Parts, ", "))
	for _, o := range l.Overrides {
		of, until := o.Part, "until it ends"
		if of == "" {
			of = "all parts"
		}
		if !o.Until.IsZero() {
			until = "until " + o.Until.Local().Format(time.TimeOnly)
		}
		terminal.Fprintf(w, "%s: %s of %s, %s\n", role, levelName(o.Level.String()), of, until)
	}
}

func levelName(level string) string { return strings.ToLower(level) }

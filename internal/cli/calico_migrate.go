package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico/client"
	"heddle/calico/legacy"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// calicoMigrateCommand copies the legacy tree into the v1 tree.
func calicoMigrateCommand() *cobra.Command {
	var dryRun, remove bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Copy the legacy tree into the v1 tree, and remove it when asked to",
		Long: `Copies the endpoints and profiles of the tree of Calico's first days (seed 000, without /v1/ in its keys) into the v1 tree, reads them back,
and reports the outcome for each key: copy, same (v1 has it), drop (v1 has no reference counts), clash (v1 has another object there,
which is in force), invalid, held (another part of the same profile is refused). What is refused stays as it is, is listed with
the reason, and makes the exit code 1.

Agents that read both trees notice nothing: v1 wins whole, and an endpoint or profile is copied in one transaction. It may be stopped at
any moment and started again. Programs that still write the legacy tree should be stopped first; what they change after is a
clash the next time.

--dry-run prints what would be done. --remove-legacy then deletes the legacy tree, each object only as long as the v1 tree has the
same; while anything is refused it deletes nothing. To give up a legacy object that clashes: heddle calico delete --legacy.`,
		Args: cobra.NoArgs,
	}
	store := calicoStoreFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	cmd.Flags().BoolVar(&remove, "remove-legacy", false, "delete the legacy tree when all of it is in the v1 tree")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := wantJSON(*format); err != nil {
			return err
		}
		return store.do(func(c *client.Client) error { return migrate(cmd, c, *format, dryRun, remove) })
	}
	return cmd
}

// migrationStep is a step as it is printed.
type migrationStep struct {
	From    string         `json:"from"`
	To      string         `json:"to,omitempty"`
	Outcome legacy.Outcome `json:"outcome"`
	Why     string         `json:"why,omitempty"`
}

// migration is the command's result as JSON.
type migration struct {
	DryRun  bool            `json:"dry_run"`
	Removed bool            `json:"removed"` // the legacy tree
	Steps   []migrationStep `json:"steps"`
}

func migrate(cmd *cobra.Command, c *client.Client, format string, dryRun, remove bool) error {
	ctx, m := cmd.Context(), legacy.NewMigration(c)
	before, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	report := migration{DryRun: dryRun, Steps: migrationSteps(before)}
	if !dryRun {
		after, runErr := m.Run(ctx, progress(cmd.ErrOrStderr(), "copied"))
		if after == nil {
			return runErr
		}
		report.Steps = outcomes(before, after)
		err = runErr
		if remove && err == nil {
			err = m.Remove(ctx, progress(cmd.ErrOrStderr(), "removed"))
			report.Removed = err == nil
		}
	}
	if printErr := report.print(cmd.OutOrStdout(), format); printErr != nil {
		return printErr
	}
	if n := len(before.Refusals()); dryRun && n > 0 {
		return fmt.Errorf("%w: %d keys", legacy.ErrRefused, n)
	}
	return err
}

// progress returns a function that prints the progress of large migrations.
func progress(w io.Writer, what string) func(n, all int) {
	last := 0
	return func(n, all int) {
		if n-last >= 1000 || n == all && all >= 1000 {
			terminal.Fprintf(w, "%s %d of %d objects\n", what, n, all)
			last = n
		}
	}
}

func migrationSteps(p *legacy.Plan) []migrationStep {
	steps := []migrationStep{}
	for _, s := range p.Steps() {
		one := migrationStep{Outcome: s.Outcome, Why: s.Why}
		one.From, _ = s.From.Path() // it was read there
		if s.To != nil {
			one.To, _ = s.To.Path() // the same ids
		}
		steps = append(steps, one)
	}
	return steps
}

// outcomes returns the steps after a migration, marking those that it has copied.
func outcomes(before, after *legacy.Plan) []migrationStep {
	todo := map[string]bool{}
	for _, s := range migrationSteps(before) {
		todo[s.From] = s.Outcome == legacy.Copy
	}
	steps := migrationSteps(after)
	for i, s := range steps {
		if s.Outcome == legacy.Same && todo[s.From] {
			steps[i].Outcome = legacy.Copy
		}
	}
	return steps
}

func (m migration) print(w io.Writer, format string) error {
	if format == "json" {
		return command.PrintJSON(w, m)
	}
	if len(m.Steps) == 0 {
		_, err := terminal.Fprintln(w, "there is no legacy tree")
		return err
	}
	counts := map[legacy.Outcome]int{}
	var rows [][]string
	for _, s := range m.Steps {
		counts[s.Outcome]++
		to := cmp.Or(s.To, "-")
		if s.Why != "" {
			to += "  (" + s.Why + ")"
		}
		rows = append(rows, []string{string(s.Outcome), s.From, to})
	}
	if err := command.PrintTable(w, format, nil, []string{"OUTCOME", "FROM", "TO"}, rows); err != nil {
		return err
	}
	var summary []string
	for _, o := range slices.Sorted(maps.Keys(counts)) {
		summary = append(summary, fmt.Sprintf("%d %s", counts[o], o))
	}
	line := strings.Join(summary, ", ")
	switch {
	case m.DryRun:
		line += "; nothing was written"
	case m.Removed:
		line += "; the legacy tree is removed"
	}
	_, err := terminal.Fprintln(w, line)
	return err
}

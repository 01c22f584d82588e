package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"heddle/calico/client"
	"heddle/calico/legacy"
	"heddle/internal/command"
)

// calicoSweepCommand deletes unused profiles of the legacy tree.
func calicoSweepCommand() *cobra.Command {
	var every time.Duration
	var forever bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete profiles of the legacy tree that no endpoint names any more",
		Long: `Looks twice at the reference counts of the legacy tree's profiles, and deletes the profiles whose count is 0 at both looks and was not
changed between. Programs that keep the counts delete a profile with its last endpoint; this is for those that do not, and for
profiles that were made and never named. Counts that are wrong are reported on standard error, and their profiles kept.`,
		Args: cobra.NoArgs,
	}
	store := calicoStoreFlags(cmd)
	cmd.Flags().DurationVar(&every, "every", time.Minute, "`time` between two looks: longer than it takes from making a profile to naming it")
	cmd.Flags().BoolVar(&forever, "forever", false, "go on until interrupted")
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := wantJSON(*format); err != nil {
			return err
		}
		if every <= 0 {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--every %v: want a time above 0", every)}
		}
		return store.do(func(c *client.Client) error {
			collector := legacy.NewCollector(c)
			tick := time.NewTicker(every)
			defer tick.Stop()
			for look := 1; ; look++ {
				deleted, faults, err := collector.Sweep(cmd.Context())
				if err != nil {
					return err
				}
				if look > 1 { // the first only remembers
					printFaults(cmd.ErrOrStderr(), faults)
					if err := printApplied(cmd.OutOrStdout(), *format, deletedProfiles(deleted)); err != nil || !forever {
						return err
					}
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-tick.C:
				}
			}
		})
	}
	return cmd
}

func deletedProfiles(profiles []string) []outcome {
	results := []outcome{}
	for _, id := range profiles {
		results = append(results, outcome{profileKind, nameEscape.Replace(id), actionDeleted})
	}
	return results
}

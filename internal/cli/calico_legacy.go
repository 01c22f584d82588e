package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/legacy"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// legacyFlag adds the flag of commands that can use the legacy tree.
func legacyFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "legacy", false, "the tree of Calico's first days, without /v1/ in its keys")
}

// applyLegacy writes endpoints and profiles into the legacy tree, one after another, endpoints
// together with a single profile that is among the documents.
func applyLegacy(ctx context.Context, c *client.Client, manifests []manifest, errs io.Writer) ([]outcome, error) {
	profiles := map[string]*legacy.Profile{}
	for _, m := range manifests {
		switch {
		case m.profile != nil && m.profile.Labels != nil:
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: spec.labels: profiles of the legacy tree have none", m)}
		case m.profile != nil:
			profiles[m.profile.ID] = legacyProfile(m.profile)
		case m.kind.kind != calico.KindWorkloadEndpoint:
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: the legacy tree has endpoints of workloads and profiles alone", m)}
		}
	}
	w := legacy.NewWriter(c)
	var results []outcome
	for _, m := range manifests {
		if m.profile != nil {
			if err := w.SetProfile(ctx, m.profile.ID, profiles[m.profile.ID]); err != nil {
				return results, err
			}
			results = append(results, m.outcome(actionApplied))
		}
	}
	for _, m := range manifests {
		endpoint, ok := m.object.(*calico.WorkloadEndpoint)
		key, isKey := m.key.(calico.WorkloadEndpointKey)
		if !ok || !isKey {
			continue
		}
		var profile *legacy.Profile
		if len(endpoint.ProfileIDs) == 1 {
			profile = profiles[endpoint.ProfileIDs[0]]
		}
		faults, err := w.PutEndpoint(ctx, key, endpoint, profile)
		if err != nil {
			return results, err
		}
		printFaults(errs, faults)
		results = append(results, m.outcome(actionApplied))
	}
	return results, nil
}

func legacyProfile(p *client.Profile) *legacy.Profile {
	out := &legacy.Profile{}
	if p.Rules != nil {
		out.Rules = *p.Rules
	}
	if p.Tags != nil {
		out.Tags = *p.Tags
	}
	return out
}

// deleteLegacy deletes endpoints and profiles of the legacy tree, one after another.
func deleteLegacy(ctx context.Context, c *client.Client, targets []manifest, missingFine bool, errs io.Writer) ([]outcome, error) {
	w := legacy.NewWriter(c)
	var results []outcome
	for _, m := range targets {
		var faults []legacy.Fault
		var err error
		key, isEndpoint := m.key.(calico.WorkloadEndpointKey)
		switch {
		case isEndpoint:
			faults, err = w.DeleteEndpoint(ctx, key)
		case m.kind.kind == profileKind:
			err = w.DeleteProfile(ctx, m.ids[0])
		default:
			return results, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: of the legacy tree, delete a WorkloadEndpoint or a Profile", m)}
		}
		if errors.Is(err, client.ErrNotFound) && missingFine {
			continue
		}
		if err != nil {
			return results, err
		}
		printFaults(errs, faults)
		results = append(results, m.outcome(actionDeleted))
	}
	return results, nil
}

func printFaults(w io.Writer, faults []legacy.Fault) {
	for _, f := range faults {
		terminal.Fprintf(w, "heddle: %s: left as it is\n", f)
	}
}

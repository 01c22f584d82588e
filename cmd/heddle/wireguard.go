package main

import (
	"github.com/spf13/cobra"

	"heddle/internal/overlay"
	"heddle/internal/overlay/wireguard"
)

// wireguardCommand is the process that an agent starts if the kernel has no WireGuard.
func wireguardCommand() *cobra.Command {
	return &cobra.Command{
		Use:               overlay.WireguardCommand + " INTERFACE",
		Hidden:            true,
		Args:              cobra.ExactArgs(1),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // its settings come by its socket
		RunE:              func(cmd *cobra.Command, args []string) error { return wireguard.Serve(cmd.Context(), args[0]) },
	}
}

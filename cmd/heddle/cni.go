package main

import (
	"github.com/spf13/cobra"

	"heddle/internal/cni"
	"heddle/internal/command"
)

// cniName is the name by which container runtimes call their plug-in.
const cniName = "heddle-cni"

func cniCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cni",
		Short: "Give containers the interfaces of ports, as a plug-in of podman, containerd and others (CNI)",
		Long: `Called by a container runtime, not by people; by the name heddle-cni, heddle is this command. The runtime gives the command in the
environment (CNI_COMMAND) and a network configuration on standard input.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			failed := cni.Run(cmd.Context(), "CNI plug-in heddle-cni of heddle "+version)
			if failed == nil {
				return nil
			}
			if err := failed.Print(); err != nil {
				return err
			}
			return &command.Exit{Code: 1}
		},
	}
}

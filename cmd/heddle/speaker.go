package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/bgp"
	"heddle/internal/services"
)

// speakerCommand is the process that the agent of service containers starts to speak BGP for a
// router.
func speakerCommand() *cobra.Command {
	return &cobra.Command{
		Use:               services.SpeakerCommand,
		Hidden:            true,
		Args:              cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // its settings come by its socket
		RunE: func(cmd *cobra.Command, _ []string) error {
			listener, err := net.FileListener(os.NewFile(3, "agents"))
			if err != nil {
				return fmt.Errorf("socket of agents: %w: the agent starts this command with it", err)
			}
			return bgp.ServeRouter(cmd.Context(), bgp.RouterOptions{Listener: listener, Log: slog.New(slog.NewTextHandler(boundedLog{os.Stderr}, nil))})
		},
	}
}

// maxSpeakerLog bounds the file that a speaker logs to, bytes.
const maxSpeakerLog = 1 << 20

// boundedLog is a log file that begins anew when it is large: nothing rotates it.
type boundedLog struct{ file *os.File }

// Write implements io.Writer.
func (b boundedLog) Write(line []byte) (int, error) {
	if info, err := b.file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > maxSpeakerLog {
		if err := b.file.Truncate(0); err != nil {
			return 0, err
		}
	}
	return b.file.Write(line)
}

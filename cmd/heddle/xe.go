package main

import (
	"bufio"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"heddle/internal/cli"
	"heddle/internal/command"
	"heddle/internal/store/backend"
	"heddle/internal/terminal"
	"heddle/internal/xen/xe"
)

// xeName is the name by which scripts call the XenAPI's command line.
const xeName = "xe"

func xeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   xeName + " COMMAND [KEY=VALUE…]",
		Short: "Manage the networks of a pool by the XenAPI: Heddle's, XCP-ng's or XenServer's",
		Long: `The xe command line, as scripts know it; called by the name xe, heddle is this command.
  xe -s pool.example -u root -pw PASSWORD network-create name-label=private
  xe tunnel-create pif-uuid=UUID network-uuid=UUID
xe help --all lists the commands.`,
		DisableFlagParsing: true, // its switches are not those of other programs
		RunE: func(cmd *cobra.Command, args []string) error {
			home, _ := os.UserHomeDir() // without one there is no ~/.xe
			data := cmp.Or(os.Getenv(environmentName("data")), cli.DefaultDataDir)
			code := xe.Run(cmd.Context(), args, xe.Environment{
				Home: home, ExtraArgs: os.Getenv("XE_EXTRA_ARGS"), RootPasswordFile: filepath.Join(data, rootPasswordFile), AuthorityFile: backend.AuthorityFile(data),
				AskPassword: passwordPrompt(), Version: version, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
			})
			if code != 0 {
				return &command.Exit{Code: code}
			}
			return nil
		},
	}
}

// passwordPrompt returns a function that asks for a password at the terminal, nil without a
// terminal.
func passwordPrompt() func(context.Context) (string, error) {
	fd := int(os.Stdin.Fd())
	shown, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		terminal.Fprintf(os.Stderr, "Password: ")
		defer terminal.Fprintln(os.Stderr)
		hidden := *shown
		hidden.Lflag &^= unix.ECHO
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &hidden); err != nil {
			return "", err
		}
		defer unix.IoctlSetTermios(fd, unix.TCSETS, shown)
		typed := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // what there is until the end of input
			typed <- strings.TrimRight(line, "\r\n")
		}()
		select {
		case password := <-typed:
			return password, nil
		case <-ctx.Done(): // interrupted: the process exits, and the reader with it
			return "", context.Cause(ctx)
		}
	}
}

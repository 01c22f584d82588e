package cli

import (
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/api/operator"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// caCommand shows and exchanges the authority of the embedded store.
func caCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Show and exchange the authority that signs servers' and hosts' certificates",
		Long: `The servers make an authority at their first start, which signs the certificates of servers and hosts. heddle ca rotate exchanges it
without an outage: servers and hosts get new certificates by themselves.`,
	}
	cloud := cloudFlags(cmd)
	cmd.AddCommand(caStatusCommand(cloud), caRotateCommand(cloud))
	return cmd
}

func caStatusCommand(cloud *cloud.Config) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the authorities in force, and who has a certificate of which one",
		Long: "Shows the authorities that are trusted, what a rotation waits for, and the certificates of servers, hosts and programs. Ends with 1\n" +
			"while a rotation is not over or something is wrong; with --wait, if it still is after that time.",
		Args: cobra.NoArgs,
	}
	format := command.OutputFlag(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "`time` to wait for until no rotation is under way and nothing is wrong, such as 2m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, err := waitForAuthority(cmd, cloud, wait)
		if err != nil {
			return err
		}
		if *format == "text" {
			err = printAuthority(cmd.OutOrStdout(), v)
		} else {
			err = command.PrintTable(cmd.OutOrStdout(), *format, v, nil, nil)
		}
		if err == nil && !settled(v) {
			err = &command.Exit{Code: 1}
		}
		return err
	}
	return cmd
}

// settled reports whether there is nothing to do and to wait for.
func settled(v operator.Authorities) bool { return !v.Rotating && len(v.Problems) == 0 }

// waitForAuthority returns the status once it is settled, or that after the wait.
func waitForAuthority(cmd *cobra.Command, cloud *cloud.Config, wait time.Duration) (v operator.Authorities, err error) {
	for end := time.Now().Add(wait); ; {
		v = operator.Authorities{}
		err = callOperator(cmd, cloud, http.MethodGet, "/v1/authority", nil, &v)
		if err == nil && settled(v) || time.Until(end) < statusPause || !pause(cmd.Context(), statusPause) {
			return v, err
		}
	}
}

// authorityRoles are the words for the roles of authorities.
var authorityRoles = map[string]string{"signs": "signs", "next": "trusted, will sign", "former": "trusted, does not sign any more"}

// printAuthority prints what to do and to wait for first.
func printAuthority(w io.Writer, v operator.Authorities) error {
	say := func(format string, args ...any) { terminal.Fprintln(w, fmt.Sprintf(format, args...)) }
	for _, p := range v.Problems {
		say("WRONG    %s", p)
	}
	for _, one := range v.WaitingFor {
		say("waiting  %s", one)
	}
	names := map[string]string{}
	for _, a := range v.Authorities {
		names[a.Fingerprint] = a.Name
		say("authority %s: %s, until %s, SHA-256 %s", a.Name, authorityRoles[a.Role], a.End.Format(time.DateOnly), a.Fingerprint)
	}
	if len(v.Certificates) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	terminal.Fprintf(table, "\nCERTIFICATE OF\tNAME\tSTATE\tUNTIL\tSIGNED BY\n")
	for _, c := range v.Certificates {
		state, end, by := "down", "", names[c.SignedBy]
		switch {
		case c.Kind == "program":
			state = ""
		case c.Alive:
			state = "up"
		}
		if !c.End.IsZero() {
			end = c.End.Format(time.DateOnly)
		}
		switch {
		case by == "" && c.Former:
			by = "a former authority"
		case by == "":
			by = "not recorded"
		}
		terminal.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Kind, c.Name, state, end, by)
	}
	return table.Flush()
}

func caRotateCommand(cloud *cloud.Config) *cobra.Command {
	var retire bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Exchange the authority, without an outage",
		Long: `Makes a new authority, which is trusted beside the present one. Once all servers trust it, it signs, and servers and hosts get new
certificates by themselves; when no server, host or program has one of the authority before, that is trusted no more. While this goes on the command is refused:
heddle ca status shows how far it is. With --retire the end does not wait for hosts that are away.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&retire, "retire", false, "end the trust in the authority before now: hosts that are away renew when they come back, programs need new certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path := "/v1/authority/rotate"
		if retire {
			path = "/v1/authority/retire"
		}
		var v operator.Authorities
		if err := callOperator(cmd, cloud, http.MethodPost, path, nil, &v); err != nil {
			return err
		}
		return printAuthority(cmd.OutOrStdout(), v)
	}
	return cmd
}

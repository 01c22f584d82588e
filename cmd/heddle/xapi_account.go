package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/internal/store/backend"
	"heddle/internal/terminal"
	"heddle/internal/xen/model"
	"heddle/internal/xen/xapi"
)

// accountCommand administers the accounts of a pool in its store.
func (c *xapiConfig) accountCommand() *cobra.Command {
	account := &cobra.Command{Use: "account", Short: "Manage the accounts of the pool and their roles"}
	var role, passwordFile string
	add := func(use, short string, args int, do func(ctx context.Context, a *xapi.Accounts, args []string) error) *cobra.Command {
		cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args), RunE: func(cmd *cobra.Command, args []string) error {
			return c.withAccounts(cmd.Context(), func(ctx context.Context, a *xapi.Accounts) error { return do(ctx, a, args) })
		}}
		account.AddCommand(cmd)
		return cmd
	}
	addWithPassword := func(use, short string, do func(ctx context.Context, a *xapi.Accounts, name, password string) error) *cobra.Command {
		cmd := add(use, short, 1, func(ctx context.Context, a *xapi.Accounts, args []string) error {
			password, err := readPassword(passwordFile)
			if err != nil {
				return err
			}
			return do(ctx, a, args[0], password)
		})
		cmd.Flags().StringVar(&passwordFile, "password-file", "", "`file` whose first line is the password, - for standard input")
		if err := cmd.MarkFlagRequired("password-file"); err != nil {
			panic(err) // the flag is the one above
		}
		return cmd
	}
	addWithPassword("add NAME", "Make an account", func(ctx context.Context, a *xapi.Accounts, name, password string) error {
		return a.Add(ctx, name, password, model.Role(role))
	}).Flags().StringVar(&role, "role", string(model.PoolAdmin), "one of "+roleList())
	addWithPassword("passwd NAME", "Give an account another password; its sessions end", func(ctx context.Context, a *xapi.Accounts, name, password string) error {
		return a.SetPassword(ctx, name, password)
	})
	add("role NAME ROLE", "Give an account another role: one of "+roleList(), 2, func(ctx context.Context, a *xapi.Accounts, args []string) error {
		return a.SetRole(ctx, args[0], model.Role(args[1]))
	})
	add("delete NAME", "Delete an account; its sessions end", 1, func(ctx context.Context, a *xapi.Accounts, args []string) error {
		return a.Delete(ctx, args[0])
	})
	add("list", "List the accounts", 0, func(ctx context.Context, a *xapi.Accounts, _ []string) error {
		all, err := a.List(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(account.OutOrStdout(), 0, 4, 2, ' ', 0)
		for _, one := range all {
			terminal.Fprintf(w, "%s\t%s\n", one.Name, one.Role)
		}
		return w.Flush()
	})
	return account
}

func roleList() string {
	var names []string
	for _, r := range model.Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// readPassword returns the first line of a file.
func readPassword(file string) (string, error) {
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", usagef("--password-file: %w", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, 4096))
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", usagef("--password-file %s: its first line is empty; the password is to be there", file)
	}
	return line, nil
}

// withAccounts opens the pool's store: a cluster, or that of this machine's server.
func (c *xapiConfig) withAccounts(ctx context.Context, f func(context.Context, *xapi.Accounts) error) error {
	log, err := c.log.logger()
	if err != nil {
		return usageError{err}
	}
	var st *backend.Etcd
	if len(c.etcd.Endpoints) > 0 {
		st, err = c.etcd.open(ctx, nil, nil, log)
	} else {
		st, err = backend.OpenRunning(ctx, c.data, log)
		err = storeError(err)
	}
	if err != nil || st == nil {
		return err
	}
	defer st.Close()
	return xapi.WithAccounts(ctx, st, log, f)
}

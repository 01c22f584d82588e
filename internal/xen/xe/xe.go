// Package xe is the command line of the XenAPI: the commands, fields, output and errors of the xe
// that XCP-ng and XenServer ship, as far as networks reach (docs/xenapi.md). It is a client like
// any other. What differs on purpose: a server's certificate must be known (ca=, fingerprint=), and
// failures also show their code.
package xe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// Environment is the environment of a run of xe.
type Environment struct {
	Home             string                                // of ~/.xe; "" for none
	ExtraArgs        string                                // XE_EXTRA_ARGS
	RootPasswordFile string                                // where a server on this machine keeps root's password, which is used when none is given
	AuthorityFile    string                                // and the authority of its certificate, without which it does not get that password
	AskPassword      func(context.Context) (string, error) // prompts for a password that is not configured; nil: no prompt
	Version          string
	Out, Err         io.Writer
}

// Run runs the command of these words, and returns the exit code: 0, or 1 when it failed.
func Run(ctx context.Context, words []string, env Environment) int {
	x := &run{env: env, commands: commands()}
	err := x.run(ctx, words)
	if err == nil {
		_, err = env.Out.Write(x.out.Bytes())
	}
	if err == nil {
		return 0
	}
	ctx = context.WithoutCancel(ctx)
	env.Err.Write(x.trace.Bytes())
	report(ctx, env.Err, x.api, err)
	x.close(ctx)
	return 1
}

// run is one run of xe.
type run struct {
	env      Environment
	commands []*command
	session  *client.Session
	api      api          // of session, nil before
	out      bytes.Buffer // kept until the command has succeeded
	trace    bytes.Buffer // kept until the command has failed
}

func (x *run) run(ctx context.Context, words []string) error {
	a, err := parse(words)
	switch {
	case err != nil:
		return err
	case a.version:
		fmt.Fprintf(&x.out, "xe of Heddle %s\n", x.env.Version)
		return nil
	case a.command == "help":
		return x.help(a)
	case a.command == "" || a.help:
		fmt.Fprint(x.env.Err, usage)
		return nil
	}
	cmd := x.command(a.command)
	if cmd == nil {
		return usageError("Unknown command: %s", a.command)
	}
	for _, key := range cmd.required {
		if _, ok := a.params.get(key); !ok {
			return missing(key)
		}
	}
	if err := x.connect(ctx, a); err != nil {
		return err
	}
	c := &call{ctx: ctx, api: x.api, session: x.session, params: a.params.without("minimal"), minimal: a.params.on("minimal"), out: &x.out}
	if err := cmd.run(c); err != nil {
		return err
	}
	x.close(ctx)
	return nil
}

// command is the command of that name.
func (x *run) command(name string) *command {
	for _, c := range x.commands {
		if c.name == name {
			return c
		}
	}
	return nil
}

// connect logs in.
func (x *run) connect(ctx context.Context, a *arguments) error {
	set, err := settings(a, x.env)
	if err != nil {
		return err
	}
	conn, err := connectionOf(ctx, set, x.env)
	if err != nil {
		return err
	}
	if x.session, err = conn.dial(ctx); err != nil {
		return err
	}
	x.api = x.session
	switch {
	case isTrue(set["debug"]):
		x.api = &traced{x.session, x.env.Err}
	case isTrue(set["debug-on-fail"]):
		x.api = &traced{x.session, &x.trace}
	}
	return nil
}

// logoutTimeout bounds the logout: the command has done its work.
const logoutTimeout = 2 * time.Second

// close logs out. An unreachable server ends the session by itself.
func (x *run) close(ctx context.Context) {
	if x.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	x.session.Close(ctx)
}

// traced reports each call, without its arguments, which may hold passwords.
type traced struct {
	*client.Session
	w io.Writer
}

// Call is that of the session.
func (t *traced) Call(ctx context.Context, method string, args ...any) (any, error) {
	v, err := t.Session.Call(ctx, method, args...)
	t.report(method, err)
	return v, err
}

// Records is that of the session.
func (t *traced) Records(ctx context.Context, class string) (map[string]model.Record, error) {
	records, err := t.Session.Records(ctx, class)
	t.report(class+".get_all_records", err)
	return records, err
}

func (t *traced) report(method string, err error) {
	outcome := "done"
	if err != nil {
		outcome = cmp.Or(client.Code(err), err.Error())
	}
	fmt.Fprintf(t.w, "%s: %s\n", method, outcome)
}

package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cloud"
	"heddle/internal/command"
)

// PerCall is an annotation of flags that describe one call: neither environment nor configuration
// file sets them.
const PerCall = "heddle_per_call"

func perCall(f *pflag.FlagSet, name string) {
	if err := f.SetAnnotation(name, PerCall, nil); err != nil {
		panic(err) // no such flag
	}
}

// resourceCommands returns the commands for objects of the Neutron API.
func resourceCommands() []*cobra.Command {
	var all []*cobra.Command
	groups, logins := map[cloud.Kind]*cobra.Command{}, map[cloud.Kind]*cloud.Config{}
	for _, r := range resources() {
		cmd := &cobra.Command{Use: r.use, Short: fmt.Sprintf("Manage %ss", r.kind)}
		if r.alias != "" {
			cmd.Aliases = []string{r.alias}
		}
		var login *cloud.Config
		if r.within {
			login = logins[r.argument.of]
			groups[r.argument.of].AddCommand(cmd)
		} else {
			login = cloudFlags(cmd)
			all = append(all, cmd)
		}
		groups[r.kind], logins[r.kind] = cmd, login
		cmd.AddCommand(r.listCommand(login), r.createCommand(login), r.deleteCommand(login))
		if !r.within {
			cmd.AddCommand(r.showCommand(login), r.setCommand(login))
		}
	}
	for k, actions := range map[cloud.Kind][]action{cloud.Router: routerActions(), cloud.FloatingIP: floatingIPActions()} {
		for _, a := range actions {
			groups[k].AddCommand(a.command(logins[k]))
		}
	}
	return all
}

// neutron logs in to the Neutron API.
func neutron(cmd *cobra.Command, login *cloud.Config) (*cloud.Neutron, error) {
	s, err := login.Login(cmd.Context())
	if err != nil {
		return nil, err
	}
	return s.Neutron()
}

// objectFormat adds -o to a command that prints objects.
func objectFormat(cmd *cobra.Command) *string {
	format := cmd.Flags().StringP("output", "o", "text", "text, json, or name for names alone")
	registerCompletion(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"text", "json", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return format
}

// neutronFor is neutron for a command that prints objects, once its format is known to be one.
func neutronFor(cmd *cobra.Command, login *cloud.Config, format string) (*cloud.Neutron, error) {
	if !slices.Contains([]string{"text", "json", "name"}, format) {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text, json or name", format)}
	}
	return neutron(cmd, login)
}

func (r resource) listCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: fmt.Sprintf("List %ss", r.kind), Args: cobra.NoArgs}
	if r.within {
		cmd.Use, cmd.Args = "list "+r.argument.flag, cobra.ExactArgs(1)
		cmd.ValidArgsFunction = arguments(completeObjects(login, r.argument.of))
	}
	format := objectFormat(cmd)
	var filters []setting
	for _, s := range r.settings {
		if s.filters {
			filters = append(filters, s)
			cmd.Flags().String(s.flag, "", "of this `"+s.flag+"` only")
			s.completeFlag(cmd, login)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := neutronFor(cmd, login, *format)
		if err != nil {
			return err
		}
		query := map[string]any{}
		if r.within {
			err = r.argument.resolve(cmd.Context(), api, args, query)
		}
		if err == nil {
			err = given(cmd, api, filters, query)
		}
		if err != nil {
			return err
		}
		values := url.Values{}
		for attribute, v := range query {
			values.Set(attribute, fmt.Sprint(v))
		}
		return r.list(cmd, api, values, *format)
	}
	return cmd
}

func (r resource) showCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "show " + r.object(), Short: fmt.Sprintf("Show a %s", r.kind), Args: cobra.ExactArgs(1), ValidArgsFunction: arguments(completeObjects(login, r.kind))}
	format := objectFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := neutronFor(cmd, login, *format)
		if err != nil {
			return err
		}
		id, err := api.Find(cmd.Context(), r.kind, args[0])
		if err != nil {
			return err
		}
		var o cloud.Object
		if err := api.Get(cmd.Context(), r.kind, id, &o); err != nil {
			return err
		}
		return r.printOne(cmd, api, o, *format)
	}
	return cmd
}

func (r resource) createCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: r.create + " " + r.argument.flag, Short: fmt.Sprintf("%s%s a %s", strings.ToUpper(r.create[:1]), r.create[1:], r.kind), Args: cobra.ExactArgs(1)}
	if r.argument.of != "" {
		cmd.ValidArgsFunction = arguments(completeObjects(login, r.argument.of))
	} else {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	format := objectFormat(cmd)
	settings := slices.DeleteFunc(slices.Clone(r.settings), func(s setting) bool { return !s.onCreate })
	addSettings(cmd, login, settings, true)
	for _, s := range settings {
		if s.required {
			if err := cmd.MarkFlagRequired(s.flag); err != nil {
				panic(err) // no such flag
			}
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("%s: %s is empty", cmd.CommandPath(), r.argument.flag)}
		}
		api, err := neutronFor(cmd, login, *format)
		if err != nil {
			return err
		}
		attributes := map[string]any{}
		if err := r.argument.resolve(cmd.Context(), api, args, attributes); err != nil {
			return err
		}
		if err := given(cmd, api, settings, attributes); err != nil {
			return err
		}
		if r.derive != nil {
			r.derive(attributes)
		}
		made, err := api.Create(cmd.Context(), r.kind, attributes)
		if err != nil {
			return err
		}
		if r.note != nil {
			r.note(cmd, login, attributes, made)
		}
		return r.printOne(cmd, api, made, *format)
	}
	return cmd
}

func (r resource) setCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "set " + r.object(), Short: fmt.Sprintf("Change a %s", r.kind), Args: cobra.ExactArgs(1), ValidArgsFunction: arguments(completeObjects(login, r.kind))}
	settings := slices.DeleteFunc(slices.Clone(r.settings), func(s setting) bool { return !s.onSet })
	addSettings(cmd, login, settings, false)
	flags := make([]string, len(settings))
	for i, s := range settings {
		flags[i] = s.flag
	}
	cmd.MarkFlagsOneRequired(flags...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := neutron(cmd, login)
		if err != nil {
			return err
		}
		id, err := api.Find(cmd.Context(), r.kind, args[0])
		if err != nil {
			return err
		}
		attributes := map[string]any{}
		if err := given(cmd, api, settings, attributes); err != nil {
			return err
		}
		changed, err := api.Update(cmd.Context(), r.kind, id, attributes)
		if err == nil && r.note != nil {
			r.note(cmd, login, attributes, changed)
		}
		return err
	}
	return cmd
}

func (r resource) deleteCommand(login *cloud.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "delete " + r.object() + "…", Short: fmt.Sprintf("Delete %ss", r.kind), Args: cobra.MinimumNArgs(1), ValidArgsFunction: others(completeObjects(login, r.kind))}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := neutron(cmd, login)
		if err != nil {
			return err
		}
		ids := make([]string, len(args))
		for i, arg := range args { // before any is deleted
			if ids[i], err = api.Find(cmd.Context(), r.kind, arg); err != nil {
				return err
			}
		}
		for i, id := range ids {
			if err := api.Delete(cmd.Context(), r.kind, id); err != nil {
				return blockedBy(cmd.Context(), api, r.kind, id, args[i], err)
			}
		}
		return nil
	}
	return cmd
}

// object returns the word for one in the usage of a command.
func (r resource) object() string { return strings.ToUpper(r.use) }

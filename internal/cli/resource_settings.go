package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/internal/cloud"
	"heddle/internal/command"
)

// addSettings adds the flags of settings, of a command that creates an object or changes one.
func addSettings(cmd *cobra.Command, login *cloud.Config, settings []setting, creates bool) {
	f := cmd.Flags()
	for _, s := range settings {
		if creates && s.absent != "" {
			s.usage += "; default: " + s.absent
		}
		switch s.form {
		case formText:
			f.String(s.flag, "", s.usage)
		case formList:
			f.StringSlice(s.flag, nil, s.usage)
		case formNumber:
			f.Int(s.flag, 0, s.usage)
		case formTruth:
			f.Bool(s.flag, false, s.usage)
		}
		s.completeFlag(cmd, login)
	}
}

// completeFlag adds the completion of a setting's flag, and keeps the flag for one call.
func (s setting) completeFlag(cmd *cobra.Command, login *cloud.Config) {
	perCall(cmd.Flags(), s.flag)
	switch {
	case s.complete != nil:
		registerCompletion(cmd, s.flag, s.complete(login))
	case s.of != "":
		registerCompletion(cmd, s.flag, completeObjects(login, s.of))
	}
	if s.choices != nil {
		registerCompletion(cmd, s.flag, cobra.FixedCompletions(s.choices, cobra.ShellCompDirectiveNoFileComp))
	}
}

// given sets the attributes of the flags on the command line.
func given(cmd *cobra.Command, api *cloud.Neutron, settings []setting, attributes map[string]any) error {
	for _, s := range settings {
		flag := cmd.Flags().Lookup(s.flag)
		if !flag.Changed {
			continue
		}
		if err := s.fromFlag(cmd, api, flag, attributes); err != nil {
			return err
		}
	}
	return nil
}

func (s setting) fromFlag(cmd *cobra.Command, api *cloud.Neutron, flag *pflag.Flag, attributes map[string]any) (err error) {
	switch s.form {
	case formNumber:
		attributes[s.attribute], err = cmd.Flags().GetInt(s.flag)
	case formTruth:
		attributes[s.attribute], err = cmd.Flags().GetBool(s.flag)
	case formList:
		var texts []string
		if texts, err = cmd.Flags().GetStringSlice(s.flag); err == nil {
			err = s.resolve(cmd.Context(), api, texts, attributes)
		}
	case formText:
		err = s.resolve(cmd.Context(), api, []string{flag.Value.String()}, attributes)
	}
	return err
}

// resolve sets the attribute of a text or list, whose names become ids.
func (s setting) resolve(ctx context.Context, api *cloud.Neutron, texts []string, attributes map[string]any) error {
	if s.form == formList && len(texts) == 1 && texts[0] == noValue {
		texts = []string{}
	}
	if s.of != "" {
		ids := make([]string, len(texts))
		for i, t := range texts {
			id, err := api.Find(ctx, s.of, t)
			if err != nil {
				return err
			}
			ids[i] = id
		}
		texts = ids
	}
	switch {
	case s.put != nil:
		if err := s.put(attributes, texts); err != nil {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--%s: %v", s.flag, err)}
		}
	case s.form == formList:
		attributes[s.attribute] = texts
	default:
		attributes[s.attribute] = texts[0]
	}
	return nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/selector"
	"heddle/internal/command"
)

const kindHelp = `A kind is named as in documents (WorkloadEndpoint), in any case, or short: wep, hep, prof, policy, tier, pool, node, config,
bgppeer, block, … (heddle calico list shows what there is of each). Objects are named by their ids joined with slashes:

  WorkloadEndpoint HOST/ORCHESTRATOR/WORKLOAD/ENDPOINT     Policy TIER/POLICY, or POLICY in the tier default
  HostEndpoint HOST/ENDPOINT                               IPPool 10.0.0.0/16

A slash within an id is written %2f, but in a CIDR or the name of a setting.`

// objectView is an object that was read. Parts of a profile are joined into the kind Profile.
type objectView struct {
	kind     calicoKind
	ids      []string
	doc      document
	object   any          // nil of a profile, and of what is not valid
	labels   selector.Map // own and inherited, where the kind has labels
	revision int64
	path     string
}

func (f objectView) name() string { return f.kind.name(f.ids) }

// host returns the host that the object belongs to, or "".
func (f objectView) host() string {
	if len(f.kind.ids) == 0 || f.kind.ids[0] != "host" {
		return ""
	}
	return f.ids[0]
}

// calicoGetCommand prints objects.
func calicoGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get KIND [NAME…]",
		Short: "Print objects: all of a kind, or those named",
		Long:  "Prints objects of Calico's data model. What -o yaml and -o json print, heddle calico apply reads.\n\n" + kindHelp,
		Args:  cobra.MinimumNArgs(1),
	}
	store := calicoStoreFlags(cmd)
	o := listFlags(cmd, store)
	cmd.ValidArgsFunction = completeNames(store)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := findKind(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd, store, []calicoKind{k}, args[1:])
	}
	return cmd
}

// calicoListCommand prints all objects of some kinds.
func calicoListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [KIND…]",
		Short: "Print all objects of some kinds; without a kind, how many there are of each",
		Long:  "Prints all objects of the kinds named. Without a kind it prints how many objects there are of each.\n\n" + kindHelp,
	}
	store := calicoStoreFlags(cmd)
	o := listFlags(cmd, store)
	cmd.ValidArgsFunction = completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return countKinds(cmd, store, o)
		}
		kinds, err := findKinds(args)
		if err != nil {
			return err
		}
		return o.run(cmd, store, kinds, nil)
	}
	return cmd
}

func findKinds(names []string) ([]calicoKind, error) {
	var kinds []calicoKind
	for _, name := range names {
		k, err := findKind(name)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// listOptions select objects and the format.
type listOptions struct {
	format, selector, host string
	legacy                 bool
}

func listFlags(cmd *cobra.Command, store *calicoStore) *listOptions {
	o := &listOptions{}
	cmd.Flags().StringVarP(&o.format, "output", "o", "text", "text, wide, yaml or json")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only what this selector `expression` picks by labels: endpoints by their own and their profiles', as a policy would; profiles by theirs")
	cmd.Flags().StringVar(&o.host, "host", "", "only what belongs to this `host`")
	legacyFlag(cmd, &o.legacy)
	registerCompletion(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"text", "wide", "yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	registerCompletion(cmd, "selector", completeSelector(store))
	registerCompletion(cmd, "host", completeHosts(store))
	return o
}

func (o *listOptions) run(cmd *cobra.Command, store *calicoStore, kinds []calicoKind, names []string) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	pick, err := o.picker()
	if err != nil {
		return err
	}
	var all []objectView
	err = store.do(func(c *client.Client) error {
		for _, k := range kinds {
			some, err := o.read(cmd.Context(), c, k, names)
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(f objectView) bool { return !pick(f) })
	if err := printFound(cmd.OutOrStdout(), o.format, kinds, all, len(names) == 1); err != nil || len(names) == 0 {
		return err
	}
	return invalid(all)
}

// invalid returns an error that names the invalid objects.
func invalid(all []objectView) error {
	var errs []error
	for _, f := range all {
		if f.doc.Invalid != "" {
			errs = append(errs, fmt.Errorf("%s %s is invalid: %s; mend it with heddle calico apply, or delete it", f.kind.kind, f.name(), f.doc.Invalid))
		}
	}
	return errors.Join(errs...)
}

// read reads the objects of a kind with these names, or all of them.
func (o *listOptions) read(ctx context.Context, c *client.Client, k calicoKind, names []string) ([]objectView, error) {
	ids := make([]string, len(k.ids))
	if o.host != "" && len(k.ids) > 0 && k.ids[0] == "host" {
		ids[0] = o.host
	}
	if len(names) == 0 {
		return readKind(ctx, c, k, ids, o)
	}
	var all []objectView
	var missing []error
	for _, name := range names {
		ids, err := k.parseName(name)
		if err != nil {
			return nil, err
		}
		one, err := readKind(ctx, c, k, ids, o)
		if err != nil {
			return nil, err
		}
		if len(one) == 0 {
			missing = append(missing, fmt.Errorf("%s %s: %w", k.kind, k.name(ids), client.ErrNotFound))
		}
		all = append(all, one...)
	}
	return all, errors.Join(missing...)
}

// picker returns whether the flags select an object.
func (o *listOptions) picker() (func(objectView) bool, error) {
	var s *selector.Selector
	if o.selector != "" {
		var err error
		if s, err = selector.Parse(o.selector); err != nil {
			return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("--selector: %v", err)}
		}
	}
	return func(f objectView) bool {
		if o.host != "" && f.host() != o.host {
			return false
		}
		return s == nil || f.labels != nil && s.Match(f.labels)
	}, nil
}

// readKind reads the objects of a kind with these ids. An empty id matches any.
func readKind(ctx context.Context, c *client.Client, k calicoKind, ids []string, o *listOptions) ([]objectView, error) {
	filter, err := k.key(ids, o.legacy && k.kind != calico.KindProfileRefcount)
	if err != nil {
		return nil, &command.Exit{Code: 2, Text: fmt.Sprintf("%s: %v", k.kind, err)}
	}
	if _, err := calico.Prefixes(filter); err != nil {
		return nil, &command.Exit{Code: 2, Text: err.Error()}
	}
	filters := []calico.Key{filter}
	if rules, ok := filter.(calico.ProfileRulesKey); ok && k.kind == profileKind {
		filters = append(filters, calico.ProfileTagsKey(rules))
		if !rules.Legacy {
			filters = append(filters, calico.ProfileLabelsKey{Profile: rules.Profile})
		}
	} else if o.selector != "" {
		filters = append(filters, calico.ProfileLabelsKey{}) // for endpoints to inherit
	}
	s, err := c.List(ctx, filters...)
	if err != nil {
		return nil, err
	}
	return k.gather(s), nil
}

// gather returns the objects of the kind in a snapshot.
func (k calicoKind) gather(s *client.Snapshot) []objectView {
	inherited := profileLabels(s)
	var all []objectView
	for _, e := range s.Entries {
		if k.kind == profileKind {
			all = addPart(all, k, e)
			continue
		}
		if e.Key.Kind() != k.kind {
			continue
		}
		all = append(all, objectView{
			kind: k, ids: idsOf(e.Key), doc: documentOf(k, e), object: e.Object, labels: labelsOf(e.Object, inherited), revision: e.Revision, path: e.Path,
		})
	}
	return all
}

func profileLabels(s *client.Snapshot) map[string]calico.ProfileLabels {
	all := map[string]calico.ProfileLabels{}
	for key, labels := range client.All[*calico.ProfileLabels](s) {
		if k, ok := key.(calico.ProfileLabelsKey); ok {
			all[k.Profile] = *labels
		}
	}
	return all
}

// labelsOf returns the labels by which selectors match an object: an endpoint's own, then those of
// its profiles in order; nil for an object of a kind without labels.
func labelsOf(object any, inherited map[string]calico.ProfileLabels) selector.Map {
	inherit := func(own map[string]string, profiles []string) selector.Map {
		labels := selector.Map{}
		for _, id := range slices.Backward(profiles) {
			maps.Copy(labels, inherited[id])
		}
		maps.Copy(labels, own)
		return labels
	}
	switch o := object.(type) {
	case *calico.WorkloadEndpoint:
		return inherit(o.Labels, o.ProfileIDs)
	case *calico.HostEndpoint:
		return inherit(o.Labels, o.ProfileIDs)
	case *calico.ProfileLabels:
		return inherit(*o, nil)
	}
	return nil
}

// addPart adds a part of a profile to the last profile, or begins another: parts are in sequence.
func addPart(all []objectView, k calicoKind, e client.Entry) []objectView {
	ids := idsOf(e.Key)
	if len(all) == 0 || all[len(all)-1].ids[0] != ids[0] {
		path := strings.TrimSuffix(e.Path, e.Path[strings.LastIndex(e.Path, "/"):])
		all = append(all, objectView{kind: k, ids: ids, doc: document{Kind: k.kind, Metadata: k.metadataOf(ids)}, labels: selector.Map{}, path: path})
	}
	f := &all[len(all)-1]
	f.revision = max(f.revision, e.Revision)
	f.doc.addPart(e)
	if labels, ok := e.Object.(*calico.ProfileLabels); ok {
		f.labels = labelsOf(labels, nil)
	}
	return all
}

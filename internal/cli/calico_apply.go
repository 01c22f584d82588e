package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

// documentHelp describes documents.
const documentHelp = `A file holds any number of YAML documents (separated by ---) or JSON, each an object or a list of objects:

  kind: WorkloadEndpoint
  metadata: {host: h1, orchestrator: vm, workload: web, endpoint: eth0}
  spec:
    state: active
    name: tap1
    ipv4_nets: [10.0.0.1/32]
    profile_ids: [web]

Kinds and the ids in metadata are those of heddle calico key; spec is the object as the data model stores it. A Profile has its
three parts in one spec: {rules: {inbound_rules: […], outbound_rules: […]}, tags: […], labels: {…}}. Settings and other bare
values are text, such as spec: "64512". heddle calico get -o yaml writes such files.`

// calicoApplyCommand writes objects.
func calicoApplyCommand() *cobra.Command {
	var files []string
	var old bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or replace objects from YAML or JSON",
		Long: `Checks all objects, then writes them in one transaction: all of them, or none. (An etcd that does not take so large a transaction
gets them in the order given.) An object is replaced whole, but for members that Heddle does not know; one that is as it should be
is not written.

With --legacy it writes endpoints of workloads and profiles into the legacy tree, one after another, and keeps the reference counts.

` + documentHelp,
		Args: cobra.NoArgs,
	}
	store := calicoStoreFlags(cmd)
	fileFlag(cmd, &files)
	legacyFlag(cmd, &old)
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := wantJSON(*format); err != nil {
			return err
		}
		manifests, err := readFiles(files, cmd.InOrStdin())
		if err != nil {
			return err
		}
		return store.do(func(c *client.Client) (err error) {
			var results []outcome
			if old {
				results, err = applyLegacy(cmd.Context(), c, manifests, cmd.ErrOrStderr())
			} else {
				results, err = applyAll(cmd.Context(), c, manifests)
			}
			return errors.Join(printApplied(cmd.OutOrStdout(), *format, results), err)
		})
	}
	return cmd
}

// fileFlag adds -f, which must be given.
func fileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "`file` of documents, directory of .yaml, .yml and .json files, or - for standard input; repeatable")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
}

// readFiles reads all documents of all files, which must be of different objects. Errors are of the
// input.
func readFiles(names []string, stdin io.Reader) ([]manifest, error) {
	var all []manifest
	var wrong []error
	for _, name := range names {
		paths, err := expand(name)
		if err != nil {
			return nil, &command.Exit{Code: 2, Text: err.Error()}
		}
		for _, path := range paths {
			text, err := readInput(path, stdin)
			if err != nil {
				return nil, &command.Exit{Code: 2, Text: err.Error()}
			}
			some, err := readManifests(path, text)
			all = append(all, some...)
			wrong = append(wrong, err)
		}
	}
	seen := map[calico.Key]manifest{}
	for _, m := range all {
		for _, key := range m.keys() {
			if other, twice := seen[key]; twice {
				wrong = append(wrong, fmt.Errorf("%s: it is there twice, also as %s", m, other))
				break
			}
			seen[key] = m
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, &command.Exit{Code: 2, Text: err.Error()}
	}
	if len(all) == 0 {
		return nil, &command.Exit{Code: 2, Text: strings.Join(names, ", ") + ": no documents in it"}
	}
	return all, nil
}

// keys returns where the object is stored.
func (m manifest) keys() []calico.Key {
	if m.profile == nil {
		return []calico.Key{m.key}
	}
	id := m.profile.ID
	return []calico.Key{calico.ProfileRulesKey{Profile: id}, calico.ProfileTagsKey{Profile: id}, calico.ProfileLabelsKey{Profile: id}}
}

// expand returns the files of a directory in the order of names, or a file itself.
func expand(name string) ([]string, error) {
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return []string{name}, nil // a file that is missing is found so when it is read
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			paths = append(paths, filepath.Join(name, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json files in it", name)
	}
	return paths, nil
}

func readInput(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// outcome is the result for one object.
type outcome struct {
	Kind   calico.Kind `json:"kind"`
	Name   string      `json:"name"`
	Action string      `json:"action"`
}

func (m manifest) outcome(action string) outcome {
	return outcome{m.kind.kind, m.kind.name(m.ids), action}
}

func printApplied(w io.Writer, format string, results []outcome) error {
	if format == "json" {
		return command.PrintJSON(w, results)
	}
	for _, o := range results {
		if _, err := terminal.Fprintln(w, strings.TrimSpace(string(o.Kind)+" "+o.Name), o.Action); err != nil {
			return err
		}
	}
	return nil
}

// Outcomes of apply and delete.
const (
	actionCreated   = "created"
	actionChanged   = "changed"
	actionUnchanged = "unchanged"
	actionApplied   = "applied" // to the legacy tree
	actionDeleted   = "deleted"
)

// change is an object's outcome and the operations for it.
type change struct {
	outcome outcome
	ops     []client.Op
}

// applyAll writes all objects in one transaction, or in as few as etcd allows.
func applyAll(ctx context.Context, c *client.Client, manifests []manifest) ([]outcome, error) {
	var changes []change
	for _, m := range manifests {
		ch, err := m.change(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		changes = append(changes, ch)
	}
	return commitAll(ctx, c, changes)
}

// applyBatch is the number of objects in a transaction if etcd does not allow all in one. A profile
// is three operations, of the 128 that etcd allows by default.
const applyBatch = 40

func commitAll(ctx context.Context, c *client.Client, changes []change) ([]outcome, error) {
	var results []outcome
	for size := len(changes); len(changes) > 0; {
		n := min(size, len(changes))
		var ops []client.Op
		for _, ch := range changes[:n] {
			ops = append(ops, ch.ops...)
		}
		if len(ops) > 0 {
			_, err := c.Commit(ctx, ops...)
			if errors.Is(err, client.ErrTooLarge) && n > applyBatch {
				size = applyBatch
				continue
			}
			if err != nil {
				return results, err
			}
		}
		for _, ch := range changes[:n] {
			results = append(results, ch.outcome)
		}
		changes = changes[n:]
	}
	return results, nil
}

// change returns what applying a manifest writes.
func (m manifest) change(ctx context.Context, c *client.Client) (change, error) {
	if m.profile != nil {
		return m.profileChange(ctx, c)
	}
	old, err := c.Get(ctx, m.key)
	if errors.Is(err, client.ErrNotFound) {
		return change{m.outcome(actionCreated), []client.Op{client.OpApply(m.key, m.object)}}, nil
	}
	if err != nil && old.Err == nil {
		return change{}, err
	}
	if old.Err == nil && same(m.key, m.object, old.Object) {
		return change{m.outcome(actionUnchanged), nil}, nil
	}
	return change{m.outcome(actionChanged), []client.Op{client.OpApply(m.key, m.object)}}, nil
}

// same reports whether two objects are stored alike.
func same(key calico.Key, a, b any) bool {
	x, err1 := calico.Encode(key, a)
	y, err2 := calico.Encode(key, b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func (m manifest) profileChange(ctx context.Context, c *client.Client) (change, error) {
	write := client.OpApplyProfile(*m.profile)
	old, err := c.GetProfile(ctx, m.profile.ID)
	if errors.Is(err, client.ErrNotFound) {
		return change{m.outcome(actionCreated), write}, nil
	}
	if err != nil {
		return change{}, err
	}
	if old.Err == nil && sameProfile(*m.profile, old) {
		return change{m.outcome(actionUnchanged), nil}, nil
	}
	return change{m.outcome(actionChanged), write}, nil
}

func sameProfile(a, b client.Profile) bool {
	if (a.Rules == nil) != (b.Rules == nil) || (a.Tags == nil) != (b.Tags == nil) || (a.Labels == nil) != (b.Labels == nil) {
		return false
	}
	return (a.Rules == nil || same(calico.ProfileRulesKey{Profile: a.ID}, a.Rules, b.Rules)) &&
		(a.Tags == nil || same(calico.ProfileTagsKey{Profile: a.ID}, a.Tags, b.Tags)) &&
		(a.Labels == nil || same(calico.ProfileLabelsKey{Profile: a.ID}, a.Labels, b.Labels))
}

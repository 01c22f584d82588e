package offline

import (
	"encoding/json"
	"fmt"
	"io"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// TranslateOptions say what Translate prints.
type TranslateOptions struct {
	Each bool // the topology after every step, not only after the last
	JSON bool // one JSON document instead of text for people
}

// step is one operation of the input.
type step struct {
	number int // from 1
	op     string
	typ    string
	data   object
}

// translation is the output (file-formats §1).
type translation struct {
	Steps    []translatedStep `json:"steps"`
	Topology *topology.View   `json:"topology"`
}

type translatedStep struct {
	Error    *refusal       `json:"error"`
	Topology *topology.View `json:"topology,omitempty"`
	step     *step
}

// Translate reads Neutron operations, applies each as one transaction to an empty store, and prints the topology they
// make. A refused step changes nothing and is no error of Translate; a file that is not in the format is a [FileError],
// and nothing is printed.
func Translate(in io.Reader, opts TranslateOptions, out io.Writer) error {
	types := resources()
	steps, err := parseSteps(in, types)
	if err != nil {
		return err
	}
	w := newWorld()
	t := translation{Steps: []translatedStep{}}
	for i := range steps {
		done := translatedStep{step: &steps[i], Error: refusalOf(w.apply(types, &steps[i]))}
		if opts.Each {
			done.Topology = w.topology()
		}
		t.Steps = append(t.Steps, done)
	}
	t.Topology = w.topology()
	if opts.JSON {
		return printJSON(out, t)
	}
	return t.print(out)
}

// parseSteps reads the whole file before the first step is applied.
func parseSteps(in io.Reader, types map[string]resource) ([]step, error) {
	file, err := parse(in)
	if err != nil {
		return nil, err
	}
	o, err := file.object("steps")
	if err != nil {
		return nil, err
	}
	if !o.has("steps") {
		return nil, fileErrorf("steps", "is missing")
	}
	steps, err := each(o.get("steps"), func(n node) (step, error) { return readStep(n, types) })
	for i := range steps {
		steps[i].number = i + 1
	}
	return steps, err
}

func readStep(n node, types map[string]resource) (s step, err error) {
	o, err := n.object("op", "type", "data")
	if err != nil {
		return s, err
	}
	if s.op, err = o.get("op").oneOf("create", "update", "delete"); err != nil {
		return s, err
	}
	if s.typ, err = o.get("type").text(); err != nil {
		return s, err
	}
	if s.op == "" || s.typ == "" {
		return s, fileErrorf(n.place, "op or type is missing")
	}
	if s.data, err = o.get("data").anyObject(); err != nil {
		return s, err
	}
	if r := types[s.typ]; r != nil {
		return s, r.check(s.data)
	}
	return s, nil
}

// apply carries out one step; an error has changed nothing.
func (w *world) apply(types map[string]resource, s *step) error {
	r := types[s.typ]
	if r == nil {
		return refuse(neutron.Unsupported, "type %s is not translated", s.typ)
	}
	return r.apply(w, s)
}

func printJSON(out io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", b)
	return err
}

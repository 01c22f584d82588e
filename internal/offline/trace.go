package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"heddle/internal/topology/flow"
)

// TraceOptions say how Trace runs a scenario and what it prints.
type TraceOptions struct {
	EachHost bool // every port on a host of its own, instead of all on one
	JSON     bool // one JSON document instead of text for people
}

// scenarioFile is a file of scenarios; a file that holds one alone has it without the list.
type scenarioFile struct {
	scenarios []node
	alone     bool
}

// tracedFile is the output (file-formats §2).
type tracedFile struct {
	Scenarios []traced `json:"scenarios"`
}

// traced is the outcome of one scenario, or why it could not be built.
type traced struct {
	ID    any               `json:"id,omitempty"`
	Error string            `json:"error,omitempty"`
	MACs  map[string]string `json:"macs,omitzero"`
	Steps []tracedStep      `json:"steps,omitzero"`
	// Containers has the links of service containers by the names of their ports.
	Containers map[string]containerAddresses `json:"containers,omitempty"`
	title      string
}

type tracedStep struct {
	Deliveries []delivery     `json:"deliveries"`
	OK         *bool          `json:"ok"` // nil: nothing was expected
	Captured   map[string]any `json:"captured"`
	Drops      []dropped      `json:"drops"`
	Walk       []flow.Step    `json:"walk"`
	Logs       []logged       `json:"logs,omitempty"`
	what       string
	unmet      []string // expectations that failed, as the file has them
}

// Trace reads scenarios, sends their frames through the simulated network one after the other, and
// prints what became of each. It returns a [FileError] when the file, or one of its scenarios, is
// not what the format wants (the other scenarios are run and printed all the same), and
// [ErrExpectation] when a frame went otherwise than expected.
func Trace(ctx context.Context, in io.Reader, opts TraceOptions, out io.Writer) error {
	file, err := readScenarioFile(in)
	if err != nil {
		return err
	}
	results := tracedFile{Scenarios: []traced{}}
	var wrong error
	for _, n := range file.scenarios {
		t, err := runScenario(ctx, n, opts.EachHost)
		if err != nil {
			t.Error, t.MACs, t.Steps, t.Containers = err.Error(), nil, nil, nil
			wrong = cmp.Or(wrong, asFileError(err))
		}
		results.Scenarios = append(results.Scenarios, t)
	}
	if file.alone && wrong != nil {
		return wrong
	}
	if err := results.print(file.alone, opts.JSON, out); err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	return results.expectations()
}

// asFileError makes a fault of the file of an object that was refused: a scenario, unlike an
// operation, has to be right.
func asFileError(err error) error {
	var already *FileError
	if errors.As(err, &already) {
		return err
	}
	return &FileError{Problem: err.Error()}
}

// expectations is ErrExpectation if one failed.
func (f *tracedFile) expectations() error {
	for _, t := range f.Scenarios {
		for _, s := range t.Steps {
			if s.OK != nil && !*s.OK {
				return ErrExpectation
			}
		}
	}
	return nil
}

func (f *tracedFile) print(alone, asJSON bool, out io.Writer) error {
	switch {
	case !asJSON:
		return f.text(out)
	case alone:
		return printJSON(out, f.Scenarios[0])
	}
	return printJSON(out, f)
}

func readScenarioFile(in io.Reader) (*scenarioFile, error) {
	root, err := parse(in)
	if err != nil {
		return nil, err
	}
	o, err := root.anyObject()
	if err != nil {
		return nil, err
	}
	if !o.has("scenarios") {
		if !o.has("topology") {
			return nil, fileErrorf("", "has neither scenarios nor a topology")
		}
		return &scenarioFile{scenarios: []node{root}, alone: true}, nil
	}
	if o, err = root.object("scenarios"); err != nil {
		return nil, err
	}
	scenarios, err := o.get("scenarios").list()
	return &scenarioFile{scenarios: scenarios}, err
}

// runScenario builds a scenario and runs its steps in one life of the system.
func runScenario(ctx context.Context, n node, eachHost bool) (t traced, err error) {
	o, err := n.anyObject()
	if err != nil {
		return t, err
	}
	t.ID = o.get("id").value
	if !o.has("topology") {
		return t, fileErrorf(o.under("topology"), "is missing")
	}
	if t.title, err = o.get("title").text(); err != nil {
		return t, err
	}
	if _, err := o.node.object("id", "title", "topology", "steps", "vars", "distinct"); err != nil {
		return t, err
	}
	w, end, err := newWorld(ctx)
	if err != nil {
		return t, err
	}
	defer end()
	system, err := startScenario(w, o, placement{eachHost: eachHost})
	if err != nil {
		return t, err
	}
	t.MACs = system.macs
	if t.Containers, err = system.containerLinks(); err != nil {
		return t, err
	}
	r, err := newRun(system, o, system.carry)
	if err != nil {
		return t, err
	}
	steps, err := o.get("steps").list()
	if err != nil {
		return t, err
	}
	t.Steps = []tracedStep{}
	for _, n := range steps {
		done, err := r.step(n)
		if err != nil {
			return t, err
		}
		t.Steps = append(t.Steps, done)
	}
	return t, nil
}

// startScenario makes the topology of a scenario.
func startScenario(w *world, o object, p placement) (*system, error) {
	s, err := readScenario(w, o.get("topology"), p)
	if err != nil {
		return nil, err
	}
	return s.start()
}

// run is a scenario under way.
type run struct {
	*system
	carry    carry
	captured map[string]any // by name without $
	limits   limits
	turns    int // of repeats, so far
}

// carry puts a frame on a port and returns what becomes of it.
type carry func(port string, frame []byte) (passage, error)

// newRun begins a run of the scenario o.
func newRun(s *system, o object, carry carry) (*run, error) {
	r := &run{system: s, carry: carry, captured: map[string]any{}, limits: limits{ranges: map[string][2]int{}}}
	return r, r.limits.read(o)
}

// readStep reads the fields of a step, and what it says about captured values.
func (r *run) readStep(n node) (object, error) {
	o, err := n.object("send", "expect", "expect_any_of", "expect_contains", "expect_none_at", "repeat",
		"expect_ports_all", "expect_logs", "update", "vars", "distinct")
	if err != nil {
		return o, err
	}
	if err := r.limits.read(o); err != nil {
		return o, err
	}
	if o.has("update") == o.has("send") {
		return o, fileErrorf(n.place, "want either send or update")
	}
	return o, nil
}

// step carries out one step of the scenario.
func (r *run) step(n node) (tracedStep, error) {
	o, err := r.readStep(n)
	if err != nil {
		return tracedStep{}, err
	}
	var p passage
	what := "update"
	if o.has("update") {
		if err = r.update(o.get("update")); err == nil {
			err = r.apply()
		}
	} else {
		p, what, err = r.sendStep(o)
	}
	if err != nil {
		return tracedStep{}, err
	}
	done := tracedStep{
		Deliveries: nonNil(p.deliveries), Captured: map[string]any{}, Drops: nonNil(p.drops), Walk: nonNil(p.walk), Logs: p.logs, what: what,
	}
	before := maps.Clone(r.captured)
	if done.OK, done.unmet, err = r.compare(o, p.deliveries, p.logs); err != nil {
		return done, err
	}
	for name, value := range r.captured {
		if _, known := before[name]; !known {
			done.Captured[name] = value
		}
	}
	return done, nil
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// maxTurns bounds what one line of a file can ask for.
const maxTurns = 100_000

// sendStep sends the step's frame, as often as it says.
func (r *run) sendStep(o object) (all passage, what string, err error) {
	turns, repeated, err := o.get("repeat").number(1, maxTurns)
	if err != nil {
		return all, "", err
	}
	if !repeated {
		turns = 1
	}
	send, err := o.get("send").object("port", "frame")
	if err != nil {
		return all, "", err
	}
	port, err := r.port(send.get("port"))
	if err != nil {
		return all, "", err
	}
	for range turns {
		frame, err := r.frame(send.get("frame"), port)
		if err != nil {
			return all, "", err
		}
		p, err := r.carry(port, frame)
		if err != nil {
			return all, "", err
		}
		all.add(p)
	}
	what = "from " + port
	if repeated {
		what = fmt.Sprintf("%d times from %s", turns, port)
	}
	return all, what, nil
}

// port reads the name of a port, or of a place on a LAN.
func (r *run) port(n node) (string, error) {
	name, err := n.text()
	if err != nil {
		return "", err
	}
	if _, _, ok := r.lanPlace(name); ok {
		return name, nil
	}
	_, err = r.ports.find(n)
	return name, err
}

// frame builds a frame that the port sends; $i in it is another client port every time.
func (r *run) frame(n node, port string) ([]byte, error) {
	known := maps.Clone(r.captured)
	known["i"] = 20_000 + r.turns%40_000
	r.turns++
	refs := r.references(known)
	f, err := refs.read(n, frameSchema())
	if err != nil {
		return nil, err
	}
	sender, err := r.senderOf(f, n, port)
	if err != nil {
		return nil, err
	}
	if f["eth_src"] == nil {
		if refs.macs[sender] == "" {
			return nil, fileErrorf(n.place, "eth_src: a frame from a LAN has to say whose it is")
		}
		f["eth_src"] = refs.macs[sender]
	}
	return f.build(n.place)
}

// expected is one delivery that an expectation lists.
type expected struct {
	port  string
	frame fields
}

func (r *run) readExpected(n node) (e expected, err error) {
	o, err := n.object("port", "frame")
	if err != nil {
		return e, err
	}
	if e.port, err = r.port(o.get("port")); err != nil {
		return e, err
	}
	e.frame, err = r.references(r.captured).read(o.get("frame"), frameSchema())
	return e, err
}

// compare holds deliveries and records against the step's expectations, all of which must be met;
// nil if it has none.
func (r *run) compare(o object, got []delivery, logs []logged) (ok *bool, unmet []string, err error) {
	given := false
	for _, form := range []struct {
		field string
		met   func(node, []delivery) (bool, error)
	}{
		{"expect", r.exactly}, {"expect_any_of", r.anyOf}, {"expect_contains", r.containing},
		{"expect_none_at", r.noneAt}, {"expect_ports_all", r.portsAll},
		{"expect_logs", func(n node, _ []delivery) (bool, error) { return r.compareLogs(n, logs) }},
	} {
		want := o.get(form.field)
		if want.null() {
			continue
		}
		met, err := form.met(want, got)
		if err != nil {
			return nil, nil, err
		}
		given = true
		if !met {
			unmet = append(unmet, form.field+": "+want.String())
		}
	}
	if !given {
		return nil, nil, nil
	}
	met := len(unmet) == 0
	return &met, unmet, nil
}

func (r *run) exactly(n node, got []delivery) (bool, error) {
	want, err := each(n, r.readExpected)
	return err == nil && len(want) == len(got) && r.assign(want, got), err
}

func (r *run) containing(n node, got []delivery) (bool, error) {
	want, err := each(n, r.readExpected)
	return err == nil && r.assign(want, got), err
}

// anyOf holds if one of the alternatives does; each is a list of exact deliveries, or one delivery
// alone.
func (r *run) anyOf(n node, got []delivery) (bool, error) {
	alternatives, err := n.list()
	if err != nil {
		return false, err
	}
	met := false
	for _, a := range alternatives {
		if _, isList := a.value.([]any); !isList {
			a = node{a.place, []any{a.value}}
		}
		holds, err := r.exactly(a, got)
		if err != nil {
			return false, err
		}
		if holds {
			met = true
			break
		}
	}
	return met, nil
}

func (r *run) noneAt(n node, got []delivery) (bool, error) {
	ports, err := each(n, r.port)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(got, func(d delivery) bool { return slices.Contains(ports, d.Port) }), nil
}

func (r *run) portsAll(n node, got []delivery) (bool, error) {
	ports, err := each(n, r.port)
	if err != nil {
		return false, err
	}
	for _, port := range ports {
		if !slices.ContainsFunc(got, func(d delivery) bool { return d.Port == port }) {
			return false, nil
		}
	}
	return true, nil
}

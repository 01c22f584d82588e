package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// trace runs a scenario and returns its output, followed by the error if there is one.
func trace(t *testing.T, input string, opts TraceOptions) string {
	t.Helper()
	var out bytes.Buffer
	err := Trace(t.Context(), strings.NewReader(input), opts, &out)
	var wrong *FileError
	switch {
	case err == nil:
	case errors.Is(err, ErrExpectation), errors.As(err, &wrong):
		out.WriteString("error: " + err.Error() + "\n")
	default:
		t.Fatal(err)
	}
	return out.String()
}

func TestTraceGolden(t *testing.T) {
	t.Parallel()
	golden(t, "trace", func(t *testing.T, input string) string {
		text := trace(t, input, TraceOptions{JSON: true})
		doc, rest, isError := strings.Cut(text, "error: ")
		if isError {
			rest = "error: " + rest
		}
		if doc == "" {
			return rest
		}
		return outcomeLines(t, doc) + rest
	})
}

// outcomeLines returns the outcome of each step, without the walk, whose words are the simulator's.
func outcomeLines(t *testing.T, doc string) string {
	type tracedDoc struct {
		ID    any
		Error string
		Steps []struct {
			Deliveries []struct {
				Port  string
				Frame map[string]any
			}
			OK       *bool
			Captured map[string]any
			Drops    []struct{ Device string }
			Walk     []any
		}
	}
	var all struct {
		Scenarios []tracedDoc
		tracedDoc
	}
	if err := json.Unmarshal([]byte(doc), &all); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	if all.Scenarios == nil {
		all.Scenarios = []tracedDoc{all.tracedDoc}
	}
	var b strings.Builder
	for _, s := range all.Scenarios {
		if s.ID != nil || s.Error != "" {
			fmt.Fprintf(&b, "scenario %v %s\n", s.ID, s.Error)
		}
		for i, step := range s.Steps {
			ok := "-"
			if step.OK != nil {
				ok = fmt.Sprint(*step.OK)
			}
			fmt.Fprintf(&b, "%d %s", i+1, ok)
			for _, d := range step.Drops {
				fmt.Fprintf(&b, ", dropped by %s", d.Device)
			}
			for _, name := range slices.Sorted(maps.Keys(step.Captured)) {
				fmt.Fprintf(&b, ", $%s = %v", name, step.Captured[name])
			}
			b.WriteString("\n")
			for _, d := range step.Deliveries {
				frame, err := json.Marshal(d.Frame)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "  %s %s\n", d.Port, frame)
			}
		}
	}
	return b.String()
}

// However ports are spread over hosts, the same frames reach the same ports.
func TestTraceHosts(t *testing.T) {
	t.Parallel()
	inputs(t, "trace", func(t *testing.T, input string) {
		outcome := func(each bool) any {
			var doc struct {
				Scenarios []any
				Steps     []map[string]any
			}
			text := trace(t, input, TraceOptions{EachHost: each, JSON: true})
			if strings.HasPrefix(text, "error:") {
				return text
			}
			if err := json.NewDecoder(strings.NewReader(text)).Decode(&doc); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			for _, s := range doc.Steps {
				delete(s, "walk") // names hosts
			}
			for _, s := range doc.Scenarios {
				steps, _ := s.(map[string]any)["steps"].([]any)
				for _, step := range steps {
					delete(step.(map[string]any), "walk")
				}
			}
			return doc
		}
		if diff := cmp.Diff(outcome(false), outcome(true)); diff != "" {
			t.Errorf("on one host (-) and each on its own (+):\n%s", diff)
		}
	})
}

// TestScenarioCostOfNetworks: a network costs the same work however many are there. Allocations
// stand for the work: each segment that is tried for a network takes some.
func TestScenarioCostOfNetworks(t *testing.T) {
	perNetwork := func(networks int) uint64 {
		file := "topology:\n  networks:\n"
		for i := range networks {
			file += fmt.Sprintf("  - name: n%d\n", i)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Trace(t.Context(), strings.NewReader(file), TraceOptions{}, io.Discard); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return (after.Mallocs - before.Mallocs) / uint64(networks)
	}
	few, many := perNetwork(100), perNetwork(400)
	if many > few*3/2 {
		t.Errorf("%d allocations for each of 400 networks, %d for each of 100", many, few)
	}
}

package offline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The examples of the guides do what they say: an input, fenced as "yaml" and a command, and its
// output.
func TestGuideExamples(t *testing.T) {
	t.Parallel()
	for guide, examples := range map[string]int{"../../docs/translate-and-trace.md": 2, "../../docs/policy.md": 3} {
		t.Run(filepath.Base(guide), func(t *testing.T) { guideExamples(t, guide, examples) })
	}
}

// runExample runs a command of a guide.
func runExample(t *testing.T, command, input string, out io.Writer) error {
	in := strings.NewReader(input)
	switch command {
	case "translate":
		return Translate(t.Context(), in, TranslateOptions{}, out)
	case "trace":
		return Trace(t.Context(), in, TraceOptions{}, out)
	}
	return Check(t.Context(), in, CheckOptions{}, out)
}

func guideExamples(t *testing.T, guide string, examples int) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml (translate|trace|check)\n(.*?)```\n\n```text\n(.*?)```")
	found := 0
	rewritten := example.ReplaceAllStringFunc(string(text), func(match string) string {
		found++
		parts := example.FindStringSubmatch(match)
		command, input, want := parts[1], parts[2], parts[3]
		var out bytes.Buffer
		if err := runExample(t, command, input, &out); err != nil && !errors.Is(err, ErrExpectation) {
			t.Errorf("example %d: %v", found, err)
		}
		if !*rewrite {
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("example %d of %s (-want +got); -rewrite writes what comes out:\n%s", found, guide, diff)
			}
		}
		return "```yaml " + command + "\n" + input + "```\n\n```text\n" + out.String() + "```"
	})
	if found != examples {
		t.Errorf("%s has %d examples, want %d", guide, found, examples)
	}
	if *rewrite {
		if err := os.WriteFile(guide, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

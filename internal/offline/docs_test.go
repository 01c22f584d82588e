package offline

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// guide is where the commands are explained to their users.
const guide = "../../docs/translate-and-trace.md"

// The examples of the guide do what it says: an input, fenced as "yaml translate" or "yaml trace", and its output.
func TestGuideExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml (translate|trace)\n(.*?)```\n\n```text\n(.*?)```")
	found := 0
	rewritten := example.ReplaceAllStringFunc(string(text), func(match string) string {
		found++
		parts := example.FindStringSubmatch(match)
		command, input, want := parts[1], parts[2], parts[3]
		var out bytes.Buffer
		if command == "translate" {
			err = Translate(strings.NewReader(input), TranslateOptions{}, &out)
		} else {
			err = Trace(strings.NewReader(input), TraceOptions{}, &out)
		}
		if err != nil && !errors.Is(err, ErrExpectation) {
			t.Errorf("example %d: %v", found, err)
		}
		if !*rewrite {
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("example %d of %s (-want +got); -rewrite writes what comes out:\n%s", found, guide, diff)
			}
		}
		return "```yaml " + command + "\n" + input + "```\n\n```text\n" + out.String() + "```"
	})
	if found != 2 {
		t.Errorf("%s has %d examples, want 2", guide, found)
	}
	if *rewrite {
		if err := os.WriteFile(guide, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

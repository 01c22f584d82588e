package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what the golden tests get below the line of their files")

// line parts the input of a golden file from its output.
const line = "\n----\n"

// golden runs every file of a folder: what stands above the line goes in, what comes out must stand
// below it.
func golden(t *testing.T, folder string, run func(t *testing.T, input string) string) {
	goldenFiles(t, folder, func(t *testing.T, file, input, want string) {
		got := run(t, input+"\n")
		if *rewrite {
			if err := os.WriteFile(file, []byte(input+line+got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got); if it should be so, run with -rewrite and read the difference:\n%s", file, diff)
		}
	})
}

// inputs runs what stands above the line of every file of a folder.
func inputs(t *testing.T, folder string, run func(t *testing.T, input string)) {
	goldenFiles(t, folder, func(t *testing.T, _, input, _ string) { run(t, input+"\n") })
}

func goldenFiles(t *testing.T, folder string, run func(t *testing.T, file, input, want string)) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata/%s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), line)
			run(t, file, input, want)
		})
	}
}

func TestTranslateGolden(t *testing.T) {
	t.Parallel()
	golden(t, "translate", func(t *testing.T, input string) string {
		var text, doc bytes.Buffer
		if err := Translate(t.Context(), strings.NewReader(input), TranslateOptions{}, &text); err != nil {
			var wrong *FileError
			if !errors.As(err, &wrong) {
				t.Fatal(err)
			}
			return "error: " + err.Error() + "\n"
		}
		if err := Translate(t.Context(), strings.NewReader(input), TranslateOptions{JSON: true}, &doc); err != nil {
			t.Fatal(err)
		}
		return text.String() + "\njson\n" + objectLines(t, doc.Bytes(), strings.HasPrefix(input, "# full"))
	})
}

// objectLines writes the topology of a translation with each object on a line of its own. Chains
// and rules, which the text shows in words, are left out unless it should be full.
func objectLines(t *testing.T, doc []byte, full bool) string {
	var out struct {
		Topology map[string]map[string]json.RawMessage `json:"topology"`
	}
	if err := json.Unmarshal(doc, &out); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, objects := range inOrderNamed(out.Topology) {
		if !full && (objects.key == "Chain" || objects.key == "Rule") {
			continue
		}
		for _, o := range inOrderNamed(objects.value) {
			var compact bytes.Buffer
			if err := json.Compact(&compact, o.value); err != nil {
				t.Fatal(err)
			}
			if compact.String() != "{}" {
				fmt.Fprintf(&b, "  %s %s %s\n", objects.key, o.key, compact.String())
			}
		}
	}
	return b.String()
}

type named[T any] struct {
	key   string
	value T
}

func inOrderNamed[T any](m map[string]T) []named[T] {
	keys := map[string]named[T]{}
	for k, v := range m {
		keys[k] = named[T]{k, v}
	}
	return inOrder(keys)
}

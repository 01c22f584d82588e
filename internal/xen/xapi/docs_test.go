package xapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSimulatedDocs reads the file that docs/xenapi.md shows.
func TestSimulatedDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "xenapi.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)^    pools:\n(?:    .*\n)+`).FindString(string(text))
	pools, err := parseSimulated([]byte(strings.ReplaceAll(block, "\n    ", "\n")[4:]))
	if err != nil || len(pools) != 1 || len(pools[0].Hosts[0].PIFs) != 6 {
		t.Errorf("%+v, %v", pools, err)
	}
}

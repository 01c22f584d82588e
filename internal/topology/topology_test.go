package topology

import (
	"strings"
	"testing"
)

// TestPhysicalNames: names that could be taken for something else where they are shown are refused.
func TestPhysicalNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"physnet1", "public.1", "Büro", "a=b", strings.Repeat("x", 64)} {
		if !IsPhysicalName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "a b", "a/b", "a\nb", "\x1b[2J", "a\u202eb", "\xff", strings.Repeat("x", 65)} {
		if IsPhysicalName(name) {
			t.Errorf("%q is accepted", name)
		}
	}
}

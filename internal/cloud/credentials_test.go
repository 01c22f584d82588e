package cloud

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckCredentials: only a file that its owner alone can read will do.
func TestCheckCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := CheckCredentials(file); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckCredentials(file); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := CheckCredentials(file); err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) {
		t.Errorf("mode 0640: %v, want the remedy", err)
	}
}

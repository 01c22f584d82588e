package verdicts

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/topology/flow"
)

// TestSegments: records are lines of JSON in segments, of which the oldest go when there are too
// many bytes or they are too old; what could not be written is counted in the next line.
func TestSegments(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "flows")
	var log bytes.Buffer
	s := NewSegments(dir, slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Now()
	s.now = func() time.Time { now = now.Add(time.Second); return now }
	s.most, s.kept = 100, 350
	record := []flow.FlowRecord{{Host: "h", Port: "0acc33cd-7d10-48a1-937e-88be575d35e7"}}
	for range 10 {
		s.write(record, 0)
	}
	segments := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, segmentNames))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if n := len(segments()); n < 3 || n > 5 {
		t.Errorf("%d segments are left of 350 bytes", n)
	}
	now = now.Add(8 * 24 * time.Hour)
	s.write(record, 0)
	s.write(record, 0)
	if n := len(segments()); n > 2 {
		t.Errorf("%d segments are left after eight days", n)
	}

	if err := s.file.Close(); err != nil { // so that it takes no more
		t.Fatal(err)
	}
	s.write(record, 3)
	s.write(record, 0)
	if !bytes.Contains(log.Bytes(), []byte("cannot write the flow log")) {
		t.Errorf("nothing says so: %s", &log)
	}
	s.file = nil
	s.write(record, 0)
	names := segments()
	raw, err := os.ReadFile(names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	var first flow.FlowRecord
	if err := json.Unmarshal(line, &first); err != nil || first.Lost != 5 {
		t.Errorf("got %s, want 5 lost records: %v", line, err)
	}
}

package verdicts

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// TestPast: the past is read from the segments that have some of it, what the log has by now with
// it, also what an earlier agent wrote; a damaged line counts as lost.
func TestPast(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "flows")
	log := slog.New(slog.DiscardHandler)
	begin := time.Now().Add(-time.Hour)
	now := begin
	earlier := NewSegments(dir, log)
	earlier.now = func() time.Time { return now }
	earlier.most = 1 // a segment a record
	for i := range 5 {
		now = begin.Add(time.Duration(i) * time.Minute)
		earlier.write([]flow.FlowRecord{{Time: now, Packets: uint64(i)}}, 0)
	}
	if _, err := earlier.file.WriteString("{\"time\n"); err != nil {
		t.Fatal(err)
	}

	l := NewLog("h")
	s := NewSegments(dir, log)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	l.Decided(from(40000, 80, accepted()))
	l.Flush()
	p, begins := s.Past(t.Context(), l, begin.Add(150*time.Second))
	defer p.Close()
	if !begins.Equal(begin.UTC()) {
		t.Errorf("the past begins at %s, want %s", begins, begin)
	}
	var packets []uint64
	var lost uint64
	for {
		records, n, _ := p.Next(2)
		lost += n
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			packets = append(packets, r.Packets)
		}
	}
	if want := []uint64{2, 3, 4, 1}; !slices.Equal(packets, want) || lost != 1 {
		t.Errorf("records with %v packets, %d lost; want %v and 1", packets, lost, want)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

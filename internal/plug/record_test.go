package plug

import (
	"os"
	"strings"
	"testing"
)

// TestRecords: a record is read as it was written, one that cannot be read is named with the
// remedy, and of two ports with one name neither is chosen.
func TestRecords(t *testing.T) {
	t.Parallel()
	p := &Plugger{Dir: RecordsDir(t.TempDir())}
	if r, err := p.load("id1"); r != nil || err != nil {
		t.Fatalf("without records: %+v, %v", r, err)
	}
	for _, r := range []*record{{PortID: "id1", Name: "web", Device: "tap1", Before: binding{Profile: map[string]any{"key": "value"}}}, {PortID: "id2", Name: "web"}} {
		if err := p.save(r); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.load("id1")
	if err != nil || r.Device != "tap1" || r.Before.Profile["key"] != "value" {
		t.Errorf("read %+v, %v", r, err)
	}
	if _, err := p.findPlugged(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "id1, id2") {
		t.Errorf("two ports of a name: %v, want both ids", err)
	}
	if id, err := p.findPlugged(t.Context(), "id2"); err != nil || id != "id2" {
		t.Errorf("by the id: %q, %v", id, err)
	}
	if err := p.forget(r); err != nil {
		t.Fatal(err)
	}
	if id, err := p.findPlugged(t.Context(), "web"); err != nil || id != "id2" {
		t.Errorf("by the name of one port: %q, %v", id, err)
	}
	if err := os.WriteFile(p.file("id2"), []byte(`{"port_id`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.findPlugged(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), p.file("id2")+" is no record of port id2") {
		t.Errorf("a torn record: %v, want its file", err)
	}
}

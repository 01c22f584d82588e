package plug

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// record lists what was made for a port on this host or, until it is Complete, is about to be.
type record struct {
	PortID   string  `json:"port_id"`
	Name     string  `json:"name"`
	Host     string  `json:"host"`
	Device   string  `json:"device"` // the interface on the host
	Place    Place   `json:"place"`
	Before   binding `json:"before"`             // of the port, before it was plugged
	Resolver string  `json:"resolver,omitempty"` // the text of the resolv.conf that was written
	Complete bool    `json:"complete"`
}

// binding holds the attributes of a port that bind it to an interface of a host.
type binding struct {
	HostID  string         `json:"host_id"`
	Profile map[string]any `json:"profile"`
}

// RecordsDir returns the directory of the records of plugged ports, for the state directory of an
// agent.
func RecordsDir(state string) string { return filepath.Join(state, "plugged") }

func (p *Plugger) file(id string) string { return filepath.Join(p.Dir, id+".json") }

// load returns the record of a port, nil if there is none.
func (p *Plugger) load(id string) (*record, error) {
	raw, err := os.ReadFile(p.file(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of a plugged port: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || r.PortID != id {
		return nil, fmt.Errorf("%s is no record of port %s (%v): remove the file and the port's interface by hand", p.file(id), id, err)
	}
	return &r, nil
}

// loadAll returns all records.
func (p *Plugger) loadAll() ([]*record, error) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, f := range files {
		r, err := p.load(strings.TrimSuffix(filepath.Base(f), ".json"))
		if err != nil {
			return nil, err
		}
		if r != nil {
			all = append(all, r)
		}
	}
	return all, nil
}

// save writes a record in whole.
func (p *Plugger) save(r *record) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return fmt.Errorf("records of plugged ports: %w", err)
	}
	next := p.file(r.PortID) + ".new"
	err = os.WriteFile(next, append(raw, '\n'), 0o600)
	if err == nil {
		err = os.Rename(next, p.file(r.PortID))
	}
	if err != nil {
		return fmt.Errorf("record of a plugged port: %w", errors.Join(err, os.Remove(next)))
	}
	return nil
}

// forget removes a record.
func (p *Plugger) forget(r *record) error {
	if err := os.Remove(p.file(r.PortID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("record of a plugged port: %w", err)
	}
	return nil
}

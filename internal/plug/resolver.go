package plug

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeResolver writes the namespace's own resolv.conf with the name servers of the port's subnets,
// if there is none.
func (p *Plugger) writeResolver(r *record, w *wiring, result *Result) error {
	file := r.Place.resolver()
	if r.Place.Tap || len(w.nameservers) == 0 {
		return nil
	}
	if file == "" {
		result.Notes = append(result.Notes, "resolv.conf of the workload is left as it is; its name servers are "+strings.Join(w.nameservers, ", "))
		return nil
	}
	text := fmt.Sprintf("# Written by heddle plug for port %s; heddle unplug removes it.\n", r.PortID)
	for _, address := range w.nameservers {
		text += "nameserver " + address + "\n"
	}
	switch present, err := os.ReadFile(file); {
	case err == nil && string(present) == text:
		return nil
	case err == nil && string(present) != r.Resolver:
		result.Notes = append(result.Notes, file+" is there already and stays as it is")
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	r.Resolver = text
	if err := p.save(r); err != nil {
		return err
	}
	next := file + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, file)); err != nil {
		return err
	}
	result.Notes = append(result.Notes, "wrote "+file)
	return nil
}

// removeResolver removes the resolv.conf that was written for a port, unless someone has changed it
// since.
func removeResolver(r *record) error {
	file := r.Place.resolver()
	if r.Resolver == "" || file == "" {
		return nil
	}
	present, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && string(present) != r.Resolver {
		return nil
	}
	if err := errors.Join(err, os.Remove(file)); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(file)) // stays with files of others in it
	return nil
}

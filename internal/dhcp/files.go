package dhcp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"heddle/internal/dhcp/plan"
)

// Names below the state directory, in addition to those of the plan.
const (
	logFile, resolverLog = "log", "dns.log"
	// The numbers of the process that serves, and of the one that answers DNS.
	pidFile, resolverPID = "pid", "dns.pid"
	// changing exists from the first file that is changed for a restart until the restart is over.
	changing = "changing"
	// probeFile is among the files of endpoints; interfaces have shorter names.
	probeFile = "heddle-sign-of-life"
)

// The first arguments of an instance name its lease file, or the directory of names for DNS.
const (
	leaseArgument = "--dhcp-leasefile="
	namesArgument = "--hostsdir="
)

// leaseFiles returns the names of the lease files. Each instance has one while it runs, and some
// may be about to end.
func leaseFiles() (names [8]string) {
	for i := range names {
		names[i] = fmt.Sprintf("leases.%d", i)
	}
	return names
}

// write replaces a file in one step. The new contents are written where dnsmasq does not read them.
func write(dir, name, contents string) error {
	fresh := filepath.Join(dir, "new."+filepath.Base(name))
	if err := os.WriteFile(fresh, []byte(contents), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o644); err != nil { // whatever the umask: dnsmasq's user reads it
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, name))
}

// copyConfig copies a file with further configuration of dnsmasq, which root alone may be able to
// read, to where dnsmasq's user reads it, and returns that path; "" for none. The name changes with
// the contents, so that an agent which finds others starts dnsmasq again.
func copyConfig(dir, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("further configuration of dnsmasq: %w", err)
	}
	name := fmt.Sprintf("operator-%.8x.conf", sha256.Sum256(raw))
	earlier, err := filepath.Glob(filepath.Join(dir, "operator-*.conf"))
	errs := []error{err}
	for _, path := range earlier {
		if filepath.Base(path) != name {
			errs = append(errs, remove(path))
		}
	}
	errs = append(errs, write(dir, name, string(raw)))
	return filepath.Join(dir, name), errors.Join(errs...)
}

// remove deletes a file that may not exist.
func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	for _, sub := range []string{plan.HostsDir, plan.OptionsDir, plan.NamesDir} {
		found, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.Name() == probeFile {
				continue
			}
			raw, err := os.ReadFile(filepath.Join(dir, sub, f.Name()))
			if err != nil {
				return nil, err
			}
			files[sub+"/"+f.Name()] = string(raw)
		}
	}
	return files, nil
}

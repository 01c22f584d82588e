package dhcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"heddle/internal/dhcp/plan"
)

// Names below the state directory, beside those of the plan.
const (
	logPipe = "log"
	pidFile = "pid" // the number of the process that serves
	// changing is there from the first file that is changed for a restart until the restart is over.
	changing = "changing"
	// probeFile lies beside the files of endpoints; interfaces have shorter names.
	probeFile = "heddle-sign-of-life"
)

// leaseArgument names an instance's lease file.
const leaseArgument = "--dhcp-leasefile="

// leaseFiles are the lease files, which instances use in turn.
func leaseFiles() [2]string { return [2]string{"leases.0", "leases.1"} }

// write replaces a file in one step. The new contents are written where dnsmasq does not look.
func write(dir, name, contents string) error {
	fresh := filepath.Join(dir, "new."+filepath.Base(name))
	if err := os.WriteFile(fresh, []byte(contents), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, name))
}

// remove deletes a file that may be gone.
func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readFiles reads what lies in the plan's directories.
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

// pipeBytes is how much the log holds while no agent reads it.
const pipeBytes = 1 << 20

// openPipe makes the log pipe if it is not there, and opens both of its ends for those who write. A program that has both
// never writes to a pipe that nobody has.
func openPipe(dir string) (*os.File, error) {
	path := filepath.Join(dir, logPipe)
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return nil, fmt.Errorf("%s is no pipe: remove it", path)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// path returns the place of an absolute path.
func (root kernelFiles) path(absolute string) string { return filepath.Join(string(root), absolute) }

// integrationChecks returns the checks of other software that calls Heddle, where it is installed
// or set up.
func (root kernelFiles) integrationChecks() (checks []Check) {
	if root.anyFile("/usr/sbin/libvirtd", "/usr/sbin/virtqemud") {
		checks = append(checks, Check{
			Name: "libvirt's hook", For: "virtual machines of libvirt", Optional: true,
			Fix: "ln -sf /usr/lib/heddle/bin/heddle-libvirt-hook " + libvirtHook + ", and systemctl restart libvirtd, which looks for hooks at its start",
			Run: func(context.Context) error { return root.checkHook() },
		})
	}
	networks, err := root.containerNetworks()
	if err != nil || len(networks) > 0 {
		checks = append(checks, Check{
			Name: "plug-ins of container networks", For: "containers (CNI)",
			Fix: "put a link to heddle, called " + cniPlugin + ", where the runtime looks for plug-ins, install the others, and chmod 600 and chown root the credentials",
			Run: func(context.Context) error { return cmp.Or(err, root.checkNetworks(networks)) },
		})
	}
	return checks
}

func (root kernelFiles) anyFile(paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(root.path(path))
		return err == nil
	})
}

// checkExecutable returns an error unless a file can be executed.
func (root kernelFiles) checkExecutable(path string) error {
	info, err := os.Stat(root.path(path))
	if err == nil && info.Mode().Perm()&0o111 == 0 {
		err = fmt.Errorf("%s has mode %o: it is not executable", path, info.Mode().Perm())
	}
	return err
}

const libvirtHook = "/etc/libvirt/hooks/qemu.d/heddle-libvirt-hook"

// checkHook finds a hook that libvirt does not call.
func (root kernelFiles) checkHook() error {
	hook, err := os.Lstat(root.path(libvirtHook))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: ports are not bound when machines start", libvirtHook)
	} else if err != nil {
		return err
	}
	if err := root.checkExecutable(libvirtHook); err != nil {
		return err
	}
	for _, daemon := range []string{"libvirtd", "virtqemud"} {
		began, err := root.started(daemon)
		if err != nil {
			return err
		}
		if !began.IsZero() && began.Add(clockGrain).Before(hook.ModTime()) {
			return fmt.Errorf("%s has run since %s, before %s was there", daemon, began.Format(time.DateTime), libvirtHook)
		}
	}
	return nil
}

const (
	// userTicks are the ticks a second in which the kernel gives times to programs.
	userTicks = 100
	// clockGrain bounds how much earlier than it was, or later, the start of a process appears: it
	// and the time since the boot are in ticks, and files have the time of the kernel's last timer.
	clockGrain = 50 * time.Millisecond
)

// started returns when the first process of a program was started; the zero time if none runs.
// Zombies have ended.
func (root kernelFiles) started(program string) (began time.Time, err error) {
	processes, err := filepath.Glob(root.path("/proc/[0-9]*"))
	if err != nil {
		return began, err
	}
	for _, process := range processes {
		raw, err := os.ReadFile(filepath.Join(process, "stat"))
		if err != nil {
			continue // it has ended
		}
		name, numbers, whole := strings.Cut(string(raw), ") ")
		if _, name, _ = strings.Cut(name, "("); !whole || name != program {
			continue
		}
		const startTime = 22 - 3 // of proc(5), after the program's name
		fields := strings.Fields(numbers)
		if len(fields) <= startTime {
			return began, fmt.Errorf("%s/stat: want a start time", process)
		}
		if fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
		if err != nil {
			return began, fmt.Errorf("%s/stat: start time: %w", process, err)
		}
		boot, err := bootTime()
		if err != nil {
			return began, err
		}
		if at := boot.Add(time.Duration(ticks) * time.Second / userTicks); began.IsZero() || at.Before(began) {
			began = at
		}
	}
	return began, nil
}

// bootTime returns when the machine was started, by its clock of now. The time of the boot in
// /proc/stat has whole seconds.
func bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("time since the boot: %w", err)
	}
	return time.Now().Add(-time.Duration(up.Nano())), nil
}

// cniPlugin is the name of Heddle's plug-in, and cniCredentials its file of credentials unless a
// network names another.
const (
	cniPlugin      = "heddle-cni"
	cniCredentials = "/etc/heddle/cni-clouds.yaml"
)

// cniFolders are the directories in which podman, containerd and nomad look for plug-ins unless
// their own settings name others.
var cniFolders = []string{"/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"}

// containerNetwork is a network configuration of CNI: a plug-in, or a list of them.
type containerNetwork struct {
	containerPlugin
	Plugins []containerPlugin `json:"plugins"`

	file string
}

type containerPlugin struct {
	Type        string `json:"type"`
	Credentials string `json:"credentials"`
}

// containerNetworks returns the network configurations of this machine with Heddle's plug-in.
func (root kernelFiles) containerNetworks() (networks []containerNetwork, err error) {
	for _, pattern := range []string{"/etc/cni/net.d/*.conf", "/etc/cni/net.d/*.conflist", "/etc/cni/net.d/*.json", "/opt/cni/config/*.conflist"} {
		files, err := filepath.Glob(root.path(pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if !bytes.Contains(raw, []byte(`"`+cniPlugin+`"`)) {
				continue
			}
			n := containerNetwork{file: file}
			if err := json.Unmarshal(raw, &n); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if n.Type != "" {
				n.Plugins = append(n.Plugins, n.containerPlugin)
			}
			networks = append(networks, n)
		}
	}
	return networks, nil
}

// checkNetworks finds plug-ins that are missing, and credentials that others than root can read.
func (root kernelFiles) checkNetworks(networks []containerNetwork) error {
	var wrong []string
	for _, n := range networks {
		for _, p := range n.Plugins {
			if err := root.checkPlugin(p); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %v", n.file, err))
			}
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func (root kernelFiles) checkPlugin(p containerPlugin) error {
	at := slices.IndexFunc(cniFolders, func(folder string) bool { return root.anyFile(filepath.Join(folder, p.Type)) })
	if at < 0 {
		return fmt.Errorf("plug-in %s is in none of %s", p.Type, strings.Join(cniFolders, ", "))
	}
	if err := root.checkExecutable(filepath.Join(cniFolders[at], p.Type)); err != nil || p.Type != cniPlugin {
		return err
	}
	path := cmp.Or(p.Credentials, cniCredentials)
	info, err := os.Stat(root.path(path))
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	if wrong := faults(path, info, 0); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

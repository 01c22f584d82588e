package guest

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Image is a kernel with the initramfs of guests.
type Image struct {
	Kernel string // path of the kernel
	Initrd string // path of the initramfs
}

// modules are those of the kernel that a guest needs, each after those that it needs itself.
var modules = []string{"failover", "net_failover", "virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
	"virtio_mmio", "virtio_net"}

// applets are the names of busybox that init and its shells use.
var applets = []string{"sh", "mount", "insmod", "ip", "ifconfig", "cat", "echo", "udhcpc", "setsid", "cttyhack", "stty", "ping", "nc", "grep", "ls",
	"md5sum", "dd", "usleep", "sleep", "kill", "killall", "head", "mv"}

var (
	leaseLine = regexp.MustCompile(`(?m)^LEASE `)
	readyLine = regexp.MustCompile(`(?m)^READY\n`)
)

// scripts are the init of a guest and what its DHCP client calls.
//
//go:embed init lease
var scripts embed.FS

// Files returns the directory with the kernel, its modules and busybox, which scripts/setup fills.
func Files() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "heddle-test", "guest")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("no kernel for guests: %w: run scripts/setup", err)
	}
	return dir, nil
}

// Build makes an image below dir.
func Build(dir string) (*Image, error) {
	files, err := Files()
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := writeRoot(z, files); err != nil {
		return nil, fmt.Errorf("initramfs of guests: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	image := &Image{Kernel: filepath.Join(files, "vmlinuz"), Initrd: filepath.Join(dir, "initrd.gz")}
	return image, os.WriteFile(image.Initrd, packed.Bytes(), 0o644)
}

// writeRoot writes the guest's files as an archive.
func writeRoot(to io.Writer, files string) error {
	a := &archive{to: to}
	for _, dir := range []string{"bin", "dev", "modules", "proc", "sys", "tmp"} {
		a.add(dir, modeDirectory|0o755, nil)
	}
	for _, name := range []string{"init", "lease"} {
		script, err := scripts.ReadFile(name)
		if err != nil {
			return err
		}
		a.add(name, modeFile|0o755, script)
	}
	a.add("modules/order", modeFile|0o644, []byte(strings.Join(modules, "\n")))
	busybox, err := os.ReadFile(filepath.Join(files, "busybox"))
	if err != nil {
		return err
	}
	a.add("bin/busybox", modeFile|0o755, busybox)
	for _, name := range applets {
		a.add("bin/"+name, modeLink|0o777, []byte("busybox"))
	}
	for _, name := range modules {
		module, err := os.ReadFile(filepath.Join(files, name+".ko"))
		if err != nil {
			return err
		}
		a.add("modules/"+name+".ko", modeFile|0o644, module)
	}
	return a.end()
}

// Types of files in an archive, with their permissions.
const (
	modeDirectory = 0o040000
	modeFile      = 0o100000
	modeLink      = 0o120000
)

// archive writes a cpio archive in the format newc, as the kernel unpacks it
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	to    io.Writer
	count int
	err   error // the first
}

// add adds a file; the content of a link is its target.
func (a *archive) add(name string, mode int, content []byte) {
	a.count++
	var b bytes.Buffer
	fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	pad(&b)
	b.Write(content)
	pad(&b)
	if a.err == nil {
		_, a.err = a.to.Write(b.Bytes())
	}
}

// pad fills up to a multiple of four bytes.
func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}

func (a *archive) end() error {
	a.add("TRAILER!!!", 0, nil)
	return a.err
}

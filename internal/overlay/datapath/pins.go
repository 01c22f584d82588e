package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// layoutVersion must be raised when something in the maps means something else under its old name:
// openMap carries over the entries of a map of another shape. Maps of another version are not
// read, so established flows are lost; a member with another name costs nothing. Programs that use
// such maps go on until AttachPort and AttachUnderlay replace them.
const layoutVersion = 1

// pins is the directory BPFFS/heddle/NAME, where one agent's maps and links outlive it:
//
//	v1/MAP              maps of layout version 1
//	links/port-ID       the program on a port's interface
//	links/limit-egress-N, links/limit-ingress-N
//	                    the programs that limit what the machine at interface N sends and receives
//	links/underlay-N    the program on what comes in at the underlay's interface N
//	                    (without -N: of an earlier version)
//	links/stamp-N       the program on what goes out there
//	links/vxlan         the program on the vxlan device
//	links/wireguard     the program on the WireGuard device
//	links/physical-N    the program on the interface N into physical networks
//	promiscuous/N       a directory: interface N is promiscuous because of it
type pins struct {
	root string // BPFFS/heddle/NAME
	log  *slog.Logger
	held *os.File // root, locked by this process
}

// holdTimeout bounds the wait for another process to let a directory go. A program that the last
// holder was just starting has the lock until it is executed.
const holdTimeout = time.Second

const (
	portLinkPrefix  = "port-"
	underlayLink    = "underlay"
	stampLinkPrefix = "stamp-"
	vxlanLink       = "vxlan"
	wireguardLink   = "wireguard"

	physicalLinkPrefix = "physical-"
)

func (p pins) maps() string  { return filepath.Join(p.root, "v"+strconv.Itoa(layoutVersion)) }
func (p pins) links() string { return filepath.Join(p.root, "links") }

func (p pins) promiscuous() string { return filepath.Join(p.root, "promiscuous") }

// openPins mounts bpffs where it is missing and makes the directories.
func openPins(bpffs, name string, log *slog.Logger) (pins, error) {
	p := pins{root: filepath.Join(bpffs, "heddle", name), log: log}
	if err := mountBPFFS(bpffs); err != nil {
		return p, err
	}
	for _, dir := range []string{p.maps(), p.links()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return p, fmt.Errorf("make room for pinned maps: %w", err)
		}
	}
	if err := p.hold(name); err != nil {
		return p, err
	}
	return p, p.dropOtherVersions()
}

// hold locks the directory. Agents in several network namespaces may share the file system: one
// that has another's name would move that one's flows and programs to itself.
func (p *pins) hold(name string) error {
	dir, err := os.Open(p.root)
	if err != nil {
		return fmt.Errorf("lock pinned maps: %w", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(dir.Fd()), unix.LOCK_EX) }()
	select {
	case err = <-locked:
	case <-time.After(holdTimeout):
		err = fmt.Errorf("an agent named %s runs on this machine: stop it, or give this one another --name", name)
	}
	if err != nil {
		dir.Close() // which returns a lock that comes later
		return fmt.Errorf("lock %s: %w", p.root, err)
	}
	p.held = dir
	return nil
}

// release lets go of what hold locked, if it did.
func (p *pins) release() error {
	held := p.held
	if held == nil {
		return nil
	}
	p.held = nil
	return held.Close()
}

func mountBPFFS(dir string) error {
	mounted, err := isBPFFS(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs at %s: %w (it takes CAP_SYS_ADMIN)", dir, err)
	}
	return nil
}

func isBPFFS(dir string) (bool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil && !os.IsExist(err) {
		return false, fmt.Errorf("bpffs: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("bpffs at %s: %w", dir, err)
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}

// dropOtherVersions unpins maps of other layouts; programs that still use them keep them alive.
func (p pins) dropOtherVersions() error {
	entries, err := os.ReadDir(p.root)
	if err != nil {
		return fmt.Errorf("look for pinned maps: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(p.root, e.Name())
		if !strings.HasPrefix(e.Name(), "v") || dir == p.maps() {
			continue
		}
		p.log.Info("pinned maps have another layout: starting with empty ones", "found", e.Name(), "want", layoutVersion)
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove pinned maps of another layout: %w", err)
		}
	}
	return nil
}

// openMap opens a pinned map, or makes and pins it. One that a version with another shape or other
// sizes left is replaced by one with its entries; the programs of that version use theirs until
// they are replaced too.
func (p pins) openMap(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	path := filepath.Join(p.maps(), name)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return p.makeMap(path, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned map %s: %w", path, err)
	}
	if fits(m, spec) {
		return m, nil
	}
	defer m.Close()
	return p.replaceMap(path, spec, m)
}

// replaceMap puts a map of the shape of spec in the place of a pinned one. Whoever looks finds the
// one or the other, complete.
func (p pins) replaceMap(path string, spec *ebpf.MapSpec, before *ebpf.Map) (*ebpf.Map, error) {
	unfinished := path + "_new" // the file system allows no dots
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove a map that was not finished: %w", err)
	}
	m, err := p.makeMap(unfinished, spec)
	if err != nil {
		return nil, err
	}
	log := p.log.With("map", filepath.Base(path))
	if c, err := conversionTo(spec, before); err != nil {
		log.Warn("pinned map does not fit: starting with an empty one", "why", err)
	} else if carried, refused, err := c.carry(before, m); err != nil || refused > 0 {
		log.Warn("pinned map does not fit: not all entries were carried over", "carried", carried, "without_room", refused, "err", err)
	} else {
		log.Info("pinned map does not fit: its entries were carried over", "entries", carried)
	}
	if err := os.Rename(unfinished, path); err != nil {
		m.Close()
		return nil, fmt.Errorf("replace pinned map: %w", err)
	}
	return m, nil
}

func (p pins) makeMap(path string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("make map %s: %w", spec.Name, err)
	}
	if err := m.Pin(path); err != nil {
		m.Close()
		return nil, fmt.Errorf("pin map at %s: %w", path, err)
	}
	return m, nil
}

// openLink opens a pinned link; nil when there is none.
func (p pins) openLink(name string) (link.Link, error) {
	l, err := link.LoadPinnedLink(filepath.Join(p.links(), name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", name, err)
	}
	return l, nil
}

// linkNames lists the pinned links.
func (p pins) linkNames() ([]string, error) {
	entries, err := os.ReadDir(p.links())
	if err != nil {
		return nil, fmt.Errorf("look for pinned links: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// attach runs program on what comes in at the interface, without a gap in place of an earlier one
// of that name on the same interface. It must be called in the interface's network namespace.
func (p pins) attach(name string, program *ebpf.Program, ifindex int) (link.Link, error) {
	return p.attachAt(name, program, ifindex, ebpf.AttachTCXIngress, nil)
}

// attachAt is attach with the direction of frames, and the place among the programs there.
func (p pins) attachAt(name string, program *ebpf.Program, ifindex int, direction ebpf.AttachType, place link.Anchor) (link.Link, error) {
	old, err := p.openLink(name)
	if err != nil {
		return nil, err
	}
	if old != nil {
		if linkInterface(old) == ifindex {
			if err := old.Update(program); err == nil {
				return old, nil
			}
		}
		if err := p.detach(old, name); err != nil {
			return nil, err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: direction, Anchor: place})
	if err != nil {
		return nil, fmt.Errorf("attach program to interface %d: %w", ifindex, err)
	}
	if err := l.Pin(filepath.Join(p.links(), name)); err != nil {
		l.Close()
		return nil, fmt.Errorf("pin link %s: %w", name, err)
	}
	return l, nil
}

// detach stops a program and forgets its pin.
func (p pins) detach(l link.Link, name string) error {
	if err := os.Remove(filepath.Join(p.links(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin link %s: %w", name, err)
	}
	if l == nil {
		return nil
	}
	// A link that is only closed lets go of its interface some time later, and until then the same
	// program cannot be attached there again.
	return errors.Join(l.Detach(), l.Close())
}

// linkInterface is the interface a link sits on; 0 when that has gone.
func linkInterface(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return 0
	}
	return int(info.TCX().Ifindex)
}

// checkName refuses what cannot be the name of a file in bpffs.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("name %q: want 1 to %d characters", name, maxName)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("name %q: want letters, digits, - and _ only", name)
		}
	}
	return nil
}

const maxName = 64

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kernelFiles is the directory that holds proc and sys.
type kernelFiles string

// read returns a file's text without spaces around it; "" if there is none.
func (root kernelFiles) read(path string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(string(root), path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

// checks returns the checks of settings of the kernel, and of other programs' traces in it.
func (root kernelFiles) checks() []Check {
	return []Check{{
		Name: "reverse path filter", For: "overlay: tunnels", Optional: true,
		Fix: "sysctl -w net.ipv4.conf.all.rp_filter=2, and the same in /etc/sysctl.d: a strict filter drops tunnelled packets that come in by another interface than answers leave by",
		Run: func(context.Context) error {
			return root.refuse("proc/sys/net/ipv4/conf/all/rp_filter", "1", "strict")
		},
	}, {
		Name: "bridged frames past iptables", For: "hosts with bridges", Optional: true,
		Fix: "sysctl -w net.bridge.bridge-nf-call-iptables=0, unless a program such as Docker needs it: rules of the host apply to frames between its bridges' ports",
		Run: func(context.Context) error {
			return root.refuse("proc/sys/net/bridge/bridge-nf-call-iptables", "1", "bridged frames go through iptables")
		},
	}, {
		Name: "room for connections", For: "policy",
		Fix: "sysctl -w net.netfilter.nf_conntrack_max to twice of it, and the same in /etc/sysctl.d",
		Run: func(context.Context) error { return root.checkConnections() },
	}, {
		Name: "other network agents", For: "overlay, policy", Optional: true,
		Fix: "stop and remove the other agent, then its interfaces, namespaces and rules, or reboot: two agents undo each other's work",
		Run: func(context.Context) error { return root.findOthers() },
	}, root.denialsCheck()}
}

// refuse returns an error if a file has a value.
func (root kernelFiles) refuse(path, value, meaning string) error {
	got, err := root.read(path)
	if err == nil && got == value {
		err = fmt.Errorf("/%s is %s: %s", path, got, meaning)
	}
	return err
}

// checkConnections finds a table of connections that is nearly full: the kernel drops what opens
// more.
func (root kernelFiles) checkConnections() error {
	const dir = "proc/sys/net/netfilter/nf_conntrack_"
	used, err1 := root.read(dir + "count")
	most, err2 := root.read(dir + "max")
	if err := errors.Join(err1, err2); err != nil || used == "" || most == "" {
		return err
	}
	n, err1 := strconv.Atoi(used)
	of, err2 := strconv.Atoi(most)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if n*5 >= of*4 {
		return fmt.Errorf("%d of %d connections are in use", n, of)
	}
	return nil
}

// leftover is a directory of the names that other network agents make, with their beginnings.
type leftover struct {
	kind, dir string
	owners    map[string]string // by beginning
}

var leftovers = []leftover{
	{"interface", "sys/class/net", map[string]string{
		"br-int": "Neutron's or OVN's Open vSwitch agent", "br-tun": "Neutron's Open vSwitch agent", "brq": "Neutron's Linux bridge agent", "qbr": "Neutron's hybrid firewall",
		"qvo": "Neutron's hybrid firewall", "genev_sys": "OVN", "vxlan.calico": "Calico's Felix", "cilium_": "Cilium", "flannel.": "Flannel", "weave": "Weave Net",
	}},
	{"network namespace", "run/netns", map[string]string{
		"qdhcp-": "Neutron's DHCP agent", "qrouter-": "Neutron's L3 agent", "snat-": "Neutron's L3 agent", "fip-": "Neutron's L3 agent", "qlbaas-": "Neutron's LBaaS agent", "ovnmeta-": "OVN's metadata agent",
	}},
}

func (root kernelFiles) findOthers() error {
	var found []string
	for _, l := range leftovers {
		entries, err := os.ReadDir(filepath.Join(string(root), l.dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			for beginning, agent := range l.owners {
				if strings.HasPrefix(e.Name(), beginning) {
					found = append(found, fmt.Sprintf("%s %s of %s", l.kind, e.Name(), agent))
				}
			}
		}
	}
	if len(found) > 0 {
		slices.Sort(found)
		return errors.New(strings.Join(found, ", "))
	}
	return nil
}

const (
	// mostSync is the time that etcd allows a disk for a sync: the 99th percentile.
	mostSync  = 10 * time.Millisecond
	syncTries = 100
)

// syncCheck measures the disk of the embedded store, if there is one.
func syncCheck(data string) Check {
	return Check{
		Name: "speed of the store's disk", For: "serve", Optional: true, Fix: "put " + data + " on a disk that syncs within 10 ms, such as an SSD: each call waits for one sync",
		Run: func(context.Context) error {
			if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			took, err := syncTimes(data)
			if err != nil {
				return err
			}
			return judgeSyncs(took)
		},
	}
}

// syncTimes measures syncs of small writes in a directory.
func syncTimes(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, 4096)
	for range syncTries {
		began := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func judgeSyncs(took []time.Duration) error {
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; p99 > mostSync {
		return fmt.Errorf("one sync of a hundred takes %s, at most %s should be", p99.Round(time.Millisecond), mostSync)
	}
	return nil
}

// pathCheck sends the largest packets of the underlay to another host's tunnel address.
func pathCheck(peer netip.Addr, mtu int) Check {
	return Check{
		Name: "packets of " + strconv.Itoa(mtu) + " bytes to " + peer.String(), For: "overlay: tunnels",
		Fix: "raise the MTU on the way, or lower --underlay-mtu of the servers; a firewall on the way must let ICMP pass",
		Run: func(ctx context.Context) error {
			return pingWhole(ctx, peer, mtu)
		},
	}
}

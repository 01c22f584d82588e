package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// capability is a right of root's that agents need.
type capability struct {
	number int
	name   string
}

var (
	capNetAdmin       = capability{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}
	capNetRaw         = capability{unix.CAP_NET_RAW, "CAP_NET_RAW"}
	capNetBindService = capability{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"}
	capBPF            = capability{unix.CAP_BPF, "CAP_BPF"}
	capPerfmon        = capability{unix.CAP_PERFMON, "CAP_PERFMON"}
	capSysAdmin       = capability{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}
	capSetUID         = capability{unix.CAP_SETUID, "CAP_SETUID"}
	capSetGID         = capability{unix.CAP_SETGID, "CAP_SETGID"}
	capKill           = capability{unix.CAP_KILL, "CAP_KILL"}
	capChown          = capability{unix.CAP_CHOWN, "CAP_CHOWN"}
	capDACOverride    = capability{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}
)

// need is a capability with the use that a role has for it.
type need struct {
	capability
	use string
}

// needs lists what each role of agents needs, and under "agent" what all do. Without it a role
// would start, and fail where it comes to that.
var needs = map[string][]need{
	"agent": {{capDACOverride, "files that other users have, such as a server's, Neutron's and dnsmasq's (open)"}},
	"overlay": {
		{capNetAdmin, "links, routes and programs on interfaces (rtnetlink, bpf)"},
		{capNetRaw, "ARP and probes by packet sockets (socket)"},
		{capBPF, "loading programs and maps (bpf)"},
		{capPerfmon, "programs that read packets by pointers (bpf)"},
		{capSysAdmin, "network namespaces and the BPF file system (setns, unshare, mount)"},
		{capSetUID, "haproxy and BGP speakers, which have users of their own (setuid)"},
		{capSetGID, "haproxy and BGP speakers, which have users of their own (setgid)"},
		{capKill, "ending haproxy and BGP speakers (pidfd_send_signal)"},
		{capChown, "the directory and the socket of haproxy's user (chown)"},
		{capNetBindService, "BGP speakers, on port 179 (bind)"},
	},
	"policy": {
		{capNetAdmin, "links, routes and nftables (rtnetlink, nfnetlink)"},
		{capSysAdmin, "sockets in network namespaces (setns)"},
	},
	"bgp": {
		{capNetAdmin, "routes (rtnetlink)"},
		{capSysAdmin, "sockets in network namespaces (setns)"},
		{capNetBindService, "BGP, on port 179 (bind)"},
	},
	"dhcp": {
		{capNetAdmin, "links and addresses, and dnsmasq's neighbours (rtnetlink, ioctl)"},
		{capNetRaw, "router advertisements, and dnsmasq's answers (socket)"},
		{capNetBindService, "dnsmasq, on ports 53, 67 and 547 (bind)"},
		{capSysAdmin, "sockets in network namespaces (setns)"},
		{capSetUID, "dnsmasq, which has a user of its own (setuid)"},
		{capSetGID, "dnsmasq, which has a user of its own (setgid)"},
		{capKill, "ending dnsmasq (pidfd_send_signal)"},
		{capChown, "dnsmasq's leases and the state directory (chown)"},
	},
	"xen": {
		{capNetAdmin, "links and addresses (rtnetlink)"},
		{capSysAdmin, "sockets in network namespaces (setns)"},
	},
}

// checkCapabilities returns an error that names the capabilities which this process lacks for
// roles of agents, and the unit that gives them.
func checkCapabilities(unit string, roles ...string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities of this process: %w", err)
	}
	var missing []string
	for _, role := range append([]string{"agent"}, roles...) {
		for _, n := range needs[role] {
			if sets[n.number/32].Effective&(1<<(n.number%32)) == 0 {
				missing = append(missing, fmt.Sprintf("%s lacks %s, for %s", role, n.name, n.use))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return withRights(fmt.Errorf("%s: run it as root, with the CapabilityBoundingSet= of Heddle's %s.service", strings.Join(missing, "; "), unit))
}

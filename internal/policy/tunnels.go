package policy

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
)

const (
	// vxlanPort is the UDP port of VXLAN between hosts, IANA's. The overlay's own is another one.
	vxlanPort = 4789
	// vxlanOverhead is the size of the outer IPv4, UDP, VXLAN and inner Ethernet headers, bytes.
	vxlanOverhead = 50
	// tunnelsEvery is the interval between checks of tunnel devices (spec §10).
	tunnelsEvery = 10 * time.Second
	// tunnelsPause delays the check after a change of an address, so that many changes cause one.
	tunnelsPause = time.Second
)

// tunnelling is the desired state of this host's tunnel devices.
//
// The agent makes the devices and gives a VXLAN the addresses of the other hosts. Which
// destinations use them is routing: the BGP speaker routes a pool over the device, with the other
// host's address as gateway (DST via HOST dev DEVICE onlink).
type tunnelling struct {
	ipip    string       // device for IPIP; empty: none
	vxlans  []string     // devices for VXLAN, in order
	local   netip.Addr   // this host's own address
	peers   []netip.Addr // those of the others, in order
	mtu     int          // of the IPIP device
	address netip.Addr   // of the first device; the zero Addr: none
}

// isVXLAN reports whether a pool's device is a VXLAN rather than IPIP (spec §3.6).
func isVXLAN(device string) bool { return strings.HasPrefix(device, "vxlan") }

// tunnellingOf returns the desired state. Pools choose the kind of tunnel, as both ends must use
// the same; IpInIpEnabled alone makes the device for routes that others set.
func tunnellingOf(pools map[netip.Prefix]*calico.Pool, s *Settings, local netip.Addr, peers []netip.Addr) tunnelling {
	t := tunnelling{local: local, peers: peers, mtu: s.IPIPMTU, address: s.IPIPAddress}
	vxlans := map[string]bool{}
	if s.IPIP {
		t.ipip = ipipDevice
	}
	for _, p := range pools {
		switch {
		case p.IPIP == "" || p.CIDR.Addr().Is6():
		case isVXLAN(p.IPIP):
			vxlans[p.IPIP] = true
		default:
			t.ipip = p.IPIP
		}
	}
	t.vxlans = slices.Sorted(maps.Keys(vxlans))
	return t
}

func (t *tunnelling) isEmpty() bool { return t.ipip == "" && len(t.vxlans) == 0 }

// tunnelState is the core's state of the tunnel devices.
type tunnelState struct {
	wanted tunnelling
	failed map[string]error // devices that are not as they should be
	due    bool             // what is requested may have changed
	at     time.Time        // when the devices are checked again
}

func (t *tunnelState) exist() bool { return len(t.failed) > 0 || !t.wanted.isEmpty() }

func (t *tunnelState) isDue(now time.Time) bool { return t.due || t.exist() && !now.Before(t.at) }

// checkBy has the devices checked at a time at the latest.
func (t *tunnelState) checkBy(at time.Time) { t.at = earlier(t.at, at) }

// record takes the outcome of setting up the devices: what failed, by device.
func (t *tunnelState) record(failed map[string]error, out *requests) {
	for name, err := range failed {
		if before := t.failed[name]; before == nil || before.Error() != err.Error() {
			out.error("a tunnel device is not as its pools ask", "device", name, "err", err)
		}
	}
	for name := range t.failed {
		if failed[name] == nil {
			out.info("a tunnel device is as its pools ask", "device", name)
		}
	}
	t.failed = failed
}

const ipipDevice = "tunl0"

// tunnels keeps the devices.
type tunnels struct {
	net  hostnet.Net
	log  *slog.Logger
	ipip string // the device for IPIP that was asked for last
}

// put brings the devices to the desired state, and returns what failed, by device.
func (t *tunnels) put(want tunnelling) map[string]error {
	failed := map[string]error{}
	address := want.address
	if t.ipip != want.ipip {
		if err := t.shut(t.ipip); err != nil {
			failed[t.ipip] = err
		} else {
			t.ipip = want.ipip
		}
	}
	if want.ipip != "" {
		if err := t.putIPIP(want, address); err != nil {
			failed[want.ipip] = err
		}
		address = netip.Addr{}
	}
	for _, name := range want.vxlans {
		if err := t.putVXLAN(name, want, address); err != nil {
			failed[name] = err
		}
		address = netip.Addr{}
	}
	if err := t.removeOthers(want.vxlans); err != nil {
		failed["others"] = err
	}
	return failed
}

func (t *tunnels) putIPIP(want tunnelling, address netip.Addr) error {
	_, err := t.net.AddLink(hostnet.LinkSpec{Name: want.ipip, Kind: hostnet.IPIP, MTU: want.mtu})
	switch {
	case errors.Is(err, hostnet.ErrUnsupported):
		return fmt.Errorf("this kernel has no IPIP: load the module ipip, or set ipip of the pools to vxlan0 on all hosts: %w", err)
	case err != nil && !errors.Is(err, hostnet.ErrExists):
		return err
	}
	l, err := t.net.Link(want.ipip)
	if err != nil {
		return err
	}
	if l.Kind != hostnet.IPIP {
		return fmt.Errorf("device %s is a %s: remove it, or name another in ipip of the pools", l.Name, l.Kind)
	}
	return t.dress(l, want.mtu, address)
}

// shut sets an unused device for IPIP down: it would accept packets from any host, without the
// rules of the tunnel. The device itself may be the kernel's own, which cannot be deleted.
func (t *tunnels) shut(name string) error {
	if name == "" {
		return nil
	}
	err := t.net.SetUp(name, false)
	if errors.Is(err, hostnet.ErrNotFound) {
		return nil
	}
	return err
}

// dress gives a device its MTU and its only address, and sets it up.
func (t *tunnels) dress(l hostnet.Link, mtu int, address netip.Addr) error {
	var errs []error
	if l.MTU != mtu {
		errs = append(errs, t.net.SetMTU(l.Name, mtu))
	}
	if !l.Up {
		errs = append(errs, t.net.SetUp(l.Name, true))
	}
	has, err := t.net.Addresses(l.Name)
	errs = append(errs, err)
	there := false
	for _, p := range has {
		if address.IsValid() && p == host(address) {
			there = true
		} else {
			errs = append(errs, t.net.DeleteAddress(l.Name, p))
		}
	}
	if address.IsValid() && !there {
		errs = append(errs, t.net.AddAddress(l.Name, host(address)))
	}
	return errors.Join(errs...)
}

// tunnelMAC returns the MAC, on every VXLAN, of the host with an address.
func tunnelMAC(a netip.Addr) hostnet.MAC {
	b := a.As4()
	return hostnet.MAC{0x02, 0x68, b[0], b[1], b[2], b[3]}
}

// vniOf returns the network of a device's name, the same on all hosts.
func vniOf(device string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(device))
	return 4096 + h.Sum32()%(1<<23)
}

func (t *tunnels) putVXLAN(name string, want tunnelling, address netip.Addr) error {
	if !want.local.Is4() {
		return errors.New("this host's address is not known: write it to its bird_ip")
	}
	spec := hostnet.VXLANSpec{VNI: vniOf(name), Port: vxlanPort, Local: want.local}
	l, err := t.net.Link(name)
	if err == nil && ours(l) && (l.VXLAN != spec || l.MAC != tunnelMAC(want.local)) {
		if err := t.net.DeleteLink(name); err != nil {
			return err
		}
		err = hostnet.ErrNotFound
	}
	if errors.Is(err, hostnet.ErrNotFound) {
		l, err = t.net.AddLink(hostnet.LinkSpec{Name: name, Kind: hostnet.VXLAN, MAC: tunnelMAC(want.local), Port: spec.Port, VNI: spec.VNI, Local: spec.Local})
	}
	switch {
	case errors.Is(err, hostnet.ErrUnsupported):
		return fmt.Errorf("this kernel has no VXLAN: load the module vxlan, or set ipip of the pools to tunl0 on all hosts: %w", err)
	case err != nil:
		return err
	case !ours(l):
		return fmt.Errorf("device %s is not ours: remove it, or name another in ipip of the pools", name)
	}
	mtu := 1500 - vxlanOverhead
	if under, err := t.net.LinkWith(want.local); err == nil && under.Kind != hostnet.Loopback {
		mtu = under.MTU - vxlanOverhead
	}
	return errors.Join(t.dress(l, mtu, address), t.introduce(name, want.peers))
}

// ours reports whether a device is a VXLAN of this agent.
func ours(l hostnet.Link) bool {
	return l.Kind == hostnet.VXLAN && l.VXLAN.VNI == vniOf(l.Name) && l.VXLAN.Port == vxlanPort
}

// introduce gives a VXLAN device the addresses of the other hosts, and removes former ones.
func (t *tunnels) introduce(name string, peers []netip.Addr) error {
	known, err := t.net.Forwards(name)
	if err != nil {
		return err
	}
	neighbours, err := t.net.Neighbours()
	if err != nil {
		return err
	}
	met := map[netip.Addr]hostnet.MAC{}
	for _, n := range neighbours {
		if n.Link == name && n.Permanent {
			met[n.IP] = n.MAC
		}
	}
	var errs []error
	for _, f := range known {
		if !slices.Contains(peers, f.Remote) || f.MAC != tunnelMAC(f.Remote) {
			errs = append(errs, t.net.DeleteForward(name, f), t.net.DeleteNeighbour(name, f.Remote))
		}
	}
	for _, p := range peers {
		if met[p] != tunnelMAC(p) {
			errs = append(errs, t.net.SetNeighbour(name, p, tunnelMAC(p)))
		}
		if !slices.Contains(known, hostnet.Forward{MAC: tunnelMAC(p), Remote: p}) {
			errs = append(errs, t.net.SetForward(name, hostnet.Forward{MAC: tunnelMAC(p), Remote: p}))
		}
	}
	return errors.Join(errs...)
}

// removeOthers deletes VXLAN devices of ours that no pool uses any more.
func (t *tunnels) removeOthers(wanted []string) error {
	links, err := t.net.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if ours(l) && !slices.Contains(wanted, l.Name) {
			t.log.Info("removing a tunnel device that no pool asks for", "device", l.Name)
			errs = append(errs, t.net.DeleteLink(l.Name))
		}
	}
	return errors.Join(errs...)
}

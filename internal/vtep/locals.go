package vtep

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/ovsdb"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// maxRemotes bounds the MAC addresses that one device reports; of more the first in order count.
const maxRemotes = 16384

// maxSkipped bounds the rows that are named.
const maxSkipped = 16

// locals holds what a switch says is behind it.
type locals struct {
	remotes map[string]*topology.LearnedRemote // by port and MAC
	skipped []string                           // rows that cannot be read, in words; at most maxSkipped
	more    int                                // further ones
}

// readLocals reads the rows that the switch writes, of our logical switches. A row of which the MAC
// address or the locator cannot be read is skipped and named; of one with a bad IP address that.
func readLocals(t *tables, segments []segment) *locals {
	byName := make(map[string]*segment, len(segments))
	for i := range segments {
		byName[segments[i].name()] = &segments[i]
	}
	l := &locals{remotes: map[string]*topology.LearnedRemote{}}
	for _, id := range sorted(t.ucastLocal) {
		row := t.ucastLocal[id]
		if s := t.segmentOf(row.logical, byName); s != nil {
			l.addUcast(t, s, row)
		}
	}
	for _, id := range sorted(t.mcastLocal) {
		row := t.mcastLocal[id]
		if s := t.segmentOf(row.logical, byName); s != nil && row.mac == unknownDst {
			l.addMcast(t, s, row)
		}
	}
	return l
}

func (t *tables) segmentOf(id ovsdb.UUID, byName map[string]*segment) *segment {
	if ls := t.logical[id]; ls != nil {
		return byName[ls.name]
	}
	return nil
}

func (l *locals) addUcast(t *tables, s *segment, row *macRow) {
	mac, err := packet.ParseMAC(row.mac)
	if err != nil || mac.IsMulticast() || mac.IsZero() {
		l.skip("Ucast_Macs_Local", row, "it is no MAC address of a machine")
		return
	}
	vtep, why := t.address(row.to)
	if why != "" {
		l.skip("Ucast_Macs_Local", row, why)
		return
	}
	ip := netip.Addr{}
	if row.ip != "" {
		if ip, err = netip.ParseAddr(row.ip); err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
			l.skip("Ucast_Macs_Local", row, fmt.Sprintf("ipaddr %q is no address of a machine; without it", shorten(row.ip)))
			ip = netip.Addr{}
		}
	}
	l.add(s, mac, vtep, ip.Unmap())
}

// addMcast notes where frames to many go. Of several locators the first counts.
func (l *locals) addMcast(t *tables, s *segment, row *macRow) {
	set := t.sets[row.to]
	if set == nil {
		l.skip("Mcast_Macs_Local", row, "its locator set is missing")
		return
	}
	var found []netip.Addr
	why := "its locator set is empty"
	for _, id := range set.locators {
		vtep, cannot := t.address(id)
		if cannot != "" {
			why = cannot
			continue
		}
		found = append(found, vtep)
	}
	if len(found) == 0 {
		l.skip("Mcast_Macs_Local", row, why)
		return
	}
	l.add(s, packet.Broadcast, slices.MinFunc(found, netip.Addr.Compare), netip.Addr{})
}

// address returns that of a locator, or why it has none that frames can be sent to.
func (t *tables) address(id ovsdb.UUID) (vtep netip.Addr, why string) {
	to := t.locators[id]
	if to == nil {
		return vtep, "its locator is missing"
	}
	vtep, err := netip.ParseAddr(to.dst)
	if err != nil || !vtep.Is4() || vtep.IsUnspecified() || vtep.IsMulticast() || vtep.IsLoopback() {
		return vtep, fmt.Sprintf("dst_ip %q of its locator is no IPv4 address of a VTEP", shorten(to.dst))
	}
	if to.encapsulation != vxlan {
		return vtep, fmt.Sprintf("its locator has the encapsulation %q, not %s", shorten(to.encapsulation), vxlan)
	}
	return vtep, ""
}

func (l *locals) add(s *segment, mac packet.MAC, vtep, ip netip.Addr) {
	key := s.portID + "/" + mac.String()
	if _, there := l.remotes[key]; !there && len(l.remotes) >= maxRemotes {
		l.more++
		return
	}
	l.remotes[key] = &topology.LearnedRemote{HolderID: topology.RemoteHolder, PortID: s.portID, NetworkID: s.networkID,
		BehindID: s.behindID, MAC: mac, VTEP: vtep, IP: ip}
}

func (l *locals) skip(table string, row *macRow, why string) {
	if len(l.skipped) >= maxSkipped {
		l.more++
		return
	}
	l.skipped = append(l.skipped, fmt.Sprintf("%s %q: %s", table, shorten(row.mac), why))
}

// faults returns what was skipped, in words.
func (l *locals) faults() []string {
	if l.more == 0 {
		return l.skipped
	}
	return append(slices.Clone(l.skipped), fmt.Sprintf("%d more rows are skipped", l.more))
}

// shorten keeps foreign text readable.
func shorten(s string) string {
	const limit = 40
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

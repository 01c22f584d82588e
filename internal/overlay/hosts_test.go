package overlay

import (
	"maps"
	"net/netip"
	"testing"

	"heddle/internal/topology"
)

func TestAssignTunnels(t *testing.T) {
	t.Parallel()
	local, x, y := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("198.51.100.3")
	host := func(id string, revision int64, zone string, addrs ...netip.Addr) hostReport {
		h := hostReport{id: id, name: "name of " + id, reported: len(addrs), revision: revision}
		for _, a := range addrs {
			h.tunnels = append(h.tunnels, topology.HostTunnel{ZoneID: zone, IP: a})
		}
		return h
	}
	many := host("a", 1, "z", x)
	many.reported = 5
	for _, tt := range []struct {
		name    string
		before  map[netip.Addr]string
		reports []hostReport
		want    map[netip.Addr]string
		faults  int
	}{
		{"nothing", nil, nil, nil, 0},
		{"each its own", nil, []hostReport{host("a", 1, "z", x), host("b", 2, "z", y)}, map[netip.Addr]string{x: "a", y: "b"}, 0},
		{"of another zone", nil, []hostReport{host("a", 1, "other", x)}, nil, 0},
		{"the local one", nil, []hostReport{host("a", 1, "z", local)}, nil, 1},
		{"none of IPv4", nil, []hostReport{host("a", 1, "z", netip.MustParseAddr("2001:db8::1"))}, nil, 1},
		{"of IPv4 within IPv6", nil, []hostReport{host("a", 1, "z", netip.MustParseAddr("::ffff:198.51.100.2"))}, nil, 1},
		{"of many machines", nil, []hostReport{host("a", 1, "z", netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("255.255.255.255"))}, nil, 2},
		{"of none and of each", nil, []hostReport{host("a", 1, "z", netip.Addr{}, netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.1"))}, nil, 3},
		{"beside one that it can have", nil, []hostReport{host("a", 1, "z", netip.MustParseAddr("224.0.0.1"), x)}, map[netip.Addr]string{x: "a"}, 1},
		{"too many", nil, []hostReport{many}, map[netip.Addr]string{x: "a"}, 1},
		{"of two the first", nil, []hostReport{host("a", 2, "z", x), host("b", 1, "z", x)}, map[netip.Addr]string{x: "b"}, 1},
		{"of two the first, listed first", nil, []hostReport{host("a", 1, "z", x), host("b", 2, "z", x)}, map[netip.Addr]string{x: "a"}, 1},
		{"of two that which has it", map[netip.Addr]string{x: "a"}, []hostReport{host("a", 2, "z", x), host("b", 1, "z", x)}, map[netip.Addr]string{x: "a"}, 1},
		{"of two that which has it, listed last", map[netip.Addr]string{x: "b"}, []hostReport{host("a", 1, "z", x), host("b", 2, "z", x)}, map[netip.Addr]string{x: "b"}, 1},
	} {
		got, faults := assignTunnels(local, []string{"z"}, tt.before, tt.reports)
		if !maps.Equal(got, tt.want) || len(faults) != tt.faults {
			t.Errorf("%s: %v with %d faults, want %v with %d", tt.name, got, len(faults), tt.want, tt.faults)
		}
	}
}

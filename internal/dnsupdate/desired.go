package dnsupdate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// A recordSet holds the records of one name: "A 192.0.2.1", "AAAA 2001:db8::1" or
// "PTR www.example.org.", sorted.
type recordSet struct {
	Zone    string   `json:"zone"`
	Records []string `json:"records,omitempty"`
}

// claim is an object's wish to have a name lead to an address.
type claim struct {
	object, project string
	created         time.Time
	name            string // with its final dot
	address         netip.Addr
}

// desired returns the records of all names in the zones that should be published, and why some
// claims are refused, by object and name.
//
// A name belongs to the project with its oldest object: other projects cannot add addresses to it.
func desired(r records.Reader, zones []string) (sets map[string]recordSet, refused map[string]string) {
	claims := slices.Concat(floatingIPClaims(r), portClaims(r))
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.object, b.object), a.address.Compare(b.address))
	})
	sets, refused = map[string]recordSet{}, map[string]string{}
	owners := map[string]string{} // projects, by name
	for _, c := range claims {
		zone := zoneOf(c.name, zones)
		owner, taken := owners[c.name]
		switch {
		case zone == "":
			continue
		case c.name == zone:
			refused[c.object+" "+c.name] = "it is the name of the zone"
			continue
		case strings.HasSuffix("."+c.name, reverse4) || strings.HasSuffix("."+c.name, reverse6):
			refused[c.object+" "+c.name] = "names of reverse lookups belong to the addresses"
			continue
		case len(c.name) > longestName:
			refused[c.object+" "+c.name] = fmt.Sprintf("it is longer than %d characters", longestName)
			continue
		case taken && owner != c.project:
			refused[c.object+" "+c.name] = "another project has the name"
			continue
		}
		owners[c.name] = c.project
		add(sets, c.name, zone, addressRecord(c.address))
		if reverse := reverseName(c.address); zoneOf(reverse, zones) != "" && sets[reverse].Records == nil {
			add(sets, reverse, zoneOf(reverse, zones), "PTR "+c.name)
		}
	}
	return sets, refused
}

// longestName is the most characters of a domain name with its final dot (RFC 1035 §2.3.4).
const longestName = 254

// reverse4 and reverse6 end the names of PTR records: another record there would keep the address's
// own from being published.
const reverse4, reverse6 = ".in-addr.arpa.", ".ip6.arpa."

func add(sets map[string]recordSet, name, zone, record string) {
	s := sets[name]
	s.Zone = zone
	if i, there := slices.BinarySearch(s.Records, record); !there {
		s.Records = slices.Insert(s.Records, i, record)
	}
	sets[name] = s
}

func addressRecord(a netip.Addr) string {
	if a.Is4() {
		return "A " + a.String()
	}
	return "AAAA " + a.String()
}

// floatingIPClaims returns the names of floating IPs: their own or, without one, those of the ports
// that they are associated with.
func floatingIPClaims(r records.Reader) (all []claim) {
	for f := range schema.FloatingIPs.All(r) {
		name := fullName(f.DNSName, f.DNSDomain)
		if p, ok := schema.Ports.Peek(r, f.PortID); ok && f.DNSName == "" {
			if n, ok := schema.Networks.Peek(r, p.NetworkID); ok {
				name = portName(p, n)
			}
		}
		if name != "" {
			all = append(all, claim{"floating IP " + f.ID, f.ProjectID, f.CreatedAt, name, f.FloatingIPAddress})
		}
	}
	return all
}

// portClaims returns the names of the ports on networks whose addresses lead there from outside.
func portClaims(r records.Reader) (all []claim) {
	for p := range schema.Ports.By(r, "named", "true") {
		n, ok := schema.Networks.Peek(r, p.NetworkID)
		if !ok || !reachable(n) {
			continue
		}
		name := portName(p, n)
		for _, f := range p.FixedIPs {
			if name != "" {
				all = append(all, claim{"port " + p.ID, p.ProjectID, p.CreatedAt, name, f.IPAddress})
			}
		}
	}
	return all
}

// reachable reports whether the names of a network's ports are published: routed networks, and
// physical ones unless floating IPs are taken from them, as in the reference.
func reachable(n *neutron.Network) bool { return n.Routed() || n.PhysicalNetwork != "" && !n.External }

// portName returns the full name of a port, "" without one.
func portName(p *neutron.Port, n *neutron.Network) string {
	return fullName(p.DNSName, cmp.Or(p.DNSDomain, n.DNSDomain))
}

func fullName(name, domain string) string {
	if name == "" || domain == "" {
		return ""
	}
	if strings.HasSuffix(name, ".") {
		return name
	}
	return name + "." + domain
}

// zoneOf returns the longest of the zones that a name is in, or "".
func zoneOf(name string, zones []string) (best string) {
	for _, z := range zones {
		if len(z) > len(best) && strings.HasSuffix("."+name, "."+z) {
			best = z
		}
	}
	return best
}

// reverseName returns the name of an address's PTR record.
func reverseName(a netip.Addr) string {
	var b strings.Builder
	raw := a.AsSlice()
	slices.Reverse(raw)
	for _, x := range raw {
		if a.Is4() {
			b.WriteString(strconv.Itoa(int(x)) + ".")
		} else {
			fmt.Fprintf(&b, "%x.%x.", x&0xf, x>>4)
		}
	}
	suffix := reverse6
	if a.Is4() {
		suffix = reverse4
	}
	return strings.TrimSuffix(b.String(), ".") + suffix
}

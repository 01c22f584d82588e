package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	// wire is the hosts' interface that carries the tunnels, on a veth without a switch between, as
	// in the kernel's path.
	wire = "wire"
	// maxFlows is enough for all flows of a run.
	maxFlows = 1 << 20
)

// stand is two hosts with agents, joined by a wire, and a tenant's network.
type stand struct {
	*lab.Lab
	h1, h2  *lab.Host
	tenant  *lab.Tenant
	network *networks.Network
	made    int // workloads
}

// withStand runs use on a stand.
func (b *bench) withStand(ctx context.Context, use func(*stand) error) error {
	return b.withLab(ctx, func(l *lab.Lab) error {
		s, err := newStand(ctx, l)
		if err != nil {
			return err
		}
		return use(s)
	})
}

func newStand(ctx context.Context, l *lab.Lab) (s *stand, err error) {
	s = &stand{Lab: l}
	if s.h1, err = l.AddHost(); err != nil {
		return nil, err
	}
	if s.h2, err = l.AddHost(); err != nil {
		return nil, err
	}
	if err := l.Spaces.Veth(s.h1.NS, wire, s.h2.NS, wire); err != nil {
		return nil, err
	}
	for i, h := range l.Hosts {
		h.IP, h.MaxFlows = fmt.Sprintf("198.51.100.%d", 1+i), maxFlows
		if err := h.NS.IP("addr add " + h.IP + "/24 dev " + wire); err != nil {
			return nil, err
		}
		if err := l.Join(ctx, h); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	if s.tenant, err = l.NewTenant(ctx, "bench", &lab.UndoList{}); err != nil {
		return nil, err
	}
	s.network, err = s.tenant.Network(ctx, "bench", "10.0.0.0/16", "")
	return s, err
}

// tenRules makes a group of ten incoming rules, eight for single TCP ports and the given two, and
// two outgoing ones.
func tenRules(ctx context.Context, t *lab.Tenant, name string, more ...rules.CreateOpts) (string, error) {
	var all []rules.CreateOpts
	for i := range 8 {
		all = append(all, rules.CreateOpts{Protocol: rules.ProtocolTCP, PortRangeMin: 20000 + i, PortRangeMax: 20000 + i})
	}
	return t.Group(ctx, name, true, append(all, more...)...)
}

// openGroup makes a group whose last two of ten rules allow TCP and UDP.
func (s *stand) openGroup(ctx context.Context) (string, error) {
	return tenRules(ctx, s.tenant, "open", rules.CreateOpts{Protocol: rules.ProtocolTCP}, rules.CreateOpts{Protocol: rules.ProtocolUDP})
}

// workload makes a workload on a host, and sets its address without DHCP.
func (s *stand) workload(ctx context.Context, name string, h *lab.Host, group string) (*lab.Workload, error) {
	s.made++
	return s.place(ctx, s.tenant, name, h, s.network.ID, fmt.Sprintf("10.0.0.%d", 10+s.made), group)
}

// outsider makes a workload on the first host, on an external network.
func (s *stand) outsider(ctx context.Context, name, network, address, group string) (*lab.Workload, error) {
	return s.place(ctx, s.operator(), name, s.h1, network, address, group)
}

// operator returns the operator as an owner of objects, who may choose addresses of external
// networks.
func (s *stand) operator() *lab.Tenant {
	return &lab.Tenant{API: s.tenant.Admin, Admin: s.tenant.Admin, Undo: s.tenant.Undo}
}

// place makes an owner's workload on a host and a network, and sets its address without DHCP.
func (s *stand) place(ctx context.Context, owner *lab.Tenant, name string, h *lab.Host, network, address string, groups ...string) (*lab.Workload, error) {
	p, err := owner.Port(ctx, name, network, h.Name, []string{address}, groups)
	if err != nil {
		return nil, err
	}
	w, err := s.NewWorkload(name, h, p)
	if err != nil {
		return nil, err
	}
	return w, s.furnish(w)
}

// furnish plugs a workload in and sets its address.
func (s *stand) furnish(w *lab.Workload) error {
	if err := s.PlugIn(w); err != nil {
		return fmt.Errorf("workload %s: %w", w.Name, err)
	}
	return w.NS.IP("link set eth0 mtu 1450", "addr add "+w.Address(false)+"/16 dev eth0")
}

// path returns the path from one workload to another.
func path(name string, from, to *lab.Workload) (netlab.Path, error) {
	at, err := netip.ParseAddr(to.Address(false))
	return netlab.Path{Name: name, Client: from.NS, Server: to.NS, Address: at}, err
}

// warm waits until a packet has passed each path.
func warm(ctx context.Context, paths ...netlab.Path) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lab.StartTimeout, fmt.Errorf("nothing comes through after %s", lab.StartTimeout))
	defer cancel()
	for _, p := range paths {
		if err := netlab.Until(ctx, p.Name+" to carry packets", func() (bool, error) {
			got, err := p.FirstPackets(1)
			if got.Lost > 0 {
				return false, nil
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// metric reads a metric of the process in a namespace: the sum over all series of the name with the
// label, given as name="value", "" for any.
func metric(ctx context.Context, ns *netlab.Namespace, name, label string) (sum float64, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: lab.DialIn(ns), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+lab.TelemetryAddr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	found := false
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		// Labels may hold spaces; the value does not.
		end := strings.LastIndexByte(lines.Text(), ' ')
		if end < 0 {
			continue
		}
		series, value := lines.Text()[:end], lines.Text()[end+1:]
		base, labels, _ := strings.Cut(series, "{")
		if base != name || !strings.Contains(labels, label) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, errors.Join(lines.Err(), fmt.Errorf("%s has no metric %s{%s}", ns.Name, name, label))
	}
	return sum, lines.Err()
}

// micros and millis convert a duration into a figure.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

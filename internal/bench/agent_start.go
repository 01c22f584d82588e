package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// start measures an agent's start until every flow is possible: on a host with a tenth of the
// store's ports, after a cleanup and after a crash.
func (b *bench) start(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		all, here := b.pick(1000, 50), b.pick(100, 5)
		busy, err := s.occupy(ctx, all, here)
		if err != nil {
			return err
		}
		var fresh, restarted []time.Duration
		for round := range b.rounds {
			b.logf("start %d", round+1)
			s.h1.Agent.Kill()
			if err := busy.renew(ctx); err != nil {
				return err
			}
			took, err := busy.start(ctx)
			if err != nil {
				return err
			}
			fresh = append(fresh, took)
			s.h1.Agent.Kill()
			if took, err = busy.start(ctx); err != nil {
				return err
			}
			restarted = append(restarted, took)
		}
		name := fmt.Sprintf("agent start to all flows possible, %d ports, %d here", all, here)
		b.add(measure{Name: name, Got: millis(netlab.Median(fresh)), Unit: "ms", Goal: atMost(2000), Beside: "from the start of the process; on interfaces that are new"})
		b.add(measure{Name: "the same after kill -9", Got: millis(netlab.Median(restarted)), Unit: "ms", Goal: atMost(2000), Beside: "its programs were there"})
		return nil
	})
}

// busyHost is a stand's first host with many ports. The first and the last have a workload.
type busyHost struct {
	*stand
	ports       []ports.Port
	rest        *netlab.Namespace // of the other ends of all other interfaces
	first, last *lab.Workload
}

// occupy makes all ports, some of them with interfaces on the first host.
func (s *stand) occupy(ctx context.Context, all, here int) (*busyHost, error) {
	group, err := s.openGroup(ctx)
	if err != nil {
		return nil, err
	}
	if err := unlimited(ctx, s.tenant, s.network.ProjectID); err != nil {
		return nil, err
	}
	if _, err := s.bulk(ctx, s.h2, group, all-here); err != nil {
		return nil, err
	}
	busy := &busyHost{stand: s}
	if busy.ports, err = s.bulk(ctx, s.h1, group, here); err != nil {
		return nil, err
	}
	if busy.rest, err = s.Spaces.Namespace("rest"); err != nil {
		return nil, err
	}
	if busy.first, err = s.NewWorkload("first", s.h1, &busy.ports[0]); err != nil {
		return nil, err
	}
	if busy.last, err = s.NewWorkload("last", s.h1, &busy.ports[here-1]); err != nil {
		return nil, err
	}
	return busy, busy.plugAll()
}

// plugAll makes the interfaces.
func (b *busyHost) plugAll() error {
	var make, up []string
	for i := range b.ports[1 : len(b.ports)-1] {
		tap := (&lab.Workload{Port: &b.ports[1+i]}).Tap()
		make = append(make, fmt.Sprintf("link add %s type veth peer name p%d netns %s", tap, i, b.rest.Name), "link set "+tap+" up")
		up = append(up, fmt.Sprintf("link set p%d up", i))
	}
	return errors.Join(b.h1.NS.IP(make...), b.rest.IP(up...), b.furnish(b.first), b.furnish(b.last))
}

// renew cleans the host up and makes new interfaces, since programs leave the old ones only later.
func (b *busyHost) renew(ctx context.Context) error {
	var gone []string
	for i := range b.ports {
		gone = append(gone, "link del "+(&lab.Workload{Port: &b.ports[i]}).Tap())
	}
	if err := b.h1.NS.IP(gone...); err != nil {
		return err
	}
	if err := b.CleanUp(ctx, b.h1.NS, b.h1.Name, "--overlay"); err != nil {
		return err
	}
	return b.plugAll()
}

// start starts the agent and waits until it serves all ports and a packet passes.
func (b *busyHost) start(ctx context.Context) (time.Duration, error) {
	probe, err := path("first port to last port", b.first, b.last)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := b.StartAgent(ctx, b.h1); err != nil {
		return 0, err
	}
	waiting, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	err = netlab.Until(waiting, fmt.Sprintf("%d ports to be served", len(b.ports)), func() (bool, error) {
		attached, err := metric(waiting, b.h1.NS, "heddle_overlay_ports_attached", "")
		return attached >= float64(len(b.ports)), err
	})
	if err != nil {
		return 0, err
	}
	err = warm(ctx, probe)
	return time.Since(begun), err
}

// unlimited removes a project's quota of ports.
func unlimited(ctx context.Context, t *lab.Tenant, project string) error {
	none := -1
	if _, err := quotas.Update(ctx, t.Admin, project, quotas.UpdateOpts{Port: &none}).Extract(); err != nil {
		return fmt.Errorf("quota of project %s: %w", project, err)
	}
	return nil
}

// bulkPorts is the number of ports that one call makes.
const bulkPorts = 100

// bulk makes ports bound to a host.
func (s *stand) bulk(ctx context.Context, h *lab.Host, group string, n int) (made []ports.Port, err error) {
	one := map[string]any{"network_id": s.network.ID, "project_id": s.network.ProjectID, "security_groups": []string{group}, "device_owner": "compute:bench", "binding:host_id": h.Name}
	for len(made) < n {
		list := make([]any, min(bulkPorts, n-len(made)))
		for i := range list {
			list[i] = one
		}
		var answer struct{ Ports []ports.Port }
		res, err := s.tenant.Admin.Post(ctx, s.tenant.Admin.ServiceURL("ports"), map[string]any{"ports": list}, &answer, nil)
		if err != nil {
			return made, fmt.Errorf("%d ports on %s: %w", len(list), h.Name, err)
		}
		res.Body.Close()
		made = append(made, answer.Ports...)
	}
	return made, nil
}

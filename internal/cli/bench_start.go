package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/nettest"
)

// start measures how long an agent takes until every flow is possible that should be: on a host with a tenth of the
// store's ports, after what was there is cleaned away, and after a crash.
func (b *bench) start(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		all, here := b.pick(1000, 50), b.pick(100, 5)
		first, last, err := s.occupy(ctx, all, here)
		if err != nil {
			return err
		}
		probe, err := path("first port to last port", first, last)
		if err != nil {
			return err
		}
		var fresh, again []time.Duration
		for round := range b.rounds {
			b.say("start %d", round+1)
			took, err := s.startOnce(ctx, probe, here, true)
			if err != nil {
				return err
			}
			fresh = append(fresh, took)
			if took, err = s.startOnce(ctx, probe, here, false); err != nil {
				return err
			}
			again = append(again, took)
		}
		name := fmt.Sprintf("agent start to all flows possible, %d ports, %d here", all, here)
		b.add(measure{Name: name, Got: millis(nettest.Median(fresh)), Unit: "ms", Goal: atMost(2000), Beside: "from the start of the process; nothing in the kernel before"})
		b.add(measure{Name: "the same after kill -9", Got: millis(nettest.Median(again)), Unit: "ms", Goal: atMost(2000), Beside: "programs, maps and links were there"})
		return nil
	})
}

// startOnce kills the first host's agent, starts another, and waits until it serves so many ports and a packet passes
// from one to another.
func (s *stand) startOnce(ctx context.Context, probe nettest.Path, ports int, clean bool) (time.Duration, error) {
	s.h1.agent.kill()
	if clean {
		if err := s.cleanup(ctx, s.h1.name); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	if err := s.startAgent(ctx, s.h1); err != nil {
		return 0, err
	}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := nettest.Until(waiting, fmt.Sprintf("%d ports to be served", ports), func() (bool, error) {
		attached, err := metric(waiting, s.h1.ns, "heddle_overlay_ports_attached", "")
		return attached >= float64(ports), err
	})
	if err != nil {
		return 0, err
	}
	err = warm(ctx, probe)
	return time.Since(begun), err
}

// occupy makes so many ports, of which some are here on the first host with interfaces, and gives the machines of the
// first and the last of these.
func (s *stand) occupy(ctx context.Context, all, here int) (first, last *workload, err error) {
	group, err := s.openGroup(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.tenant.unlimited(ctx, s.network.ProjectID); err != nil {
		return nil, nil, err
	}
	if _, err := s.bulk(ctx, s.h2, group, all-here); err != nil {
		return nil, nil, err
	}
	made, err := s.bulk(ctx, s.h1, group, here)
	if err != nil {
		return nil, nil, err
	}
	rest, err := s.spaces.Namespace("rest")
	if err != nil {
		return nil, nil, err
	}
	for i := 1; i < here-1; i++ {
		if err := s.spaces.Veth(rest, fmt.Sprintf("p%d", i), s.h1.ns, (&workload{port: &made[i]}).tap()); err != nil {
			return nil, nil, err
		}
	}
	if first, err = s.furnish("first", s.h1, &made[0]); err != nil {
		return nil, nil, err
	}
	last, err = s.furnish("last", s.h1, &made[here-1])
	return first, last, err
}

// unlimited lets a project have as many ports as it likes.
func (t *tenant) unlimited(ctx context.Context, project string) error {
	none := -1
	if _, err := quotas.Update(ctx, t.admin, project, quotas.UpdateOpts{Port: &none}).Extract(); err != nil {
		return fmt.Errorf("quota of project %s: %w", project, err)
	}
	return nil
}

// bulkPorts is how many ports one call makes.
const bulkPorts = 100

// bulk makes ports bound to a host.
func (s *stand) bulk(ctx context.Context, h *labHost, group string, n int) (made []ports.Port, err error) {
	one := map[string]any{"network_id": s.network.ID, "project_id": s.network.ProjectID, "security_groups": []string{group}, "device_owner": "compute:bench", "binding:host_id": h.name}
	for len(made) < n {
		list := make([]any, min(bulkPorts, n-len(made)))
		for i := range list {
			list[i] = one
		}
		var answer struct{ Ports []ports.Port }
		res, err := s.tenant.admin.Post(ctx, s.tenant.admin.ServiceURL("ports"), map[string]any{"ports": list}, &answer, nil)
		if err != nil {
			return made, fmt.Errorf("%d ports on %s: %w", len(list), h.name, err)
		}
		res.Body.Close()
		made = append(made, answer.Ports...)
	}
	return made, nil
}

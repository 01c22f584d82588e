package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	// withoutCenter bounds the pause of traffic when the center of a star dies.
	withoutCenter = 2 * time.Second
	// inStar bounds the time until tunnels are active. BFD, which must see packets both ways,
	// starts with one a second.
	inStar = 5 * time.Second
	// xenTimeout bounds any wait of this part.
	xenTimeout = 15 * time.Second
)

// showPrivate plays the part about private networks.
func (d *demo) showPrivate(ctx context.Context) error {
	x := d.xen
	if x == nil {
		return nil
	}
	<-x.staged
	if x.err != nil {
		return fmt.Errorf("pool of hosts: %w", x.err)
	}
	if err := d.showTunnels(ctx, x); err != nil {
		return fmt.Errorf("private network: %w", err)
	}
	d.showAcross(ctx, x)
	if err := d.showCenterKilled(ctx, x); err != nil {
		return fmt.Errorf("private network: %w", err)
	}
	return nil
}

// showTunnels makes a network, a tunnel on each host, and a machine behind each.
func (d *demo) showTunnels(ctx context.Context, x *xen) (err error) {
	if x.network, err = x.xe(ctx, "network-create", "name-label=private"); err != nil {
		return err
	}
	d.checkWithin(fmt.Sprintf("private: xe tunnel-create on %d hosts: active, with one key", len(x.pool)), inStar, func() (time.Duration, error) {
		if err := x.eachHost(func(_ int, h *xenHost) error { return x.createTunnel(ctx, h) }); err != nil {
			return 0, err
		}
		created := time.Now()
		err := x.untilStatuses(ctx, "all tunnels to be active", func(statuses map[string]map[string]string) bool {
			return len(statuses) == len(x.pool) && sameStar(statuses, x.pool)
		})
		return time.Since(created), err
	})
	return x.eachHost(func(i int, h *xenHost) error { return x.plug(ctx, h, i) })
}

// eachHost calls do for all hosts at once.
func (x *xen) eachHost(do func(i int, h *xenHost) error) error {
	var g errgroup.Group
	for i, h := range x.pool {
		g.Go(func() error { return do(i, h) })
	}
	return g.Wait()
}

func (x *xen) createTunnel(ctx context.Context, h *xenHost) (err error) {
	if h.uuid, err = x.find(ctx, "host-list", "name-label="+h.Host.Name); err != nil {
		return err
	}
	if h.transport, err = x.find(ctx, "pif-list", "host-uuid="+h.uuid, "management=true"); err != nil {
		return err
	}
	access, err := x.xe(ctx, "tunnel-create", "pif-uuid="+h.transport, "network-uuid="+x.network)
	if err != nil {
		return err
	}
	h.tunnel, err = x.find(ctx, "tunnel-list", "access-PIF="+access)
	return err
}

// sameStar reports whether the hosts' tunnels are active with one key and one center.
func sameStar(statuses map[string]map[string]string, hosts []*xenHost) bool {
	first := statuses[hosts[0].tunnel]
	for _, h := range hosts {
		s := statuses[h.tunnel]
		if s["active"] != "true" || s["key"] == "" || s["key"] != first["key"] || s[centerKey] != first[centerKey] {
			return false
		}
	}
	return true
}

// centerKey is the key of the switching host in a tunnel's status.
const centerKey = "heddle:center"

// untilStatuses waits until the tunnels' statuses satisfy wanted.
func (x *xen) untilStatuses(ctx context.Context, what string, wanted func(map[string]map[string]string) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, xenTimeout, fmt.Errorf("not within %s", xenTimeout))
	defer cancel()
	return netlab.Until(ctx, what, func() (bool, error) {
		statuses, err := x.statuses(ctx)
		return err == nil && wanted(statuses), err
	})
}

// showAcross pings from each workload to each.
func (d *demo) showAcross(ctx context.Context, x *xen) {
	for i, from := range x.pool {
		for _, to := range x.pool[i+1:] {
			d.showReached(ctx, from, to)
		}
	}
}

// showReached pings until there is an answer: the first frames wait for address learning.
func (d *demo) showReached(ctx context.Context, from, to *xenHost) {
	d.check(fmt.Sprintf("private: ping %s on %s to %s on %s", from.machine.Name, from.Host.Name, to.machine.Name, to.Host.Name), answered, func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := from.machine.NS.Reach(ctx, to.machine.Address(false)); err != nil {
			return silence, nil
		}
		return answered, nil
	})
}

// showCenterKilled kills and restores the switching host under traffic between two others.
func (d *demo) showCenterKilled(ctx context.Context, x *xen) error {
	statuses, err := x.statuses(ctx)
	if err != nil {
		return err
	}
	var center *xenHost
	var spokes []*xenHost
	for _, h := range x.pool {
		if statuses[h.tunnel][centerKey] == h.uuid {
			center = h
		} else {
			spokes = append(spokes, h)
		}
	}
	if center == nil || len(spokes) < 2 {
		return fmt.Errorf("statuses name no switching host: %v", statuses)
	}
	udp, err := lab.StartUDPStream(ctx, spokes[0].machine.Workload, spokes[1].machine.Workload, forbiddenPort)
	if err != nil {
		return err
	}
	defer udp.Close()
	what := fmt.Sprintf("private: switching host %s killed: longest pause %s to %s", center.Host.Name, spokes[0].machine.Name, spokes[1].machine.Name)
	d.checkWithin(what, withoutCenter, func() (time.Duration, error) {
		if _, err := udp.FlowsAfter(ctx, time.Now()); err != nil {
			return 0, err
		}
		udp.ResetPause()
		center.Agent.Kill()
		if err := center.Kill(); err != nil {
			return 0, err
		}
		err := x.untilStatuses(ctx, "another switching host", func(statuses map[string]map[string]string) bool {
			return sameStar(statuses, spokes) && statuses[spokes[0].tunnel][centerKey] != center.uuid
		})
		if err != nil {
			return 0, err
		}
		if _, err := udp.FlowsAfter(ctx, time.Now()); err != nil {
			return 0, err
		}
		return udp.LongestPause(), nil
	})
	d.check("private: status of "+center.Host.Name+"'s tunnel meanwhile", "not active, with the reason", func() (string, error) {
		var last map[string]string
		err := x.untilStatuses(ctx, "the reason", func(statuses map[string]map[string]string) bool {
			last = statuses[center.tunnel]
			return last["active"] == "false" && last["error"] != ""
		})
		if err != nil {
			return fmt.Sprint(last), nil
		}
		return "not active, with the reason", nil
	})
	return d.showReturn(ctx, x, center, spokes[0])
}

// showReturn restores a host that was killed, with its old ports.
func (d *demo) showReturn(ctx context.Context, x *xen, back, other *xenHost) error {
	if err := back.Start(); err != nil {
		return err
	}
	if err := x.StartAgent(ctx, back.Host); err != nil {
		return err
	}
	ready := time.Now()
	d.checkWithin("private: "+back.Host.Name+" is back in the star, after its agent's report", inStar, func() (time.Duration, error) {
		err := x.untilStatuses(ctx, "the star", func(statuses map[string]map[string]string) bool { return sameStar(statuses, x.pool) })
		return time.Since(ready), err
	})
	d.showReached(ctx, other, back)
	return nil
}

// endPrivate removes workloads, tunnels and the network by xe.
func (d *demo) endPrivate(ctx context.Context, x *xen) {
	if x == nil {
		return
	}
	d.check("private: machines, tunnels and network destroyed by xe", "nothing left", func() (string, error) {
		if err := x.destroy(ctx); err != nil {
			return "", err
		}
		left, err := x.left(ctx)
		return cmp.Or(left, "nothing left"), err
	})
}

func (x *xen) destroy(ctx context.Context) error {
	err := x.eachHost(func(_ int, h *xenHost) error {
		for _, args := range [][]string{{"vm-shutdown", "uuid=" + h.vm, "--force"}, {"vm-destroy", "uuid=" + h.vm}, {"tunnel-destroy", "uuid=" + h.tunnel}} {
			if _, err := x.xe(ctx, args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = x.xe(ctx, "network-destroy", "uuid="+x.network)
	return err
}

// left returns the tunnels in the pool and bridges on the hosts that destroy has left.
func (x *xen) left(ctx context.Context) (string, error) {
	left, err := x.find(ctx, "tunnel-list")
	for _, h := range x.pool {
		bridges, listErr := h.Vsctl("list-br")
		err = errors.Join(err, listErr)
		for _, b := range strings.Fields(bridges) {
			if b != "br-phy" {
				left += " " + h.Host.Name + ":" + b
			}
		}
	}
	return strings.TrimSpace(left), err
}

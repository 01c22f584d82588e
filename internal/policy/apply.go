package policy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/hostnet"
)

// retryMin and retryMax bound the pauses between attempts at a commit that the kernel refuses.
const retryMin, retryMax = 100 * time.Millisecond, 10 * time.Second

// apply brings the kernel to what was decided: routes and neighbours of what leaves go first, then one commit changes all
// policy, then interfaces are wired. While a commit is refused, nothing new is wired, and nothing forwarded at first.
func (e *engine) apply(ctx context.Context) {
	e.release()
	if e.dirty.rules && !e.now().Before(e.retryAt) {
		began := time.Now()
		err := e.rules.Commit(ctx)
		e.counts.lastCommit = time.Since(began)
		e.committed(ctx, err)
	}
	if e.dirty.rules {
		return
	}
	e.forward()
	if !e.applied {
		e.forgetFormer()
	}
	for name, w := range e.assigned.wirings {
		if old, ok := e.wired[name]; !ok || !old.equal(w) {
			e.wiring.Want(name, w)
			e.wired[name] = w
		}
	}
	for name := range e.wired {
		if _, wanted := e.assigned.wirings[name]; !wanted {
			e.wiring.Unwant(name)
			delete(e.wired, name)
		}
	}
	if !e.applied {
		e.applied = true
		e.wiring.Complete()
		e.log.Info("policy is in force", "revision", e.known.revision, "workloads", len(e.assigned.workloads), "host endpoints", len(e.hosts))
	}
}

// committed notes how a commit ended. The same failure is logged once.
func (e *engine) committed(ctx context.Context, err error) {
	e.dirty.statuses = e.dirty.statuses || (err == nil) != (e.refusal == nil)
	if err == nil {
		e.counts.commits++
		if e.refusal != nil {
			e.log.Info("rules are in force again", "failures", e.refusals)
		}
		e.refusal, e.refusals, e.retryAt, e.dirty.rules = nil, 0, time.Time{}, false
		return
	}
	if ctx.Err() != nil {
		return
	}
	e.counts.failures++
	if e.refusal == nil || e.refusal.Error() != err.Error() {
		e.log.Error("the kernel refuses the rules; those before stay in force", "err", err)
	}
	e.refusal = err
	e.retryAt = e.now().Add(min(retryMin<<min(e.refusals, 10), retryMax))
	e.refusals++
}

// release takes routes and neighbours away that interfaces are no longer to have, and forgets the connections of
// addresses that leave, before anybody else gets them (spec §8.3).
func (e *engine) release() {
	var left []netip.Addr
	for name, old := range e.wired {
		w := e.assigned.wirings[name]
		stays := old.common(w)
		if stays.equal(old) {
			continue
		}
		if err := e.ifaces.Release(name, w); err != nil {
			e.log.Warn("cannot remove what left an interface, will try again", "interface", name, "err", err)
		}
		for _, a := range old.Routed {
			if !slices.Contains(w.Routed, a) {
				left = append(left, a)
			}
		}
		e.wired[name] = stays
		e.wiring.Want(name, stays) // or a sweep would bring it back before the commit
	}
	e.forget(left)
}

// forgetFormer forgets, at the start of a life, the connections of addresses that are not yet routed to the interface
// that is to have them: while no agent was there to see it, they may have been somebody else's.
func (e *engine) forgetFormer() {
	routes, err := e.net.Routes()
	if err != nil {
		e.log.Warn("cannot read which addresses workloads had before", "err", err)
	}
	type place struct {
		dst  netip.Prefix
		link string
	}
	before := map[place]bool{}
	for _, r := range routes {
		before[place{r.Dst, r.Link}] = true
	}
	var left []netip.Addr
	for name, w := range e.assigned.wirings {
		for _, a := range w.Routed {
			if !before[place{host(a), name}] {
				left = append(left, a)
			}
		}
	}
	e.forget(left)
}

// forget forgets the connections of addresses that are not whose they were.
func (e *engine) forget(left []netip.Addr) {
	if len(left) == 0 {
		return
	}
	slices.SortFunc(left, netip.Addr.Compare)
	if err := e.net.ForgetConnections(left...); err != nil {
		e.log.Warn("cannot forget the connections of addresses that left", "addresses", left, "err", err)
	}
}

// forward makes this host a router: it is what stands between its workloads and everybody else. IPv6 is left alone until
// a workload has it: with forwarding on, a host takes no more routes from router advertisements unless accept_ra is 2.
func (e *engine) forward() {
	if !e.applied {
		e.forwardIPv4()
		e.tellLooseRPF()
	}
	ipv6 := func(a netip.Addr) bool { return a.Is6() }
	for _, w := range e.assigned.wirings {
		if !e.forwards6 && slices.ContainsFunc(w.Routed, ipv6) {
			e.forwards6 = true
			e.forwardIPv6()
		}
	}
}

func (e *engine) forwardIPv4() {
	err := e.net.Set(hostnet.Setting{Name: "ipv4/ip_forward", Value: "1"}, hostnet.Setting{Name: "ipv4/conf/default/rp_filter", Value: "1"})
	if err != nil {
		e.log.Error("cannot make this host forward packets: workloads reach nobody", "err", err)
	}
}

func (e *engine) forwardIPv6() {
	if err := e.net.Set(hostnet.Setting{Name: "ipv6/conf/all/forwarding", Value: "1"}); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		e.log.Error("cannot make this host forward IPv6: workloads reach nobody by it", "err", err)
	}
}

// tellLooseRPF warns of a setting that weakens the kernel's own check of IPv4 sources (spec §7.5).
func (e *engine) tellLooseRPF() {
	if all, err := e.net.Setting("ipv4/conf/all/rp_filter"); err == nil && all == "2" && !e.settings.IgnoreLooseRPF {
		e.log.Warn("net.ipv4.conf.all.rp_filter is 2 (loose): it overrides the strict check on workload interfaces; " +
			"sources are checked by our own rules all the same. Set it to 1 or 0, or IgnoreLooseRPF")
	}
}

// keep sees to what was put in place before, also while nothing new may be applied.
func (e *engine) keep(ctx context.Context) time.Time {
	now := e.now()
	if every := e.settings.RoutesRefresh; every > 0 && !now.Before(e.sweepAt) {
		e.sweepAt = now.Add(every)
		e.wiring.Sweep()
		e.forwardIPv4()
		if e.forwards6 {
			e.forwardIPv6()
		}
	}
	next := earlier(e.wiring.Pass(ctx), e.mend(ctx))
	if e.ifaces.touched {
		e.ifaces.touched, e.dirty.statuses = false, true
	}
	if e.settings.RoutesRefresh > 0 {
		next = earlier(next, e.sweepAt)
	}
	if every := e.settings.ResyncInterval; every > 0 {
		if e.resyncAt.IsZero() || now.After(e.resyncAt) {
			if !e.resyncAt.IsZero() {
				e.resync()
			}
			e.resyncAt = now.Add(every)
		}
		next = earlier(next, e.resyncAt)
	}
	if e.waiting == "" && (e.dirty.tunnels || len(e.failed) > 0 || e.tunnelled.any()) && (e.dirty.tunnels || !now.Before(e.lookAt)) {
		e.dirty.tunnels = false
		e.lookAt = now.Add(tunnelsEvery)
		e.putTunnels()
	}
	if e.waiting == "" && (e.tunnelled.any() || len(e.failed) > 0) {
		next = earlier(next, e.lookAt)
	}
	if e.dirty.rules && e.waiting == "" {
		next = earlier(next, e.retryAt)
	}
	e.tellStatuses()
	return next
}

// mend has the ruleset read back when that is due or when somebody has changed it, and says when it is due again.
func (e *engine) mend(ctx context.Context) time.Time {
	every := e.settings.RulesRefresh
	if now := e.now(); e.dirty.foreign || every > 0 && !now.Before(e.mendAt) {
		e.dirty.foreign = false
		e.mendAt = now.Add(every)
		what, err := e.rules.Mend(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.log.Error("cannot mend the rules, will try again", "err", err)
			e.mendAt = now.Add(retryMax)
		case what != "":
			e.counts.mended++
			first, _, _ := strings.Cut(what, "\n")
			e.log.Warn("somebody has changed our rules; they are mended", "operations", strings.Count(what, "\n"), "first", first)
		}
	}
	if every == 0 {
		return e.now().Add(time.Hour)
	}
	return e.mendAt
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// any says whether tunnels are asked for.
func (t *tunnelling) any() bool { return t.ipip != "" || len(t.vxlans) > 0 }

// putTunnels makes the tunnel devices so and says what is wrong with them.
func (e *engine) putTunnels() {
	failed := e.tunnels.put(e.tunnelled)
	for name, err := range failed {
		if was := e.failed[name]; was == nil || was.Error() != err.Error() {
			e.log.Error("a tunnel device is not as its pools ask", "device", name, "err", err)
		}
	}
	for name := range e.failed {
		if failed[name] == nil {
			e.log.Info("a tunnel device is as its pools ask", "device", name)
		}
	}
	e.failed = failed
	e.dirty.statuses = true
}

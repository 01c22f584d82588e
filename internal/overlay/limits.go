package overlay

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// maxFlowLimits bounds the limits of translations, so that those of ports always fit.
const maxFlowLimits = 8000

// flowLimitPrefix begins the names of limits of translations in the datapath.
const flowLimitPrefix = "flow-"

// rateLimits keeps the limits of floating IPs and gateways in the datapath, while flows or packets
// use them: a host may have any number of them, and few at a time (decision 0019).
type rateLimits struct {
	dp    *datapath.Datapath
	log   *slog.Logger
	clock func() time.Duration

	mu     sync.Mutex
	byName map[string]*usedLimit
	full   bool // as logged
}

type usedLimit struct {
	number   datapath.Limit
	limitsID string
	ingress  bool
	limit    topology.Limit
	at       time.Duration // a decision asked for it
}

func newRateLimits(dp *datapath.Datapath, clock func() time.Duration, log *slog.Logger) *rateLimits {
	return &rateLimits{dp: dp, log: log, clock: clock, byName: map[string]*usedLimit{}}
}

func flowLimitName(l flow.Limited) string {
	direction := "egress-"
	if l.Ingress {
		direction = "ingress-"
	}
	return flowLimitPrefix + direction + l.ID
}

// use returns the number of the limit that a packet is subject to, by those of its policy. Without
// room there is none: the packet goes on.
func (r *rateLimits) use(l flow.Limited, policy *topology.Limits) (datapath.Limit, bool) {
	name, limit := flowLimitName(l), policy.In(l.Ingress)
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.byName[name]
	if u == nil {
		if len(r.byName) >= maxFlowLimits {
			r.refused("there are too many on this host")
			return 0, false
		}
		u = &usedLimit{}
	}
	u.at, u.limitsID, u.ingress = r.clock(), l.LimitsID, l.Ingress
	if u.number != 0 && u.limit == limit {
		return u.number, true
	}
	number, err := r.dp.SetLimit(name, limit, 0)
	if err != nil {
		r.refused(err.Error())
		return 0, false
	}
	u.number, u.limit, r.byName[name] = number, limit, u
	return number, true
}

// refused logs that limits are not in force, once until there is room. It needs the lock.
func (r *rateLimits) refused(why string) {
	if !r.full {
		r.full = true
		r.log.Error("limits of floating IPs or gateways are not in force", "err", why)
	}
}

// changed puts the new figures of a policy in force, nil for none.
func (r *rateLimits) changed(id string, policy *topology.Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, u := range r.byName {
		limit := policy.In(u.ingress)
		if u.limitsID != id || u.limit == limit {
			continue
		}
		if _, err := r.dp.SetLimit(name, limit, 0); err != nil {
			r.log.Error("cannot change a limit", "limit", name, "err", err)
			continue
		}
		u.limit = limit
	}
}

// sweep removes limits that neither a flow has nor a decision has asked for since a time.
func (r *rateLimits) sweep(inFlows map[datapath.Limit]bool, since time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.dp.Limits() {
		u := r.byName[l.Name]
		if !strings.HasPrefix(l.Name, flowLimitPrefix) || inFlows[l.Number] || u != nil && u.at >= since {
			continue
		}
		if err := r.dp.RemoveLimit(l.Name); err != nil {
			r.log.Error("cannot remove a limit", "limit", l.Name, "err", err)
			continue
		}
		delete(r.byName, l.Name)
		r.full = false
	}
}

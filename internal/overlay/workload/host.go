// Package workload runs temporary workloads on a host, which try what they reach: the host's part
// of `heddle connectivity`.
//
// A workload is a network namespace without a name, with a veth pair whose other end is the
// interface of a port. This process alone keeps it, so it also goes when the process is killed.
package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/hostnet"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// mostWorkloads and mostProbes bound the workloads of a host, and the probes of a request.
	mostWorkloads = 8
	mostProbes    = 32
	// mostWaiting bounds the requests that wait, and mostAtOnce those in work.
	mostWaiting = 32
	mostAtOnce  = 16
	// idleTime is the time after its last request until a workload is removed.
	idleTime = time.Minute
	// answerTime bounds the work on a request. Servers wait a little longer.
	answerTime = 6 * time.Second
)

// Host has the temporary workloads of a host. It is a task: see Run.
type Host struct {
	net   *hostnet.Linux // of the host
	log   *slog.Logger
	queue chan job

	mu  sync.Mutex
	all map[string]*workload // by port
}

type job struct {
	request *topology.WorkloadRequest
	answer  func(*flow.WorkloadAnswer)
}

// NewHost returns the workloads of a host: none.
func NewHost(host *hostnet.Linux, log *slog.Logger) *Host {
	return &Host{net: host, log: log, queue: make(chan job, mostWaiting), all: map[string]*workload{}}
}

// Submit has Run work on a request and call answer, once. It does not wait.
func (h *Host) Submit(r *topology.WorkloadRequest, answer func(*flow.WorkloadAnswer)) {
	select {
	case h.queue <- job{r, answer}:
	default:
		answer(&flow.WorkloadAnswer{Error: fmt.Sprintf("%d requests wait already: try again later", mostWaiting)})
	}
}

// Run works on requests until ctx ends, and then removes all workloads.
func (h *Host) Run(ctx context.Context) error {
	var working errgroup.Group
	working.SetLimit(mostAtOnce)
	defer func() {
		_ = working.Wait() // answers have the errors
		h.removeIdle(0)
	}()
	sweep := time.NewTicker(idleTime / 4)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			h.removeIdle(idleTime)
		case j := <-h.queue:
			working.Go(func() error {
				j.answer(h.handle(ctx, j.request))
				return nil
			})
		}
	}
}

// handle works on a request.
func (h *Host) handle(ctx context.Context, r *topology.WorkloadRequest) *flow.WorkloadAnswer {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if r.Remove {
		h.remove(r.PortID)
		return &flow.WorkloadAnswer{}
	}
	w, err := h.use(r)
	if err != nil {
		return &flow.WorkloadAnswer{Error: err.Error()}
	}
	defer h.release(w)
	return &flow.WorkloadAnswer{Results: w.probeAll(ctx, r.Probes), Received: w.services.received(), IPv6: w.hasIPv6}
}

// interfaces that workloads may have: no others of the host.
var interfaces = regexp.MustCompile(`^tap[0-9a-f-]{11}$`)

// check refuses what no server asks for.
func check(r *topology.WorkloadRequest) error {
	switch {
	case r.PortID == "" || !interfaces.MatchString(r.Interface):
		return fmt.Errorf("workload with the port %q and interface %q: want an id, and tap with 11 characters of it", r.PortID, r.Interface)
	case !r.Address.Addr().Is4() || r.MAC.IsZero() || r.MAC.IsMulticast():
		return fmt.Errorf("workload of port %s with the addresses %s and %s: want one of IPv4 and a MAC address", r.PortID, r.Address, r.MAC)
	case r.Address6.IsValid() && !r.Address6.Addr().Is6():
		return fmt.Errorf("workload of port %s with the address %s: want one of IPv6", r.PortID, r.Address6)
	case r.MTU < leastMTU || r.MTU > mostMTU:
		return fmt.Errorf("workload of port %s with MTU %d: want %d to %d", r.PortID, r.MTU, leastMTU, mostMTU)
	case len(r.Probes) > mostProbes:
		return fmt.Errorf("workload of port %s: %d probes at once, at most %d are possible", r.PortID, len(r.Probes), mostProbes)
	}
	return nil
}

// use returns the workload of a port, made if it is not there, which stays until it is released.
func (h *Host) use(r *topology.WorkloadRequest) (*workload, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.all[r.PortID]
	if w == nil {
		if len(h.all) >= mostWorkloads {
			return nil, fmt.Errorf("this host has %d temporary workloads already: wait until other tests end", len(h.all))
		}
		var err error
		if w, err = newWorkload(h.net, r); err != nil {
			return nil, fmt.Errorf("make a workload for port %s: %w", r.PortID, err)
		}
		h.all[r.PortID] = w
	}
	w.users++
	return w, nil
}

func (h *Host) release(w *workload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.users--
	w.used = time.Now()
	if w.removed && w.users == 0 {
		h.end(w)
	}
}

func (h *Host) remove(port string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.all[port]
	if w == nil {
		return
	}
	delete(h.all, port)
	if w.removed = true; w.users == 0 {
		h.end(w)
	}
}

// removeIdle removes the workloads without a request for a time.
func (h *Host) removeIdle(after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, w := range h.all {
		if w.users == 0 && time.Since(w.used) >= after {
			delete(h.all, port)
			h.end(w)
		}
	}
}

// end takes away what was made for a workload that nothing uses.
func (h *Host) end(w *workload) {
	if err := errors.Join(h.net.DeleteLink(w.Interface), w.close()); err != nil {
		h.log.Error("cannot remove a temporary workload", "port", w.PortID, "err", err)
	}
}

package tunnel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/internal/xen/ovs"
)

// takeHosts looks which hosts there are, and follows their databases.
func (e *engine) takeHosts() {
	all := e.pool.hosts()
	for uuid, info := range all {
		h := e.hosts[uuid]
		if h == nil {
			h = newHost(uuid)
			h.lostAt = time.Now()
			e.hosts[uuid] = h
		} else if h.hostInfo == info {
			continue
		}
		at := e.c.opts.database(h.name, h.address)
		if h.hostInfo = info; h.worker != nil && (!info.openVSwitch || at != e.c.opts.database(info.name, info.address)) {
			e.dismiss(h)
		}
		if h.worker == nil && info.openVSwitch {
			e.employ(h)
		}
		if h.worker != nil && info.live {
			h.worker.client.Retry()
		}
		e.touch(h)
	}
	for uuid, h := range e.hosts {
		if _, ok := all[uuid]; !ok {
			e.touch(h)
			e.dismiss(h)
			delete(e.hosts, uuid)
		}
	}
}

// touch has all networks thought about that the host has to do with.
func (e *engine) touch(h *host) {
	for _, network := range e.pool.tunnelsOn(h.uuid) {
		e.dirty[network] = true
	}
	for network := range h.ends {
		e.dirty[network] = true
	}
	for network, in := range e.intents.all {
		if slices.Contains(in.Hosts, h.uuid) {
			e.dirty[network] = true
		}
	}
}

// employ begins to follow a host's database.
func (e *engine) employ(h *host) {
	at := e.c.opts.database(h.name, h.address)
	cl, err := ovs.Open(ovs.Options{Address: at, TLS: e.c.opts.tls(h.uuid), Dial: e.c.opts.Dial, Log: e.log.With("host", h.name), Probe: probeEvery, DeadAfter: deadAfter})
	if err != nil {
		h.heard, h.reason = true, err.Error()
		return
	}
	ctx, stop := context.WithCancel(e.ctx)
	h.stop = stop
	w := newWorker(cl, e.obeyed, e.c.opts.BFDEvery, e.signs)
	w.boss = &reporter{e, h, w}
	h.worker = w
	e.workers.Go(func() { w.run(ctx) })
}

// dismiss ends that.
func (e *engine) dismiss(h *host) {
	if h.worker == nil {
		return
	}
	h.stop()
	h.worker, h.busy = nil, false
	e.lose(h, "its database is not followed")
}

// lose notes that a host is not known any more.
func (e *engine) lose(h *host, reason string) {
	if h.known || !h.heard {
		h.lostAt = time.Now()
	}
	h.heard, h.known, h.reason = true, false, reason
	e.touch(h)
	for pair := range e.paths {
		if pair[0] == h.uuid || pair[1] == h.uuid {
			e.look[pair] = true
		}
	}
}

// reporter is the boss of one worker, and passes on what it says while the host is still its.
type reporter struct {
	e *engine
	h *host
	w *worker
}

func (r *reporter) post(f func()) {
	r.e.post(func() {
		if r.h.worker == r.w {
			f()
		}
	})
}

// read takes in what the switch is known to have.
func (r *reporter) read() {
	networks, pairs := r.h.take(r.w.client.Snapshot())
	maps.Copy(r.e.dirty, networks)
	maps.Copy(r.e.look, pairs)
}

func (r *reporter) changed() { r.post(r.read) }

func (r *reporter) met(connection int64) {
	r.post(func() { r.meet(connection) })
}

func (r *reporter) meet(connection int64) {
	r.e.counts.connections++
	r.read()
	r.h.heard, r.h.known, r.h.seen, r.h.reason, r.h.connection = true, true, true, "", connection
	if !r.h.busy {
		clear(r.h.hub)
	}
	r.e.touch(r.h)
	for pair := range r.e.paths {
		if pair[0] == r.h.uuid || pair[1] == r.h.uuid {
			r.e.look[pair] = true
		}
	}
}

func (r *reporter) left(why error) {
	r.post(func() {
		if reason := why.Error(); !r.h.heard || r.h.known || r.h.reason != reason {
			r.e.lose(r.h, reason)
		}
	})
}

func (r *reporter) deposed(other error) {
	r.post(func() { r.e.failed = fmt.Errorf("%w: %w", errLater, other) })
}

func (r *reporter) finished(o outcome) {
	r.post(func() {
		r.h.busy = false
		r.read()
		maps.Copy(r.e.dirty, r.h.waiting)
		clear(r.h.waiting)
		if o.lost != nil {
			r.e.lose(r.h, o.lost.Error())
			return
		}
		clear(r.h.hub)
		for _, st := range r.h.job.steps {
			r.refused(st.Network, o.failed[st.Network])
		}
	})
}

// refused notes why a network's step was refused; "": it was not.
func (r *reporter) refused(network, why string) {
	if why == "" {
		delete(r.h.failed, network)
		return
	}
	f := r.h.failed[network]
	if f.text != why {
		r.e.log.Warn("a switch refuses", "host", r.h.name, "network", network, "err", why)
	}
	r.h.failed[network] = failure{why, f.times + 1, time.Now().Add(failedFor)}
	r.e.dirty[network] = true
}

package overlay

import (
	"log/slog"

	"heddle/internal/store/presence"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// reporter publishes what this host has seen and does, under its lease.
type reporter struct {
	*presence.Presence
	log *slog.Logger
}

func (r *reporter) set(key string, record any) {
	if err := r.SetRecord(key, record); err != nil {
		r.log.Error("cannot report a record", "key", key, "err", err)
	}
}

func (r *reporter) seen(s *sighting) {
	key, record := s.record()
	r.set(key, record)
}

func (r *reporter) unseen(s *sighting) {
	key, _ := s.record()
	r.Delete(key)
}

func (s *sighting) record() (key string, record any) {
	if s.isMAC() {
		m := s.learnedMAC()
		return schema.LearnedMACs.KeyOf(&m), &m
	}
	n := s.learnedNeighbour()
	return schema.LearnedNeighbours.KeyOf(&n), &n
}

// reportVips publishes the traffic by VIPs where it differs from the last report, and returns it.
func (e *engine) reportVips(last map[string]*topology.VipTraffic) (now map[string]*topology.VipTraffic) {
	now = e.meters.vips()
	e.net.mu.RLock()
	for id, v := range now {
		v.HostID = e.host
		if at, ok := e.net.world.VipEndpoint(id); ok {
			v.Active = e.nats.LetIn(at)
		}
	}
	e.net.mu.RUnlock()
	for id, v := range now {
		if last[id] == nil || *last[id] != *v {
			e.reports.set(schema.VipTraffics.KeyOf(v), v)
		}
	}
	for id, v := range last {
		if now[id] == nil {
			e.reports.Delete(schema.VipTraffics.KeyOf(v))
		}
	}
	return now
}

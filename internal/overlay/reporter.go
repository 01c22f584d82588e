package overlay

import (
	"log/slog"

	"heddle/internal/store/presence"
	"heddle/internal/store/schema"
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

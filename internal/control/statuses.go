package control

import (
	"log/slog"

	"heddle/calico"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// Statuses follow what policy agents report of the ports of routed networks. It is a task.
type Statuses struct{ *replica.Replica }

const (
	statusTable  = "calico-status"
	statusPrefix = "/calico/felix/v1/host/"
)

// NewStatuses returns the task, which reads the store.
func NewStatuses(st store.Store, log *slog.Logger) *Statuses {
	return &Statuses{replica.New(st, replica.Options{Log: log}, replica.Source{
		Name: statusTable, Prefix: statusPrefix, ID: statusID, Decode: readStatus,
	})}
}

func (s *Statuses) String() string { return "statuses" }

// statusID keeps out what is not about Neutron's ports or the agents themselves.
func statusID(path string) (string, bool) {
	switch key, _ := calico.ParseKey(path); k := key.(type) {
	case calico.WorkloadEndpointStatusKey:
		return path, k.Orchestrator == translate.Orchestrator
	case calico.AgentStatusKey, calico.AgentLastStatusKey:
		return path, true
	}
	return "", false
}

// readStatus gives an endpoint's status as Neutron tells it; of an agent it matters only that it said something.
func readStatus(path string, value []byte) (any, error) {
	key, _ := calico.ParseKey(path)
	if _, ok := key.(calico.WorkloadEndpointStatusKey); !ok {
		return struct{}{}, nil
	}
	object, err := calico.Decode(key, value)
	if err != nil {
		return nil, err
	}
	switch object.(*calico.EndpointStatus).Status {
	case calico.StatusUp:
		return statusActive, nil
	case calico.StatusError:
		return statusError, nil
	}
	return statusDown, nil
}

// of is the status of a port that has an endpoint. When the agent of its host has died nobody knows better: an error. A
// nil Statuses knows of no agent.
func (s *Statuses) of(p *neutron.Port) string {
	if s == nil || !p.AdminStateUp {
		return statusDown
	}
	snap := s.Snapshot()
	told := func(key calico.Key) any {
		path, err := key.Path()
		if err != nil {
			return nil
		}
		if e := snap.Get(statusTable, path); e != nil {
			return e.Record
		}
		return nil
	}
	alive, lived := told(calico.AgentStatusKey{Host: p.HostID}), told(calico.AgentLastStatusKey{Host: p.HostID})
	if alive == nil && lived != nil {
		return statusError
	}
	if status, ok := told(translate.EndpointStatusKey(p)).(string); ok {
		return status
	}
	return statusDown
}

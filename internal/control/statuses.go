package control

import (
	"log/slog"

	"heddle/calico"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
)

// Statuses follow what policy agents report of the ports of routed networks. It is a task.
type Statuses struct{ *replica.Replica }

const (
	statusTable  = "calico-status"
	statusPrefix = "/calico/felix/v1/host/"
)

// NewStatuses returns the task, which reads the store.
func NewStatuses(st store.Store, log *slog.Logger) *Statuses {
	return &Statuses{replica.New(st, replica.Options{Log: log}, snapshot.Source{
		Name: statusTable, Prefix: statusPrefix, ID: statusID, Decode: readStatus,
	})}
}

func (s *Statuses) String() string { return "statuses" }

// statusID keeps out what is not about Neutron's ports or the agents themselves.
func statusID(path string) (string, bool) {
	switch key, _ := calico.ParseKey(path); k := key.(type) {
	case calico.WorkloadEndpointStatusKey:
		return path, k.Orchestrator == calico.OpenStack
	case calico.AgentStatusKey, calico.AgentLastStatusKey:
		return path, true
	}
	return "", false
}

// readStatus returns an endpoint's status in Neutron's words; of an agent it records existence.
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

// AgentAlive reports whether the policy agent of a host is.
func (s *Statuses) AgentAlive(host string) bool {
	path, err := calico.AgentStatusKey{Host: host}.Path()
	return err == nil && s.Snapshot().Get(statusTable, path) != nil
}

// of returns the status of a port with an endpoint: ERROR if the host's agent is down.
func (s *Statuses) of(p *neutron.Port) string {
	if s == nil || !p.AdminStateUp {
		return statusDown
	}
	snap := s.Snapshot()
	reported := func(key calico.Key) any {
		path, err := key.Path()
		if err != nil {
			return nil
		}
		if e := snap.Get(statusTable, path); e != nil {
			return e.Record
		}
		return nil
	}
	alive, lived := reported(calico.AgentStatusKey{Host: p.HostID}), reported(calico.AgentLastStatusKey{Host: p.HostID})
	if alive == nil && lived != nil {
		return statusError
	}
	if status, ok := reported(translate.EndpointStatusKey(p)).(string); ok {
		return status
	}
	return statusDown
}

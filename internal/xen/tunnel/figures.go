package tunnel

import (
	"sync/atomic"

	"heddle/internal/telemetry"
)

// counts only grow.
type counts struct {
	moves, transactions, connections int
	xapiFailures                     atomic.Int64
}

// figures are a leader's state in numbers; the zero figures are those of a controller that stands by.
type figures struct {
	leader                           bool
	networks, legs, inPlace          int
	hosts, known                     int
	moves, transactions, connections int
	xapiFailures                     int64
	centers                          map[string]int // by the host's name
}

// figures sums up.
func (e *engine) figures() *figures {
	f := &figures{leader: true, networks: len(e.nets), hosts: len(e.hosts), moves: e.counts.moves, transactions: e.counts.transactions,
		connections: e.counts.connections, xapiFailures: e.counts.xapiFailures.Load(), centers: map[string]int{}}
	for _, n := range e.nets {
		f.legs += n.legs
		f.inPlace += n.inPlace
	}
	for uuid, h := range e.hosts {
		if h.known {
			f.known++
		}
		f.centers[h.name] += e.load[uuid]
	}
	return f
}

func (f *figures) values() []telemetry.Value {
	leads := 0.0
	if f.leader {
		leads = 1
	}
	values := []telemetry.Value{
		gauge("heddle_tunnel_leader", "1 while this controller leads.", leads),
		gauge("heddle_tunnel_networks", "Networks that have a key.", float64(f.networks)),
		gauge("heddle_tunnel_legs", "Legs that there should be.", float64(f.legs)),
		gauge("heddle_tunnel_legs_in_place", "Legs that are made at both ends.", float64(f.inPlace)),
		gauge("heddle_tunnel_hosts", "Hosts of the pool.", float64(f.hosts)),
		gauge("heddle_tunnel_hosts_known", "Hosts whose database answers and whose switch follows it.", float64(f.known)),
		counter("heddle_tunnel_center_moves_total", "Times that a network got another center.", float64(f.moves)),
		counter("heddle_tunnel_transactions_total", "Transactions on hosts' databases.", float64(f.transactions)),
		counter("heddle_tunnel_database_connections_total", "Times that a host's database was found to answer.", float64(f.connections)),
		counter("heddle_tunnel_xapi_failures_total", "Times that the XenAPI could not be used.", float64(f.xapiFailures)),
	}
	for host, n := range f.centers {
		v := gauge("heddle_tunnel_centers", "Networks that a host is center of.", float64(n))
		v.Labels = map[string]string{"host": host}
		values = append(values, v)
	}
	return values
}

func gauge(name, help string, v float64) telemetry.Value {
	return telemetry.Value{Name: name, Help: help, Kind: telemetry.Gauge, Value: v}
}

func counter(name, help string, v float64) telemetry.Value {
	return telemetry.Value{Name: name, Help: help, Kind: telemetry.Counter, Value: v}
}

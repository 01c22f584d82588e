package tunnel

import "heddle/internal/telemetry"

// counts only grow.
type counts struct{ moves, transactions, connections int }

// figures holds a leader's state in numbers; the zero value is for a controller that stands by.
type figures struct {
	leader                  bool
	networks, legs, inPlace int
	hosts, known            int
	counts
	xapiFailures int64
	centers      map[string]int // by the host's name
}

// figures sums up, except for failures of the XenAPI.
func (c *core) figures() *figures {
	f := &figures{leader: true, networks: len(c.nets), hosts: len(c.hosts), counts: c.counts, centers: map[string]int{}}
	for _, n := range c.nets {
		f.legs += n.legs
		f.inPlace += n.inPlace
	}
	for uuid, h := range c.hosts {
		if h.known {
			f.known++
		}
		f.centers[h.name] += c.centers[uuid]
	}
	return f
}

func (f *figures) values() []telemetry.Value {
	leads := 0
	if f.leader {
		leads = 1
	}
	values := []telemetry.Value{
		telemetry.Gauge.Of("heddle_tunnel_leader", "1 while this controller leads.", leads),
		telemetry.Gauge.Of("heddle_tunnel_networks", "Networks that have a key.", f.networks),
		telemetry.Gauge.Of("heddle_tunnel_legs", "Legs that there should be.", f.legs),
		telemetry.Gauge.Of("heddle_tunnel_legs_in_place", "Legs that are made at both ends.", f.inPlace),
		telemetry.Gauge.Of("heddle_tunnel_hosts", "Hosts of the pool.", f.hosts),
		telemetry.Gauge.Of("heddle_tunnel_hosts_known", "Hosts whose database answers and whose switch follows it.", f.known),
		telemetry.Counter.Of("heddle_tunnel_center_moves_total", "Times that a network got another center.", f.moves),
		telemetry.Counter.Of("heddle_tunnel_transactions_total", "Transactions on hosts' databases.", f.transactions),
		telemetry.Counter.Of("heddle_tunnel_database_connections_total", "Times that a host's database was found to answer.", f.connections),
		telemetry.Counter.Of("heddle_tunnel_xapi_failures_total", "Times that the XenAPI could not be used.", int(f.xapiFailures)),
	}
	for host, n := range f.centers {
		values = append(values, telemetry.Gauge.Of("heddle_tunnel_centers", "Networks that a host is center of.", n).With("host", host))
	}
	return values
}

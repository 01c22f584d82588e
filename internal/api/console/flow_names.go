package console

import (
	"context"
	"time"

	"heddle/internal/api/operator"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// namesAge is the time for which names of ports in a stream of flows may be old.
const namesAge = 5 * time.Second

// flowNames names the ports of records as they are sent.
type flowNames struct {
	db   *records.DB
	snap *records.Snap
	read time.Time
}

// named returns a record with the names of its ports.
func (n *flowNames) named(ctx context.Context, r *flow.FlowRecord) operator.Flow {
	if now := time.Now(); now.Sub(n.read) > namesAge {
		reading, cancel := context.WithTimeout(ctx, namesAge)
		if snap, err := n.db.View(reading); err == nil {
			n.snap = snap // else the names that are known
		}
		cancel()
		n.read = now
	}
	return operator.Flow{FlowRecord: *r, From: flowEnd(n.snap, r.Port), To: flowEnd(n.snap, r.PeerPort)}
}

func flowEnd(snap *records.Snap, id string) *operator.FlowEnd {
	p, ok := schema.Ports.Peek(snap, id)
	if !ok {
		return nil
	}
	e := &operator.FlowEnd{Name: portName(p), Network: flow.Object{Kind: "network", ID: p.NetworkID}, Groups: []flow.Object{}}
	if network, ok := schema.Networks.Peek(snap, p.NetworkID); ok {
		e.Network.Name = network.Name
	}
	for _, g := range p.SecurityGroups {
		if group, ok := schema.SecurityGroups.Peek(snap, g); ok {
			e.Groups = append(e.Groups, flow.Object{Kind: "security-group", ID: group.ID, Name: group.Name})
		}
	}
	return e
}

package console

import (
	"net/http"
)

// healthView is the status of all of Heddle with hosts and ports counted: of a large cloud it stays
// small.
type healthView struct {
	Revision     int64           `json:"revision"`
	Problems     []problem       `json:"problems"`
	Servers      []serverView    `json:"servers"`
	Cluster      []ClusterMember `json:"cluster"`
	Store        storeView       `json:"store"`
	Certificates []Certificate   `json:"certificates"`
	Hosts        hostCounts      `json:"hosts"`
	Ports        portCounts      `json:"ports"`
}

type hostCounts struct {
	Total int `json:"total"`
	Alive int `json:"alive"`
}

// portCounts counts the ports that [portsView] lists.
type portCounts struct {
	Bound         int `json:"bound"`
	Active        int `json:"active"`
	Down          int `json:"down"`
	Failing       int `json:"failing"`
	BindingFailed int `json:"binding_failed"`
}

// health answers with what is wrong, the next step for each, and how many hosts and ports are up.
func (c *console) health(r *http.Request) (*healthView, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	s, err := c.findStatus(r.Context(), snap)
	if err != nil {
		return nil, err
	}
	v := healthView{
		Revision: snap.Revision(), Problems: s.Problems, Servers: s.Servers, Cluster: s.Cluster, Store: s.Store, Certificates: s.Certificates,
		Hosts: hostCounts{Total: len(s.Hosts)},
		Ports: portCounts{s.Ports.Bound, s.Ports.Active, len(s.Ports.Down), len(s.Ports.Failing), len(s.Ports.BindingFailed)},
	}
	for _, h := range s.Hosts {
		if h.Alive {
			v.Hosts.Alive++
		}
	}
	return &v, nil
}

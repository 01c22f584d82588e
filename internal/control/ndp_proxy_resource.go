package control

import (
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// ndpProxies are the operations on NDP proxies.
type ndpProxies struct {
	*resource[neutron.NDPProxy, neutron.NDPProxy]
}

// NDPProxies returns the operations on NDP proxies. Do not modify what they return.
func (s *Service) NDPProxies() Operations[neutron.NDPProxy] {
	o := s.ndpProxies.untagged()
	o.Update, o.Delete = s.ndpProxies.update, s.ndpProxies.delete
	return o
}

func newNDPProxies(s *Service) *resource[neutron.NDPProxy, neutron.NDPProxy] {
	t := schema.NDPProxies
	return &resource[neutron.NDPProxy, neutron.NDPProxy]{
		Service: s, name: neutron.NDPProxies, make: (*operation).createNDPProxy,
		finder: finder[neutron.NDPProxy]{t, []criterion[neutron.NDPProxy]{
			byID(t, func(q *neutron.Query) []string { return q.IDs }),
			by(t, "port", func(q *neutron.Query) []string { return q.PortIDs }),
			by(t, "name", func(q *neutron.Query) []string { return q.Names }),
			by(t, "router", func(q *neutron.Query) []string { return q.RouterIDs }),
			by(t, "project", func(q *neutron.Query) []string { return q.ProjectIDs }),
		}, func(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.NDPProxy] {
			return []iter.Seq[*neutron.NDPProxy]{t.By(r, "project", c.ProjectID)}
		}},
		standard:   func(x *neutron.NDPProxy) *neutron.Standard { return &x.Standard },
		attributes: func(x *neutron.NDPProxy) *neutron.Standard { return &x.Standard },
		owner: func(_ records.Reader, x *neutron.NDPProxy) (neutron.Owner, bool) {
			return neutron.Owner{ProjectID: x.ProjectID}, true
		},
		answer: func(_ records.Reader, x *neutron.NDPProxy, _ neutron.Query) *neutron.NDPProxy { return x },
	}
}

package control

import (
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// ndpProxies are the operations on NDP proxies.
type ndpProxies struct {
	*resource[neutron.NDPProxy, neutron.NDPProxy]
}

// NDPProxies returns the operations on NDP proxies. Do not modify what they return.
func (s *Service) NDPProxies() Operations[*neutron.NDPProxy] {
	o := s.ndpProxies.untagged()
	o.Update, o.Delete = s.ndpProxies.update, s.ndpProxies.delete
	return o
}

func newNDPProxies(s *Service) *resource[neutron.NDPProxy, neutron.NDPProxy] {
	t := schema.NDPProxies
	return asStored(s, neutron.NDPProxies, ofProject(t,
		by(t, "port", func(q *neutron.Query) []string { return q.PortIDs }),
		byName(t),
		by(t, "router", func(q *neutron.Query) []string { return q.RouterIDs }),
		byProject(t)),
		func(x *neutron.NDPProxy) *neutron.Standard { return &x.Standard }, (*operation).createNDPProxy)
}

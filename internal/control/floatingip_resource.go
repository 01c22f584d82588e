package control

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// floatingIPs are the operations on floating IPs.
type floatingIPs struct {
	*resource[neutron.FloatingIP, neutron.FloatingIPView]
}

func newFloatingIPs(s *Service) *resource[neutron.FloatingIP, neutron.FloatingIPView] {
	t := schema.FloatingIPs
	return &resource[neutron.FloatingIP, neutron.FloatingIPView]{
		service: s, name: neutron.FloatingIPs, make: (*operation).createFloatingIP,
		finder: ofProject(t,
			by(t, "ip_address", func(q *neutron.Query) []string { return q.FloatingIPs }),
			by(t, "port", func(q *neutron.Query) []string { return q.PortIDs }),
			by(t, "router", func(q *neutron.Query) []string { return q.RouterIDs }),
			byProject(t),
			by(t, "floating_network", func(q *neutron.Query) []string { return q.FloatingNetworkIDs }).onlyAdmins()),
		standard:   func(f *neutron.FloatingIP) *neutron.Standard { return &f.Standard },
		attributes: func(o *neutron.FloatingIPView) *neutron.Standard { return &o.Standard },
		owner:      func(_ records.Reader, f *neutron.FloatingIP) (neutron.Owner, bool) { return floatingIPOwner(f), true },
		answer: func(r records.Reader, f *neutron.FloatingIP, q neutron.Query) *neutron.FloatingIPView {
			if q.WithoutComputed {
				return &neutron.FloatingIPView{FloatingIP: f}
			}
			return s.floatingIPView(r, f)
		},
	}
}

// FloatingIPs returns the operations on floating IPs.
func (s *Service) FloatingIPs() Operations[*neutron.FloatingIPView] {
	o := s.floatingIPs.operations()
	o.Update, o.Delete = s.floatingIPs.update, s.floatingIPs.delete
	return o
}

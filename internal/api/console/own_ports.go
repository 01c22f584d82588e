package console

import (
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// ownPorts answers with a page of the ports of machines of the caller's project.
func (c *console) ownPorts(r *http.Request) (*portList, error) {
	caller := api.Caller(r.Context())
	if err := checkAsker(caller); err != nil {
		return nil, err
	}
	o, err := c.objects(r)
	if err != nil {
		return nil, err
	}
	ports := slices.Collect(schema.Ports.By(o.snap, "project", caller.ProjectID))
	l := o.page(slices.DeleteFunc(ports, func(p *neutron.Port) bool { return !ofMachine(p) }))
	if !caller.Admin() {
		for i := range l.Ports {
			l.Ports[i].Host = nil
		}
	}
	return l, nil
}

// port answers with a port. Tenants see their own, without what is the operators' and what is of
// other projects.
func (c *console) port(r *http.Request) (*portDetail, error) {
	caller := api.Caller(r.Context())
	if err := checkAsker(caller); err != nil {
		return nil, err
	}
	o, err := c.objects(r)
	if err != nil {
		return nil, err
	}
	p, ok := schema.Ports.Peek(o.snap, r.PathValue("id"))
	if !ok || !caller.Owns(p.ProjectID) {
		return nil, api.Errorf(http.StatusNotFound, "port %s could not be found", r.PathValue("id"))
	}
	v := o.port(p)
	if !caller.Admin() {
		v.conceal(o.snap, caller)
	}
	return v, nil
}

// conceal leaves of a port what a tenant who owns it may know.
func (v *portDetail) conceal(snap *records.Snap, caller neutron.Caller) {
	owned := func(group string) bool {
		g, ok := schema.SecurityGroups.Peek(snap, group)
		return ok && caller.Owns(g.ProjectID)
	}
	v.Revision, v.Summary.Host, v.Interface, v.Router = 0, nil, "", nil
	all := len(v.Groups)
	v.Groups = slices.DeleteFunc(v.Groups, func(g groupDetail) bool { return !owned(g.ID) })
	v.OtherGroups = all - len(v.Groups)
	for i := range v.Groups {
		v.Groups[i].Revision = 0
		for j := range v.Groups[i].Rules {
			if remote := v.Groups[i].Rules[j].RemoteGroup; remote != nil && !owned(remote.ID) {
				remote.Name = ""
			}
		}
	}
}

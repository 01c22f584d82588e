package neutronv2

import (
	"net/http"

	"heddle/internal/neutron"
)

// localIPs is the part of local IPs. As the reference's, its paths are also written with an
// underscore.
func localIPs() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			for _, path := range []string{"/local-ips", "/local_ips"} {
				registerAt(on, path, &collection[*neutron.LocalIP]{h, h.tables.LocalIPs, h.ops.LocalIPs()})
				h.localIPAssociations(on, "/v2.0"+path+"/{local_ip}/port_associations")
			}
		},
		extensions: []extension{
			{"local_ip", "Local IP", "2021-07-26T10:00:00-00:00", "Support Node Local Virtual IP"},
		},
	}
}

// localIPAssociations registers the routes of the associations of local IPs at a path.
func (h *handler) localIPAssociations(on func(string, endpoint), path string) {
	of := func(answer func(c *collection[*neutron.LocalIPAssociationView], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			c := &collection[*neutron.LocalIPAssociationView]{h, h.tables.LocalIPAssociations, h.ops.LocalIPAssociations(r.PathValue("local_ip"))}
			return answer(c, w, r)
		}
	}
	on("GET "+path, of((*collection[*neutron.LocalIPAssociationView]).list))
	on("POST "+path, of((*collection[*neutron.LocalIPAssociationView]).create))
	on("GET "+path+"/{id}", of((*collection[*neutron.LocalIPAssociationView]).show))
	on("DELETE "+path+"/{id}", of((*collection[*neutron.LocalIPAssociationView]).delete))
}

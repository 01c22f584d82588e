package neutronv2

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"heddle/internal/api"
)

// extension announces a part of the API to clients. An alias is listed only when all it promises
// holds: clients and their tests key on it. Names, texts and dates are the reference's (neutron-api
// §10).
type extension struct {
	Alias       string
	Name        string
	Updated     string
	Description string
}

// coreExtensions returns the extensions of networks, subnets, ports and security groups.
func coreExtensions() []extension {
	return []extension{
		{"allowed-address-pairs", "Allowed Address Pairs", "2013-07-23T10:00:00-00:00",
			"Provides allowed address pairs"},
		{"binding", "Port Binding", "2014-02-03T10:00:00-00:00",
			"Expose port bindings of a virtual port to external application"},
		{"data-plane-status", "Port data plane status extension", "2017-01-24T10:00:00-00:00",
			"Expose status of underlying data plane"},
		{"dns-domain-ports", "dns_domain for ports", "2017-04-24T10:00:00-00:00",
			"Allows the DNS domain to be specified for a network port."},
		{"empty-string-filtering", "Empty String Filtering Extension", "2018-05-01T10:00:00-00:00",
			"Allow filtering by attributes with empty string value"},
		{"external-net", "Neutron external network", "2013-01-14T10:00:00-00:00",
			"Adds external network attribute to network resource."},
		{"extra_dhcp_opt", "Neutron Extra DHCP options", "2013-03-17T12:00:00-00:00",
			"Extra options configuration for DHCP. For example PXE boot options to DHCP clients can be specified (e.g. tftp-server, server-ip-address, bootfile-name)"},
		{"ip-substring-filtering", "IP address substring filtering", "2017-11-28T09:00:00-00:00",
			"Provides IP address substring filtering when listing ports"},
		{"ip_allocation", "IP Allocation", "2016-06-10T23:00:00-00:00",
			"IP allocation extension."},
		{"l2_adjacency", "L2 Adjacency", "2016-04-12T16:00:00-00:00",
			"Display L2 Adjacency for Neutron Networks."},
		{"mac-learning", "MAC Learning", "2013-05-1T10:00:00-00:00",
			"Provides MAC learning capabilities."},
		{"net-mtu", "Network MTU", "2015-03-25T10:00:00-00:00",
			"Provides MTU attribute for a network resource."},
		{"net-mtu-writable", "Network MTU (writable)", "2017-07-12T00:00:00-00:00",
			"Provides a writable MTU attribute for a network resource."},
		{"network-ip-availability", "Network IP Availability", "2015-09-24T00:00:00-00:00",
			"Provides IP availability data for each network and subnet."},
		{"pagination", "Pagination support", "2016-06-12T00:00:00-00:00",
			"Extension that indicates that pagination is enabled."},
		{"port-device-profile", "Port device profile", "2020-12-17T10:00:00-00:00",
			"Expose the port device profile (Cyborg)"},
		{"port-hint-ovs-tx-steering", "Port hint ovs_tx_steering", "2023-06-14T00:00:00-00:00",
			"Extends ``port-hints`` with ``ovs-tx-steering`` hint"},
		{"port-hints", "Port hints", "2023-06-14T00:00:00-00:00",
			"Extended attribute to express backend-specific hints for ports"},
		{"port-mac-address-regenerate", "Neutron Port MAC address regenerate", "2018-05-03T10:00:00-00:00",
			"Network port MAC address regenerate"},
		{"port-mac-override", "Neutron Port MAC address override", "2022-03-18T10:00:00-00:00",
			"Allow overriding the MAC address of a direct-physical Port via the active binding profile"},
		{"port-numa-affinity-policy", "Port NUMA affinity policy", "2020-07-08T10:00:00-00:00",
			"Expose the port NUMA affinity policy"},
		{"port-security", "Port Security", "2012-07-23T10:00:00-00:00",
			"Provides port security"},
		{"port-security-groups-filtering", "Port filtering on security groups", "2018-01-09T09:00:00-00:00",
			"Provides security groups filtering when listing ports"},
		{"port-trusted-vif", "Port trusted vif", "2024-07-10T10:00:00-00:00",
			"Expose port 'trusted' attribute to API"},
		{"project-id", "project_id field enabled", "2016-09-09T09:09:09-09:09",
			"Extension that indicates that project_id field is enabled."},
		{"provider", "Provider Network", "2012-09-07T10:00:00-00:00",
			"Expose mapping of virtual networks to physical networks"},
		{"quota-check-limit", "Quota engine limit check", "2021-09-08T16:00:00-00:00",
			"Support for checking the resource usage before applying a new quota limit"},
		{"quota_details", "Quota details management support", "2017-02-10T10:00:00-00:00",
			"Expose functions for quotas usage statistics per project"},
		{"quotas", "Quota management support", "2012-07-29T10:00:00-00:00",
			"Expose functions for quotas management per project"},
		{"revision-if-match", "If-Match constraints based on revision_number", "2016-12-11T00:00:00-00:00",
			"Extension indicating that If-Match based on revision_number is supported."},
		{"security-group", "security-group", "2012-10-05T10:00:00-00:00",
			"The security groups extension."},
		{"security-groups-normalized-cidr", "Normalized CIDR field for security group rules", "2020-07-28T10:00:00-00:00",
			"Add new field with normalized remote_ip_prefix cidr in SG rule"},
		{"security-groups-shared-filtering", "Security group filtering on the shared field", "2021-10-05T09:00:00-00:00",
			"Support filtering security groups on the shared field"},
		{"sorting", "Sorting support", "2016-06-12T00:00:00-00:00",
			"Extension that indicates that sorting is enabled."},
		{"standard-attr-description", "standard-attr-description", "2016-02-10T10:00:00-00:00",
			"Extension to add descriptions to standard attributes"},
		{"standard-attr-revisions", "Resource revision numbers", "2016-04-11T10:00:00-00:00",
			"This extension will display the revision number of neutron resources."},
		{"standard-attr-tag", "Tag support for resources with standard attribute: network, subnet, port, security_group", "2017-01-01T00:00:00-00:00",
			"Enables to set tag on resources with standard attribute."},
		{"standard-attr-timestamp", "Resource timestamps", "2016-09-12T10:00:00-00:00",
			"Adds created_at and updated_at fields to all Neutron resources that have Neutron standard attributes."},
		{"stateful-security-group", "Stateful security group", "2019-11-26T09:00:00-00:00",
			"Indicates if the security group is stateful or not"},
		{"subnet-service-types", "Subnet service types", "2016-03-15T18:00:00-00:00",
			"Provides ability to set the subnet service_types field"},
		{"tag-ports-during-bulk-creation", "Tag Ports During Bulk Creation", "2019-12-29T19:00:00-00:00",
			"Allow to tag ports during bulk creation"},
		{"uplink-status-propagation", "Uplink status propagation extension", "2018-05-31T18:00:00-00:00",
			"Provides ability to propagate port uplink status."},
	}
}

func (e extension) answer() map[string]any {
	return map[string]any{"alias": e.Alias, "name": e.Name, "description": e.Description, "updated": e.Updated, "links": []any{}}
}

// announced returns the extensions of parts, by alias.
func announced(parts []part) []extension {
	var all []extension
	for _, p := range parts {
		all = append(all, p.extensions...)
	}
	slices.SortFunc(all, func(a, b extension) int { return strings.Compare(a.Alias, b.Alias) })
	return all
}

func (h *handler) listExtensions(w http.ResponseWriter, _ *http.Request) error {
	list := make([]map[string]any, len(h.extensions))
	for i, e := range h.extensions {
		list[i] = e.answer()
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"extensions": list})
	return nil
}

// showExtension answers one; for an unknown one the answer is plain text, as in the reference.
func (h *handler) showExtension(w http.ResponseWriter, r *http.Request) error {
	alias := r.PathValue("alias")
	i := slices.IndexFunc(h.extensions, func(e extension) bool { return e.Alias == alias })
	if i < 0 {
		w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, "404 Not Found\n\nThe resource could not be found.\n\n Extension with alias %s does not exist\n\n", alias)
		return nil
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"extension": h.extensions[i].answer()})
	return nil
}

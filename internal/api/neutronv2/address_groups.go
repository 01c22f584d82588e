package neutronv2

import (
	"context"
	"net/http"
	"net/netip"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// addressGroups is the part of address groups.
func addressGroups() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			groups := &collection[*neutron.AddressGroupView]{h, h.tables.AddressGroups, h.ops.AddressGroups()}
			register(on, groups)
			on("PUT /v2.0/address-groups/{id}/add_addresses", changeAddresses(groups, h.ops.AddAddresses))
			on("PUT /v2.0/address-groups/{id}/remove_addresses", changeAddresses(groups, h.ops.RemoveAddresses))
		},
		extensions: []extension{
			{"address-group", "Address group", "2020-07-15T10:00:00-00:00", "Support address group"},
			{"security-groups-remote-address-group", "Remote address group id field for security group rules", "2020-08-25T10:00:00-00:00",
				"Add new field of remote address group id in SG rules"},
		},
	}
}

// changeAddresses answers a request to add members to a group or to remove some.
func changeAddresses(c *collection[*neutron.AddressGroupView],
	change func(context.Context, neutron.Caller, string, []netip.Prefix) (*neutron.AddressGroupView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var addresses []netip.Prefix
		err := readObject(r, func(body document) error {
			values := map[string]any{}
			for name, raw := range body {
				v, err := decodeValue(raw)
				if err != nil {
					return err
				}
				values[name] = v
			}
			var err error
			addresses, err = neutron.ParseAddresses(values)
			return err
		})
		if err != nil {
			return err
		}
		caller := api.Caller(r.Context())
		g, err := change(r.Context(), caller, r.PathValue("id"), addresses)
		if err != nil {
			return err
		}
		return c.writeOne(w, http.StatusOK, c.table.Encoder(caller.Admin(), nil), g)
	}
}

package neutronv2

import (
	"context"
	"net/http"
	"net/netip"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// subnetPools is the part of subnet pools and address scopes.
func subnetPools() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.SubnetPoolView]{h, h.tables.SubnetPools, h.ops.SubnetPools()})
			register(on, &collection[*neutron.AddressScopeView]{h, h.tables.AddressScopes, h.ops.AddressScopes()})
			on("PUT /v2.0/subnetpools/{id}/add_prefixes", changePrefixes(h.ops.AddPrefixes))
			on("PUT /v2.0/subnetpools/{id}/remove_prefixes", changePrefixes(h.ops.RemovePrefixes))
			on("PUT /v2.0/subnetpools/{id}/onboard_network_subnets", h.onboardSubnets)
		},
		extensions: []extension{
			{"address-scope", "Address scope", "2015-07-26T10:00:00-00:00", "Address scopes extension."},
			{"default-subnetpools", "Default Subnetpools", "2016-02-18T18:00:00-00:00",
				"Provides ability to mark and use a subnetpool as the default."},
			{"subnet_allocation", "Subnet Allocation", "2015-03-30T10:00:00-00:00", "Enables allocation of subnets from a subnet pool"},
			{"subnet_onboard", "Subnet Onboard", "2018-12-18T09:00:00-00:00", "Provides support for onboarding subnets into subnet pools"},
			{"subnetpool-prefix-ops", "Subnet Pool Prefix Operations", "2019-02-08T10:00:00-00:00",
				"Provides support for adjusting the prefix list of subnet pools"},
		},
	}
}

// changePrefixes answers a request to add prefixes to a pool or to remove some: with all of them.
func changePrefixes(change func(context.Context, neutron.Caller, string, []netip.Prefix) ([]netip.Prefix, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readAction(r)
		if err != nil {
			return err
		}
		prefixes, err := neutron.ParsePrefixes(body)
		if err != nil {
			return err
		}
		left, err := change(r.Context(), api.Caller(r.Context()), r.PathValue("id"), prefixes)
		if err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusOK, map[string][]netip.Prefix{"prefixes": left})
		return nil
	}
}

// onboardSubnets answers a request to move a network's subnets into a pool: with those moved.
func (h *handler) onboardSubnets(w http.ResponseWriter, r *http.Request) error {
	body, err := readAction(r)
	if err != nil {
		return err
	}
	network, err := neutron.ParseOnboarding(body)
	if err != nil {
		return err
	}
	moved, err := h.ops.OnboardSubnets(r.Context(), api.Caller(r.Context()), r.PathValue("id"), network)
	if err != nil {
		return err
	}
	type subnet struct {
		ID   string       `json:"id"`
		CIDR netip.Prefix `json:"cidr"`
	}
	answer := make([]subnet, len(moved))
	for i, s := range moved {
		answer[i] = subnet{s.ID, s.CIDR}
	}
	api.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// readAction reads the body of an action: an object with any values.
func readAction(r *http.Request) (map[string]any, error) {
	values := map[string]any{}
	return values, readObject(r, func(body document) error {
		for name, raw := range body {
			v, err := decodeValue(raw)
			if err != nil {
				return err
			}
			values[name] = v
		}
		return nil
	})
}

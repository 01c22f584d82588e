package neutronv2

import (
	"net/http"
	"strconv"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// qos is the part of QoS policies.
func qos() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			policies := &collection[*neutron.QoSPolicyView]{h, h.tables.QoSPolicies, h.ops.QoSPolicies()}
			register(on, policies)
			registerTags(on, "/v2.0/policies/{id}", policies) // where the reference has them
			for _, t := range neutron.QoSRuleTypes() {
				qosRules(h, on, t)
			}
			on("GET /v2.0/qos/rule-types", h.listQoSRuleTypes)
			on("GET /v2.0/qos/rule-types/{type}", h.showQoSRuleType)
		},
		extensions: qosExtensions(),
	}
}

func qosExtensions() []extension {
	return []extension{
		{"port-resource-request", "Port Resource Request", "2018-05-08T10:00:00-00:00", "Expose resource request to Port"},
		{"port-resource-request-groups", "Port Resource Request Groups", "2021-08-02T10:00:00-00:00",
			"Support requesting multiple groups of resources and traits from the same RP subtree in resource_request"},
		{"qos", "Quality of Service", "2015-06-08T10:00:00-00:00", "The Quality of Service extension."},
		{"qos-bw-limit-direction", "Direction for QoS bandwidth limit rule", "2017-04-10T10:00:00-00:00",
			"Allow to configure QoS bandwidth limit rule with specific direction: ingress or egress"},
		{"qos-bw-minimum-ingress", "Ingress direction for QoS minimum bandwidth rule", "2018-07-09T10:00:00-00:00",
			"Allow to configure QoS minumum bandwidth rule with ingress direction."},
		{"qos-default", "QoS default policy", "2017-041-06T10:00:00-00:00", "Expose the QoS default policy per project"},
		{"qos-fip", "Floating IP QoS", "2017-07-20T00:00:00-00:00", "The floating IP Quality of Service extension"},
		{"qos-gateway-ip", "Router gateway IP QoS", "2018-02-24T00:00:00-00:00", "The Router gateway IP Quality of Service extension"},
		{"qos-port-network-policy", "QoS port network policy ID", "2019-11-01T10:00:00-00:00",
			"Adds a the QoS network ID to the port definition"},
		{"qos-pps", "QoS Rule Type Packet per Second Extension", "2021-05-12T10:00:00-00:00", "Add QoS Rule Type Packet per Second"},
		{"qos-pps-minimum", "QoS minimum packet rate rule", "2021-07-14T10:00:00-00:00", "Allow to configure QoS minimum packet rate rule."},
		{"qos-pps-minimum-rule-alias", "QoS minimum packet rate rule alias", "2021-10-22T10:00:00-00:00",
			"API to enable GET, PUT and DELETE operations on QoS minimum packet rate rule without specifying policy ID"},
		{"qos-rule-type-details", "Details of QoS rule types", "2017-06-22T10:00:00-00:00",
			"Expose details about QoS rule types supported by loaded backend drivers"},
		{"qos-rule-type-filter", "Allow to filter the list of QoS rule types", "2022-02-02T10:00:00-00:00",
			`Allows to filter the QoS rule type list adding two new flags. "all_rules" prints all implemented QoS rule types.` +
				`"all_supported" prints all supported QoS rule types by the loaded mechanism drivers`},
		{"qos-rules-alias", "Quality of Service rules alias API", "2018-10-07T10:00:00-00:00",
			"API to enable GET, PUT and DELETE operations on QoS policy rules without specifying policy ID"},
	}
}

// qosRules adds the routes of a type's rules: below their policies, and without.
func qosRules(h *handler, on func(string, endpoint), t neutron.QoSRuleType) {
	of := func(res neutron.Resource, answer func(c *collection[*neutron.QoSRuleView], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			return answer(&collection[*neutron.QoSRuleView]{h, h.tables.QoSRules[res], h.ops.QoSRules(r.PathValue("policy"), res)}, w, r)
		}
	}
	path := "/v2.0" + neutron.QoSPolicies.Path() + "/{policy}" + t.Resource.Path()
	on("GET "+path, of(t.Resource, (*collection[*neutron.QoSRuleView]).list))
	on("POST "+path, of(t.Resource, (*collection[*neutron.QoSRuleView]).create))
	items := map[string]neutron.Resource{path + "/{id}": t.Resource}
	if t.Alias != 0 {
		items["/v2.0"+t.Alias.Path()+"/{id}"] = t.Alias
	}
	for item, res := range items {
		on("GET "+item, of(res, (*collection[*neutron.QoSRuleView]).show))
		on("PUT "+item, of(res, (*collection[*neutron.QoSRuleView]).update))
		on("DELETE "+item, of(res, (*collection[*neutron.QoSRuleView]).delete))
	}
}

// listQoSRuleTypes lists the types of rules. There are so few that it is not cut into pages.
func (h *handler) listQoSRuleTypes(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	enforced, err := flagOf(params.Get("all_supported"))
	if err != nil {
		return err
	}
	all, err := flagOf(params.Get("all_rules"))
	if err != nil {
		return err
	}
	e := h.tables.QoSRuleTypes.Encoder(api.Caller(r.Context()).Admin(), nonEmpty(params["fields"]))
	out := newListWriter(w, http.StatusOK, neutron.QoSRuleTypeNames.Collection())
	for _, t := range h.ops.QoSRuleTypes(enforced && !all) {
		out.item(func(b []byte) []byte { return e.Append(b, t) })
	}
	return out.end(nil)
}

// flagOf reads a flag of a query; "" is false.
func flagOf(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, invalidInput("'" + text + "' cannot be converted to boolean")
	}
	return b, nil
}

func (h *handler) showQoSRuleType(w http.ResponseWriter, r *http.Request) error {
	caller := api.Caller(r.Context())
	t, err := h.ops.QoSRuleType(caller, r.PathValue("type"))
	if err != nil {
		return err
	}
	c := &collection[*neutron.QoSRuleTypeView]{handler: h, table: h.tables.QoSRuleTypes}
	return c.writeOne(w, http.StatusOK, c.table.Encoder(caller.Admin(), nonEmpty(r.URL.Query()["fields"])), t)
}

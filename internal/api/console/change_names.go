package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
)

// references has the resources that attributes of steps refer to, which may do so by name.
var references = map[string]neutron.Resource{
	"network_id":              neutron.Networks,
	"floating_network_id":     neutron.Networks,
	"subnet_id":               neutron.Subnets,
	"router_id":               neutron.Routers,
	"port_id":                 neutron.Ports,
	"security_group_id":       neutron.SecurityGroups,
	"security_groups":         neutron.SecurityGroups,
	"remote_group_id":         neutron.SecurityGroups,
	"remote_address_group_id": neutron.AddressGroups,
}

// resolve puts the ids of objects in the place of their names, among the attributes of a step and
// what these have inside. It returns the attribute with a name that several objects have, and why
// that is none.
func (d *draft) resolve(ctx context.Context, s *operator.ChangeStep, data map[string]any) (attribute, why string, err error) {
	if own, ok := changedResource(s); ok {
		if data["id"], why, err = d.idOf(ctx, own, data["id"]); why != "" || err != nil {
			return "id", why, err
		}
	}
	for name, value := range data {
		switch value := value.(type) {
		case map[string]any:
			if attribute, why, err = d.resolve(ctx, &operator.ChangeStep{}, value); why != "" || err != nil {
				return name + "." + attribute, why, err
			}
			continue
		case []any:
			for i := range value {
				if inner, ok := value[i].(map[string]any); ok {
					attribute, why, err = d.resolve(ctx, &operator.ChangeStep{}, inner)
					attribute = "." + attribute
				} else if r, ok := references[name]; ok {
					attribute = ""
					value[i], why, err = d.idOf(ctx, r, value[i])
				}
				if why != "" || err != nil {
					return fmt.Sprintf("%s[%d]%s", name, i, attribute), why, err
				}
			}
		default:
			if r, ok := references[name]; ok {
				if data[name], why, err = d.idOf(ctx, r, value); why != "" || err != nil {
					return name, why, err
				}
			}
		}
	}
	return "", "", nil
}

// changedResource returns the resource of the object that a step's id is of, if it is there
// already.
func changedResource(s *operator.ChangeStep) (r neutron.Resource, ok bool) {
	switch {
	case s.Type == "router_interface":
		return neutron.Routers, true
	case s.Type == "port_binding":
		return neutron.Ports, true
	case s.Op == "update" || s.Op == "delete":
		return resourceNamed(s.Type)
	}
	return 0, false
}

// idOf returns the id of the one object of a resource with a name, or why there is none. What is no
// name, and what no object has, stays.
func (d *draft) idOf(ctx context.Context, r neutron.Resource, value any) (id any, why string, err error) {
	name, isText := value.(string)
	if _, below := parents[r]; !isText || name == "" || below || uuid.Validate(name) == nil {
		return value, "", nil
	}
	answer, refused, err := d.do(ctx, neutronCall{http.MethodGet, r.Path() + "?fields=id&name=" + url.QueryEscape(name), nil})
	if err != nil || refused != nil {
		return value, "", err
	}
	var found map[string][]struct{ ID string }
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, "", err
	}
	switch all := found[r.Collection()]; len(all) {
	case 0:
		return value, "", nil
	case 1:
		return all[0].ID, "", nil
	default:
		return nil, fmt.Sprintf("%d are called %q: give the id of one", len(all), name), nil
	}
}

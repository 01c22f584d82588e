package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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

// resolve puts the ids of objects in the place of their names, in a step's own id and its
// attributes. It returns the attribute with a name that several objects have, and why that is none.
func (d *draft) resolve(ctx context.Context, s *operator.ChangeStep, data map[string]any) (attribute, why string, err error) {
	if own, ok := changedResource(s); ok {
		if data["id"], why, err = d.idOf(ctx, own, data["id"]); why != "" || err != nil {
			return "id", why, err
		}
	}
	for name, value := range data {
		if data[name], attribute, why, err = d.resolveValue(ctx, name, value); why != "" || err != nil {
			return attribute, why, err
		}
	}
	return "", "", nil
}

// resolveValue returns the value of an attribute with ids in the place of names; see resolve.
func (d *draft) resolveValue(ctx context.Context, name string, value any) (now any, attribute, why string, err error) {
	switch value := value.(type) {
	case map[string]any:
		for inner, x := range value {
			if value[inner], attribute, why, err = d.resolveValue(ctx, inner, x); why != "" || err != nil {
				return nil, name + "." + attribute, why, err
			}
		}
	case []any:
		for i, x := range value {
			if value[i], attribute, why, err = d.resolveValue(ctx, name, x); why != "" || err != nil {
				return nil, fmt.Sprintf("%s[%d]%s", name, i, strings.TrimPrefix(attribute, name)), why, err
			}
		}
	case string:
		if r, ok := references[name]; ok {
			now, why, err = d.idOf(ctx, r, value)
			return now, name, why, err
		}
	}
	return value, "", "", nil
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

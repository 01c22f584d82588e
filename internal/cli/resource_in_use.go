package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"heddle/internal/cloud"
	"heddle/internal/terminal"
)

// mostBlockers bounds the objects that an error names.
const mostBlockers = 5

// blockedBy adds to an error about the deletion of an object what has to go first.
func blockedBy(ctx context.Context, api *cloud.Neutron, k cloud.Kind, id, name string, err error) error {
	if !cloud.IsConflict(err) {
		return err
	}
	var hint string
	switch k {
	case cloud.Router:
		hint = interfacesOf(ctx, api, id, name)
	case cloud.SecurityGroup:
		hint = membersOf(ctx, api, id)
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, terminal.Escape(hint))
}

// interfacesOf returns how to take a router's interfaces away, "" if it has none.
func interfacesOf(ctx context.Context, api *cloud.Neutron, id, name string) string {
	query := url.Values{"device_id": {id}, "device_owner": {"network:router_interface"}, "fields": {"fixed_ips"}}
	var ports []cloud.Object
	if api.List(ctx, cloud.Port, query, &ports) != nil || len(ports) == 0 {
		return ""
	}
	var commands []string
	for _, p := range ports {
		for _, ip := range objects(p["fixed_ips"]) {
			var subnet cloud.Object
			_ = api.Get(ctx, cloud.Subnet, ip.Text("subnet_id"), &subnet, "name") // the id names it, too
			commands = append(commands, fmt.Sprintf("`heddle router remove-subnet %s %s`", name, cmp.Or(subnet.Text("name"), ip.Text("subnet_id"))))
		}
	}
	return "first " + firstOf(commands)
}

// membersOf returns which ports are in a security group, "" if there are none.
func membersOf(ctx context.Context, api *cloud.Neutron, id string) string {
	var ports []cloud.Object
	if api.List(ctx, cloud.Port, url.Values{"security_groups": {id}, "fields": {"id", "name"}}, &ports) != nil || len(ports) == 0 {
		return ""
	}
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = cmp.Or(p.Text("name"), p.ID())
	}
	return "ports in it: " + firstOf(names) + "; `heddle port set PORT --sg` gives a port other groups"
}

// firstOf lists texts, of many the first.
func firstOf(texts []string) string {
	shown := texts[:min(len(texts), mostBlockers)]
	if more := len(texts) - len(shown); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(shown, ", "), more)
	}
	return strings.Join(shown, ", ")
}

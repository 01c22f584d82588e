package offline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// TranslateOptions say what Translate prints.
type TranslateOptions struct {
	Each bool // the topology after every step, not only after the last
	JSON bool // one JSON document instead of text for people
}

// step is one operation of the input.
type step struct {
	number int // from 1
	op     string
	typ    string
	data   object
}

// translation is the output (file-formats §1).
type translation struct {
	Steps    []translatedStep `json:"steps"`
	Topology *topology.View   `json:"topology"`
}

type translatedStep struct {
	Error    *refusal       `json:"error"`
	Topology *topology.View `json:"topology,omitempty"`
	step     *step
}

// Translate reads Neutron operations, applies each as one transaction to an empty store, and prints
// the topology they make. A refused step changes nothing and is no error of Translate; a file that
// is not in the format is a [FileError], and nothing is printed.
func Translate(ctx context.Context, in io.Reader, opts TranslateOptions, out io.Writer) error {
	steps, err := parseSteps(in)
	if err != nil {
		return err
	}
	w, end, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer end()
	t := translation{Steps: []translatedStep{}}
	if err := t.run(w, steps, opts.Each); err != nil {
		return err
	}
	if opts.JSON {
		return printJSON(out, t)
	}
	return t.print(out)
}

// run applies the steps to an empty world.
func (t *translation) run(w *world, steps []step, each bool) (err error) {
	for i := range steps {
		done := translatedStep{step: &steps[i]}
		if done.Error, err = refusalOf(w.apply(&steps[i])); err != nil {
			return err
		}
		if each {
			if done.Topology, err = w.topology(); err != nil {
				return err
			}
		}
		t.Steps = append(t.Steps, done)
	}
	t.Topology, err = w.topology()
	return err
}

// parseSteps reads the whole file before the first step is applied.
func parseSteps(in io.Reader) ([]step, error) {
	file, err := parse(in)
	if err != nil {
		return nil, err
	}
	o, err := file.object("steps")
	if err != nil {
		return nil, err
	}
	if !o.has("steps") {
		return nil, fileErrorf("steps", "is missing")
	}
	steps, err := each(o.get("steps"), readStep)
	for i := range steps {
		steps[i].number = i + 1
	}
	return steps, err
}

func readStep(n node) (s step, err error) {
	o, err := n.object("op", "type", "data")
	if err != nil {
		return s, err
	}
	if s.op, err = o.get("op").oneOf("create", "update", "delete"); err != nil {
		return s, err
	}
	if s.typ, err = o.get("type").text(); err != nil {
		return s, err
	}
	if s.op == "" || s.typ == "" {
		return s, fileErrorf(n.place, "op or type is missing")
	}
	if s.data, err = o.get("data").anyObject(); err != nil {
		return s, err
	}
	return s, s.check()
}

// check refuses unknown fields of the data; a type that is not translated may have any.
func (s *step) check() error {
	switch s.typ {
	case "host":
		_, err := s.data.object("id", "name")
		return err
	case "port_binding":
		_, err := s.data.object("id", "port_id", "host_id", "interface_name")
		return err
	case typeRouterInterface:
		_, err := s.data.object("id", "port_id", "subnet_id", "subnet_ids", "network_id", "tenant_id", "project_id")
		return err
	case neutron.Firewalls.Name():
		return checkFirewall(s.data)
	}
	if r, ok := balancerResources()[s.typ]; ok {
		return checkBalancing(r, s.data)
	}
	for _, r := range []neutron.Resource{neutron.Networks, neutron.Subnets, neutron.Ports, neutron.SecurityGroups, neutron.SecurityGroupRules,
		neutron.Routers, neutron.FloatingIPs, neutron.PortForwardings, neutron.NDPProxies, neutron.FirewallGroupRules, neutron.FirewallGroupPolicies, neutron.FirewallGroups,
		neutron.Trunks, neutron.LoggingResources, neutron.FirewallLogs, neutron.TapServices, neutron.TapFlows,
		neutron.BGPSpeakers, neutron.BGPPeers,
		neutron.GatewayDevices, neutron.RemoteMACEntries, neutron.L2Gateways, neutron.L2GatewayConnections} {
		if r.Name() == s.typ {
			return checkAttributes(r, s.data)
		}
	}
	return nil
}

// apply carries out one step; an error has changed nothing.
func (w *world) apply(s *step) error {
	w.now = bornAt(s.number)
	switch s.typ {
	case "host":
		return w.applyHost(s)
	case "port_binding":
		return w.applyBinding(s)
	case typeRouterInterface:
		return w.applyInterface(s)
	case neutron.Firewalls.Name():
		return w.applyFirewall(s)
	}
	if _, ok := balancerResources()[s.typ]; ok {
		return w.applyBalancing(s)
	}
	k := w.kinds[s.typ]
	if k == nil {
		return refuse(neutron.Unsupported, "type %s is not translated", s.typ)
	}
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	switch s.op {
	case "create":
		return w.create(k, id, s.data)
	case "update":
		return w.update(k, id, s.data)
	}
	// Deleting what is gone is success (midonet-translations §1.3).
	switch k.Resource {
	case neutron.Ports:
		return ignoreMissing(w.removePort(k, id))
	case neutron.L2GatewayConnections:
		return ignoreMissing(w.removeConnection(k, id))
	}
	return ignoreMissing(k.remove(id))
}

func printJSON(out io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", b)
	return err
}

package plug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"heddle/internal/cloud"
	"heddle/internal/hostnet"
	"heddle/internal/terminal"
)

const (
	statusActive  = "ACTIVE"
	bindingFailed = "binding_failed"
	// firstPoll and pollInterval are the first pause between two looks at a port's status, and the
	// longest: each is twice the one before.
	firstPoll    = 5 * time.Millisecond
	pollInterval = 100 * time.Millisecond
)

// port is a port as the API shows it to an administrator.
type port struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	NetworkID    string    `json:"network_id"`
	MACAddress   string    `json:"mac_address"`
	FixedIPs     []fixedIP `json:"fixed_ips"`
	DeviceOwner  string    `json:"device_owner"`
	Status       string    `json:"status"`
	AdminStateUp bool      `json:"admin_state_up"`
	// HostID is nil when the caller may not see it.
	HostID  *string        `json:"binding:host_id"`
	VIFType string         `json:"binding:vif_type"`
	Profile map[string]any `json:"binding:profile"`
}

// String names the port to people.
func (p *port) String() string { return terminal.Escape(cmp.Or(p.Name, p.ID)) }

func (p *port) host() string {
	if p.HostID == nil {
		return ""
	}
	return *p.HostID
}

// device returns the name of the port's interface on its host.
func (p *port) device() string {
	if name, ok := p.Profile[interfaceName].(string); ok && name != "" {
		return name
	}
	return "tap" + p.ID[:11]
}

// interfaceName is the key of binding:profile that names the interface on the host.
const interfaceName = "interface_name"

// owners of ports that belong to routers and load balancers, and never to a workload.
var owners = []string{"network:router_interface", "network:router_gateway", "network:floatingip", "neutron:LOADBALANCER", "neutron:LOADBALANCERV2"}

// readPort reads a port that can be plugged.
func (p *Plugger) readPort(ctx context.Context, id string) (*port, error) {
	var found port
	if err := p.API.Get(ctx, cloud.Port, id, &found); err != nil {
		return nil, err
	}
	switch {
	case found.HostID == nil:
		return nil, fmt.Errorf("port %s: binding a port to a host takes an administrator's rights: log in as one", &found)
	case slices.Contains(owners, found.DeviceOwner):
		return nil, fmt.Errorf("port %s belongs to a %s: make a port for the workload", &found, found.DeviceOwner)
	}
	return &found, nil
}

// checkHost refuses a port that is bound to another host, and a host that does not exist.
func (p *Plugger) checkHost(ctx context.Context, port *port) error {
	all, err := p.allAgents(ctx)
	if err != nil {
		return err
	}
	free := fmt.Sprintf("`heddle port set %s --host \"\"`", port.ID)
	switch at := port.host(); {
	case at == "" || at == p.Host:
		_, err := p.ownAgents(all)
		return err
	case !slices.ContainsFunc(all, func(a agent) bool { return a.Host == at }):
		return fmt.Errorf("port %s is bound to host %s, which is not registered: %s", port, terminal.Escape(at), free)
	default:
		return fmt.Errorf("port %s is bound to host %s, and %s there: `heddle unplug %s` on that host, or %s", port, terminal.Escape(at), port.Status, port.ID, free)
	}
}

// agent is a function of a host.
type agent struct {
	Host  string `json:"host"`
	Alive bool   `json:"alive"`
}

// agents returns the functions of this host, at least one.
func (p *Plugger) agents(ctx context.Context) ([]agent, error) {
	all, err := p.allAgents(ctx)
	if err != nil {
		return nil, err
	}
	return p.ownAgents(all)
}

// allAgents returns the functions of all hosts.
func (p *Plugger) allAgents(ctx context.Context) (all []agent, err error) {
	err = p.API.List(ctx, cloud.Agent, url.Values{"fields": {"host", "alive"}}, &all)
	return all, err
}

// ownAgents returns the functions of this host, at least one.
func (p *Plugger) ownAgents(all []agent) ([]agent, error) {
	var own []agent
	hosts := map[string]bool{}
	for _, a := range all {
		hosts[a.Host] = true
		if a.Host == p.Host {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		known := cmp.Or(strings.Join(slices.Sorted(maps.Keys(hosts)), ", "), "none")
		return nil, fmt.Errorf("host %s is not registered (there are: %s): start `heddle agent` on it, or give the agent's name with --host, or \"host\" in a CNI configuration",
			p.Host, terminal.Escape(known))
	}
	return own, nil
}

// bind binds a port to an interface of this host.
func (p *Plugger) bind(ctx context.Context, port *port, r *record) error {
	if port.host() == p.Host && port.Profile[interfaceName] == r.Device {
		return nil
	}
	profile := maps.Clone(port.Profile)
	if profile == nil {
		profile = map[string]any{}
	}
	profile[interfaceName] = r.Device
	return p.setBinding(ctx, port.ID, binding{p.Host, profile})
}

func (p *Plugger) setBinding(ctx context.Context, id string, b binding) error {
	profile := b.Profile
	if profile == nil {
		profile = map[string]any{} // null would unbind the port from a host too
	}
	_, err := p.API.Update(ctx, cloud.Port, id, map[string]any{"binding:host_id": b.HostID, "binding:profile": profile})
	if err != nil {
		return fmt.Errorf("bind port %s to host %q: %w", id, b.HostID, err)
	}
	return nil
}

// diagnoseTimeout bounds the search for what a port lacks, once the time to wait is over.
const diagnoseTimeout = 5 * time.Second

// await waits until the port is ACTIVE, and returns its status. That of a tap is DOWN until a
// machine opens it: what else the port needs is looked at instead. The wait ends with the deadline
// of ctx, too.
func (p *Plugger) await(ctx context.Context, id, device string) (status string, err error) {
	waiting := ctx
	if p.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, p.Wait)
		defer cancel()
	}
	var last *port
	for pause := firstPoll; ; pause = min(2*pause, pollInterval) {
		var now port
		err := p.API.Get(waiting, cloud.Port, id, &now)
		switch {
		case err == nil:
			last = &now
		case last == nil || waiting.Err() == nil:
			return "", err
		}
		if last.Status == statusActive || p.Wait <= 0 {
			return last.Status, nil
		}
		if idle, err := p.isIdleTap(device); idle || err != nil {
			return last.Status, errors.Join(err, p.checkObstacle(ctx, last))
		}
		select {
		case <-time.After(pause):
		case <-waiting.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return "", fmt.Errorf("interrupted while port %s was %s", last, last.Status)
			}
			diagnosing, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnoseTimeout)
			defer cancel()
			return "", p.diagnose(diagnosing, last, device, fmt.Sprintf(" after %s", p.Wait))
		}
	}
}

// NotServedError is the error of a port that is not ACTIVE, with the reason.
type NotServedError struct{ Text string }

func (e *NotServedError) Error() string { return e.Text }

// diagnose returns an error that says what a port that is not ACTIVE lacks, or lacked at a time.
func (p *Plugger) diagnose(ctx context.Context, port *port, device, when string) error {
	reason, err := p.reason(ctx, port, device)
	if err != nil {
		reason = err.Error()
	}
	return &NotServedError{fmt.Sprintf("port %s is %s%s: %s", port, port.Status, when, reason)}
}

// isIdleTap reports whether an interface is a tap that no machine has open.
func (p *Plugger) isIdleTap(device string) (bool, error) {
	link, err := p.Net.Link(device)
	return err == nil && link.Kind == hostnet.Tap && !link.Running, err
}

// checkObstacle returns an error if the port could not be ACTIVE whatever opened its tap.
func (p *Plugger) checkObstacle(ctx context.Context, port *port) error {
	obstacle, err := p.obstacle(ctx, port)
	if err == nil && obstacle != "" {
		err = fmt.Errorf("port %s is %s: %s", port, port.Status, obstacle)
	}
	return err
}

func (p *Plugger) reason(ctx context.Context, port *port, device string) (string, error) {
	obstacle, err := p.obstacle(ctx, port)
	if err != nil || obstacle != "" {
		return obstacle, err
	}
	return fmt.Sprintf("the agent of host %s does not serve interface %s: is that this host's agent, and what does its log say?", p.Host, device), nil
}

// obstacle returns why the port cannot be ACTIVE whatever its interface, or "".
func (p *Plugger) obstacle(ctx context.Context, port *port) (string, error) {
	runs, err := agentRuns()
	if err != nil {
		return "", err
	}
	all, err := p.agents(ctx)
	if err != nil {
		return "", err
	}
	alive := slices.ContainsFunc(all, func(a agent) bool { return a.Alive })
	switch {
	case !port.AdminStateUp:
		return fmt.Sprintf("its admin_state_up is false: `heddle port set %s --admin-up`", port.ID), nil
	case !runs:
		return "no agent runs on this host: `systemctl start heddle-agent`", nil
	case port.VIFType == bindingFailed:
		return fmt.Sprintf("its binding to host %s has failed: does the agent there have the role of the port's network?", p.Host), nil
	case !alive:
		return fmt.Sprintf("the agent of host %s is down: see its log, and `heddle host list`", p.Host), nil
	}
	return "", nil
}

// agentRuns reports whether an agent that serves ports runs in this network namespace.
func agentRuns() (bool, error) {
	for _, role := range []string{"overlay", "policy"} {
		if held, err := hostnet.Held("role-" + role); held || err != nil {
			return held, err
		}
	}
	return false, nil
}

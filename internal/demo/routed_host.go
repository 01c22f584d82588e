package demo

import (
	"context"
	_ "embed" // the objects of the routed host
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/lab"
	"heddle/internal/netlab"
	"heddle/internal/store/backend"
)

// routedObjects are applied by the routed part.
//
//go:embed routed_host.yaml
var routedObjects string

const (
	routedHost = "demo-r1"
	// routedIP is the routed host's address on the underlay, outsideIP that of a machine without an
	// agent.
	routedIP, outsideIP = "192.0.2.50", "192.0.2.99"
	// floatingIP is web's floating address (RFC 5737 documentation range).
	floatingIP = "203.0.113.80"
	// appsGateway is the gateway of web, app and db, vmGateway that of vm.
	appsGateway, vmGateway = "10.65.0.1", "10.66.0.1"
	sshPort                = 22
)

// routed has a host whose workloads have an interface each and no bridge, and a machine outside.
//
//	heddle-demo-r1   eth0 192.0.2.50 (host endpoint), heddle agent --policy --dhcp, tap-web…
//	      │ eth0 of each workload
//	heddle-demo-web  10.65.0.11, floating 203.0.113.80     heddle-demo-outside 192.0.2.99
type routed struct {
	host         *lab.Host
	web, app, db *workload   // by heddle calico apply
	vm           *workload   // by calls to the Neutron API
	operator     *lab.Tenant // who calls
	outside      *workload
	store        *client.Client
}

// showRouted plays the routed part.
func (d *demo) showRouted(ctx context.Context) error {
	r, err := d.stageRouted(ctx)
	d.routed = r
	if r.store != nil {
		defer r.store.Close()
	}
	if err != nil {
		return fmt.Errorf("routed host: %w", err)
	}
	self := &workload{&lab.Workload{Name: routedHost, NS: r.host.NS}}
	stop, err := serveAll(endpoint{r.web, allowedPort}, endpoint{r.web, forbiddenPort}, endpoint{r.app, allowedPort}, endpoint{r.db, allowedPort},
		endpoint{r.outside, allowedPort}, endpoint{self, sshPort}, endpoint{self, forbiddenPort})
	defer stop()
	if err == nil {
		err = d.showLeases(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("routed host: %w", err)
	}
	d.showPolicy(ctx, r)
	d.showFloating(ctx, r)
	d.showHostEndpoint(ctx, r)
	if err := d.showPolicyChange(ctx, r); err != nil {
		return err
	}
	d.showProfileLabels(ctx, r)
	d.showEndpointStatus(ctx, r)
	return nil
}

// stageRouted makes the host and its workloads, applies the objects, and starts the agent.
func (d *demo) stageRouted(ctx context.Context) (*routed, error) {
	r := &routed{}
	var err error
	if r.host, err = d.lab.Attach("r1", routedHost, routedIP); err != nil {
		return r, err
	}
	r.host.Roles = []string{"--policy", "--dhcp"}
	d.lab.Hosts = append(d.lab.Hosts, r.host)
	if err := r.host.NS.IP("route add default via " + lab.ServerIP); err != nil {
		return r, err
	}
	outside, err := d.lab.Attach("outside", "outside", outsideIP)
	if err != nil {
		return r, err
	}
	if err := outside.NS.IP("route add 10.64.0.0/14 via "+routedIP, "route add 203.0.113.0/24 via "+routedIP); err != nil {
		return r, err
	}
	r.outside = &workload{&lab.Workload{Name: "outside", NS: outside.NS}}
	for i, w := range []struct {
		as   **workload
		name string
	}{{&r.web, "web"}, {&r.app, "app"}, {&r.db, "db"}} {
		port := &ports.Port{MACAddress: fmt.Sprintf("02:00:0a:41:00:%02x", 0x11+i), FixedIPs: []ports.IP{{IPAddress: fmt.Sprintf("10.65.0.%d", 11+i)}}}
		if w.name == "web" {
			port.FixedIPs = append(port.FixedIPs, ports.IP{IPAddress: "2001:db8:65::aff:fe41:11"})
		}
		if *w.as, err = d.plug(w.name, r.host, port, "tap-"+w.name); err != nil {
			return r, err
		}
	}
	if err := d.applyRouted(ctx); err != nil {
		return r, err
	}
	etcd, err := backend.Running(filepath.Join(d.lab.Dir, "server"))
	if err != nil {
		return r, err
	}
	if r.store, err = client.New(client.Options{Endpoints: etcd.Endpoints, CAFile: etcd.CAFile, CertFile: etcd.CertFile, KeyFile: etcd.KeyFile}); err != nil {
		return r, err
	}
	return r, d.lab.Join(ctx, r.host)
}

// applyRouted writes the objects as an operator would.
func (d *demo) applyRouted(ctx context.Context) error {
	file := filepath.Join(d.lab.Dir, "routed.yaml")
	if err := os.WriteFile(file, []byte(routedObjects), 0o600); err != nil {
		return err
	}
	heddle := func(ctx context.Context, verb string) error {
		_, err := d.lab.Ctl.Output(ctx, d.lab.Binary, "calico", verb, "-f", file, "--data", filepath.Join(d.lab.Dir, "server"))
		return err
	}
	if err := heddle(ctx, "apply"); err != nil {
		return err
	}
	d.undo.Add("objects of "+routedHost, func(ctx context.Context) error { return heddle(ctx, "delete") })
	return nil
}

func (d *demo) showPolicy(ctx context.Context, r *routed) {
	d.ask(ctx, "routed: TCP %s to %s:%d, which policy web allows", r.outside, r.web, allowedPort, "web answered")
	d.ask(ctx, "routed: TCP %s to %s:%d, default deny", r.outside, r.web, forbiddenPort, silence)
	d.ask(ctx, "routed: TCP %s to %s:%d, by labels: db takes what app says", r.app, r.db, allowedPort, "db answered")
	d.ask(ctx, "routed: TCP %s to %s:%d, by labels: web is not app", r.web, r.db, allowedPort, silence)
}

func (d *demo) showFloating(ctx context.Context, r *routed) {
	for _, from := range []*workload{r.outside, r.app, r.web} {
		d.check(fmt.Sprintf("routed: TCP %s to %s:%d, floats to web", from.Name, floatingIP, allowedPort), "web answered",
			func() (string, error) { return from.ask(ctx, floatingIP, allowedPort) })
	}
	askOutside := func(how, expected string, got func() (string, error)) {
		d.check(fmt.Sprintf("routed: TCP web to outside:%d%s", allowedPort, how), expected, got)
	}
	askOutside("", "outside answered", func() (string, error) { return r.web.ask(ctx, outsideIP, allowedPort) })
	// Answers to the floating address would reach web: only the check of its source stops it.
	askOutside(" from its floating address", silence, func() (string, error) {
		if err := r.web.NS.IP("addr add "+floatingIP+"/32 dev eth0", "route replace default via "+appsGateway+" src "+floatingIP); err != nil {
			return "", err
		}
		got, err := r.web.ask(ctx, outsideIP, allowedPort)
		return got, errors.Join(err, r.web.NS.IP("route replace default via "+appsGateway, "addr del "+floatingIP+"/32 dev eth0"))
	})
}

func (d *demo) showHostEndpoint(ctx context.Context, r *routed) {
	ask := func(what string, from *workload, port int, expected string) {
		d.check(fmt.Sprintf("routed: TCP %s to the host itself:%d, %s", from.Name, port, what), expected, func() (string, error) { return from.ask(ctx, routedIP, port) })
	}
	ask("host endpoint", r.outside, forbiddenPort, silence)
	ask("fail-safe", r.outside, sshPort, routedHost+" answered")
	ask("a workload", r.app, sshPort, silence)
}

// showPolicyChange adds and removes a policy while traffic flows.
func (d *demo) showPolicyChange(ctx context.Context, r *routed) error {
	udp, err := lab.StartUDPStream(ctx, r.outside.Workload, r.web.Workload, forbiddenPort)
	if err != nil {
		return err
	}
	defer udp.Close()
	key := calico.PolicyKey{Tier: "default", Policy: "drip"}
	port := []calico.Ports{{Low: forbiddenPort, High: forbiddenPort}}
	open := &calico.Policy{Selector: `role == "web"`, InboundRules: []calico.Rule{{Action: calico.Allow, Protocol: calico.ProtocolUDP, DstPorts: port}}}
	d.checkChange(ctx, fmt.Sprintf("routed: policy added, UDP outside to web:%d flows: it passes", forbiddenPort), inForce, func() error {
		_, err := r.store.Apply(ctx, key, open)
		return err
	}, udp.FlowsAfter)
	d.checkChange(ctx, "routed: policy removed: it stops", inForce, func() error { return r.store.Delete(ctx, key, 0) }, udp.StopsAfter)
	return nil
}

// showProfileLabels removes the label that app inherits from its profile.
func (d *demo) showProfileLabels(ctx context.Context, r *routed) {
	d.check("routed: profile app loses its label, TCP app to db:8080", silence, func() (string, error) {
		labels := calico.ProfileLabels{"role": "guest"}
		if _, err := r.store.Apply(ctx, calico.ProfileLabelsKey{Profile: "app"}, &labels); err != nil {
			return "", err
		}
		return r.app.askUntil(ctx, r.db.Address(false), allowedPort, silence)
	})
}

func (d *demo) showEndpointStatus(ctx context.Context, r *routed) {
	d.check("routed: status of web's endpoint in the store", calico.StatusUp, func() (got string, err error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		key := calico.WorkloadEndpointStatusKey{Host: routedHost, Orchestrator: "demo", Workload: "web", Endpoint: "eth0"}
		_ = netlab.Until(ctx, "status", func() (bool, error) { // what it was in the end is shown
			var status *calico.EndpointStatus
			if status, _, err = client.Get[*calico.EndpointStatus](ctx, r.store, key); err == nil {
				got = status.Status
			}
			return err == nil && got == calico.StatusUp, nil
		})
		return got, err
	})
}

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/dns"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/policies"
	qosrules "github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/rbacpolicies"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// api measures an idle server: ports made by one client, by sixteen, and in bulk, up to 10,000;
// then the list of all, and the server's memory.
func (b *bench) api(ctx context.Context) error {
	return b.withLab(ctx, func(l *lab.Lab) error {
		c, err := newAPIClient(ctx, l)
		if err != nil {
			return err
		}
		if err := b.makePorts(ctx, c); err != nil {
			return err
		}
		if err := b.listPorts(ctx, c); err != nil {
			return err
		}
		now, most, err := residentMB(l.Server.PID())
		if err != nil {
			return err
		}
		b.add(measure{Name: fmt.Sprintf("server's memory at %d ports, etcd included", c.made.Load()), Got: now, Unit: "MB", Goal: atMost(400), Beside: fmt.Sprintf("most at any time %.0f MB", most)})
		return nil
	})
}

// apiClient calls the Neutron API at little cost, since it shares the machine with the server.
type apiClient struct {
	http  http.Client
	url   string // of the ports
	token string
	port  string // body of a port to make
	named string // of one on a network shared by RBAC, with a QoS policy and, for %d, a name of its own
	made  atomic.Int64
}

const apiClients = 16

func newAPIClient(ctx context.Context, l *lab.Lab) (*apiClient, error) {
	t, err := l.NewTenant(ctx, "bench", &lab.UndoList{})
	if err != nil {
		return nil, err
	}
	n, err := t.Network(ctx, "bench", "10.0.0.0/16", "")
	if err != nil {
		return nil, err
	}
	group, err := tenRules(ctx, t, "bench", rules.CreateOpts{Protocol: rules.ProtocolTCP}, rules.CreateOpts{Protocol: rules.ProtocolUDP})
	if err != nil {
		return nil, err
	}
	if err := unlimited(ctx, t, n.ProjectID); err != nil {
		return nil, err
	}
	port, err := json.Marshal(map[string]any{"network_id": n.ID, "security_groups": []string{group}})
	if err != nil {
		return nil, err
	}
	named, err := namedPort(ctx, t, n.ProjectID, group)
	if err != nil {
		return nil, err
	}
	return &apiClient{
		http:  http.Client{Transport: &http.Transport{DialContext: lab.DialIn(l.Ctl), MaxIdleConnsPerHost: apiClients}},
		url:   t.API.ServiceURL("ports"),
		token: t.API.Token(), port: string(port), named: named,
	}, nil
}

// namedPort returns the body of a port with a name, on a network and with a QoS policy that an
// admin shares with the project.
func namedPort(ctx context.Context, t *lab.Tenant, project, group string) (string, error) {
	opts := dns.NetworkCreateOptsExt{CreateOptsBuilder: networks.CreateOpts{Name: "shared"}, DNSDomain: "bench.example.org."}
	n, err := networks.Create(ctx, t.Admin, opts).Extract()
	if err != nil {
		return "", fmt.Errorf("network to be shared: %w", err)
	}
	if _, err := subnets.Create(ctx, t.Admin, subnets.CreateOpts{NetworkID: n.ID, CIDR: "10.1.0.0/16", IPVersion: gophercloud.IPv4}).Extract(); err != nil {
		return "", fmt.Errorf("its subnet: %w", err)
	}
	policy, err := policies.Create(ctx, t.Admin, policies.CreateOpts{Name: "shared"}).Extract()
	if err != nil {
		return "", fmt.Errorf("QoS policy: %w", err)
	}
	if _, err := qosrules.CreateBandwidthLimitRule(ctx, t.Admin, policy.ID, qosrules.CreateBandwidthLimitRuleOpts{MaxKBps: 10_000}).ExtractBandwidthLimitRule(); err != nil {
		return "", fmt.Errorf("its bandwidth limit: %w", err)
	}
	for kind, id := range map[string]string{"network": n.ID, "qos_policy": policy.ID} {
		share := rbacpolicies.CreateOpts{Action: rbacpolicies.ActionAccessShared, ObjectType: kind, ObjectID: id, TargetTenant: project}
		if _, err := rbacpolicies.Create(ctx, t.Admin, share).Extract(); err != nil {
			return "", fmt.Errorf("share the %s: %w", kind, err)
		}
	}
	port, err := json.Marshal(map[string]any{"network_id": n.ID, "security_groups": []string{group}, "qos_policy_id": policy.ID, "dns_name": "m%d"})
	return string(port), err
}

// call sends a request and returns the answer's body if it has the status.
func (c *apiClient) call(ctx context.Context, method string, body []byte, status int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Auth-Token", c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != status {
		err = fmt.Errorf("%s %s: %s: %.300s", method, c.url, res.Status, answer)
	}
	return answer, err
}

// create makes n ports with a body, in which %d stands for a number of each port's own, by several
// clients, one port a call, and returns the rate.
func (c *apiClient) create(ctx context.Context, port string, clients, n int) (perSecond float64, err error) {
	body := `{"port":` + port + `}`
	var left atomic.Int64
	left.Store(int64(n))
	errs := make([]error, clients)
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range clients {
		wait.Go(func() {
			for errs[i] == nil {
				next := left.Add(-1)
				if next < 0 {
					return
				}
				number := strconv.FormatInt(c.made.Load()+next, 10)
				_, errs[i] = c.call(ctx, http.MethodPost, []byte(strings.ReplaceAll(body, "%d", number)), http.StatusCreated)
			}
		})
	}
	wait.Wait()
	took := time.Since(begun)
	c.made.Add(int64(n))
	return float64(n) / took.Seconds(), errors.Join(errs...)
}

// createBulk makes n ports, bulkPorts a call, and returns the rate.
func (c *apiClient) createBulk(ctx context.Context, n int) (perSecond float64, err error) {
	begun := time.Now()
	for done := 0; done < n; {
		now := min(bulkPorts, n-done)
		body := `{"ports":[` + strings.TrimSuffix(strings.Repeat(c.port+",", now), ",") + `]}`
		if _, err := c.call(ctx, http.MethodPost, []byte(body), http.StatusCreated); err != nil {
			return 0, err
		}
		done += now
	}
	took := time.Since(begun)
	c.made.Add(int64(n))
	return float64(n) / took.Seconds(), nil
}

// makePorts makes ports in all three ways in each round, so that all meet a store of the same size.
func (b *bench) makePorts(ctx context.Context, c *apiClient) error {
	all := b.pick(10_000, 400)
	single, parallel := all*8/100/b.rounds, all*24/100/b.rounds
	var alone, together, named, bulk []float64
	for round := range b.rounds {
		b.logf("round %d: %d ports by one client, twice %d by %d, and more in bulk", round+1, single, parallel, apiClients)
		for _, way := range []struct {
			to  *[]float64
			run func() (float64, error)
		}{
			{&alone, func() (float64, error) { return c.create(ctx, c.port, 1, single) }},
			{&together, func() (float64, error) { return c.create(ctx, c.port, apiClients, parallel) }},
			{&named, func() (float64, error) { return c.create(ctx, c.named, apiClients, parallel) }},
			{&bulk, func() (float64, error) { return c.createBulk(ctx, all*(round+1)/b.rounds-int(c.made.Load())) }},
		} {
			rate, err := way.run()
			if err != nil {
				return err
			}
			*way.to = append(*way.to, rate)
		}
	}
	sync, err := syncTime(b.dir)
	if err != nil {
		return err
	}
	b.add(measure{Name: "ports made by one client, with a group of ten rules", Got: netlab.Median(alone), Unit: "/s", Goal: atLeast(300),
		Beside: fmt.Sprintf("the disk makes a page durable in %.2f ms", millis(sync))})
	b.add(measure{Name: fmt.Sprintf("ports made by %d clients", apiClients), Got: netlab.Median(together), Unit: "/s", Goal: atLeast(800)})
	b.add(measure{Name: "the same, shared by RBAC, with QoS and DNS names", Got: netlab.Median(named), Unit: "/s", Goal: atLeast(800)})
	b.add(measure{Name: fmt.Sprintf("ports made in bulk, %d a call", bulkPorts), Got: netlab.Median(bulk), Unit: "/s", Goal: atLeast(1000)})
	return nil
}

// listPorts reads all ports several times.
func (b *bench) listPorts(ctx context.Context, c *apiClient) error {
	var took []time.Duration
	var size int
	for range 2*b.rounds + 1 {
		begun := time.Now()
		body, err := c.call(ctx, http.MethodGet, nil, http.StatusOK)
		if err != nil {
			return err
		}
		took = append(took, time.Since(begun))
		var answer struct{ Ports []json.RawMessage }
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		if int64(len(answer.Ports)) != c.made.Load() {
			return fmt.Errorf("the list has %d ports, %d were made", len(answer.Ports), c.made.Load())
		}
		size = len(body)
	}
	b.add(measure{Name: fmt.Sprintf("list of %d ports", c.made.Load()), Got: millis(netlab.Median(took)), Unit: "ms", Goal: atMost(300), Beside: fmt.Sprintf("%.1f MB to the last byte", float64(size)/1e6)})
	return nil
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/store/backend"
)

// connected returns a client of an etcd that lives as long as the example.
func connected() (c *client.Client, end func()) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		log.Fatal(err)
	}
	s, err := backend.Open(context.Background(), backend.Options{Embedded: &backend.Embedded{DataDir: dir, Listen: "127.0.0.1:0", NoFsync: true}})
	if err != nil {
		log.Fatal(err)
	}
	if c, err = client.New(client.Options{Endpoints: []string{s.Endpoint()}}); err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		s.Close()
		os.RemoveAll(dir)
	}
}

func Example() {
	c, end := connected() // client.New(client.Options{Endpoints: []string{"https://etcd.example:2379"}, CAFile: …})
	defer end()
	ctx := context.Background()

	// A profile that lets the web in, and an endpoint that has it.
	tcp := calico.Rule{Action: calico.Allow, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}}}
	rules := &calico.ProfileRules{InboundRules: []calico.Rule{tcp}, OutboundRules: []calico.Rule{{Action: calico.Allow}}}
	if _, err := c.ApplyProfile(ctx, client.Profile{ID: "web", Rules: rules}); err != nil {
		log.Fatal(err)
	}
	key := calico.WorkloadEndpointKey{Host: "host-1", Orchestrator: "docker", Workload: "shop", Endpoint: "eth0"}
	_, err := c.Create(ctx, key, &calico.WorkloadEndpoint{
		State:      calico.Active,
		Name:       "cali1",
		ProfileIDs: []string{"web"},
		IPv4Nets:   []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
		Labels:     map[string]string{"role": "web"},
	})
	if err != nil {
		log.Fatal(err)
	}

	// Read, change, write; another writer's change in between is not lost.
	for {
		endpoint, revision, err := client.Get[*calico.WorkloadEndpoint](ctx, c, key)
		if err != nil {
			log.Fatal(err)
		}
		endpoint.Labels["tested"] = "yes"
		if _, err = c.Update(ctx, key, endpoint, revision); errors.Is(err, client.ErrConflict) {
			continue
		} else if err != nil {
			log.Fatal(err)
		}
		break
	}

	// All endpoints of a host.
	snapshot, err := c.List(ctx, calico.WorkloadEndpointKey{Host: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	for key, endpoint := range client.All[*calico.WorkloadEndpoint](snapshot) {
		fmt.Println(key.(calico.WorkloadEndpointKey).Workload, endpoint.IPv4Nets, endpoint.Labels)
	}
	// Output: shop [10.0.0.1/32] map[role:web tested:yes]
}

func ExampleClient_Commit() {
	c, end := connected()
	defer end()
	ctx := context.Background()

	// A tier and its first policy come together or not at all, and only while there is no pool.
	order := 10.0
	ops := []client.Op{
		client.OpCreate(calico.TierKey{Tier: "security"}, &calico.Tier{Order: &order}),
		client.OpCreate(calico.PolicyKey{Tier: "security", Policy: "no-telnet"}, &calico.Policy{
			Selector:      "all()",
			InboundRules:  []calico.Rule{{Action: calico.Deny, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 23, High: 23}}}, {Action: calico.NextTier}},
			OutboundRules: []calico.Rule{{Action: calico.NextTier}},
		}),
		client.OpNone(calico.PoolKey{}),
	}
	if _, err := c.Commit(ctx, ops...); err != nil {
		log.Fatal(err)
	}
	_, err := c.Commit(ctx, ops...)
	var fault *client.KeyError
	fmt.Println(errors.Is(err, client.ErrExists), errors.As(err, &fault) && fault.Key == calico.TierKey{Tier: "security"})
	// Output: true true
}

func ExampleClient_Watch() {
	c, end := connected()
	defer end()
	ctx := context.Background()

	snapshot, err := c.List(ctx, calico.PoolKey{})
	if err != nil {
		log.Fatal(err)
	}
	pool := calico.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/16")}
	if _, err := c.Create(ctx, pool, &calico.Pool{CIDR: pool.CIDR, IPAM: true}); err != nil {
		log.Fatal(err)
	}
	if err := c.Delete(ctx, pool, 0); err != nil {
		log.Fatal(err)
	}
	// What has happened since the snapshot, and then whatever happens, until the context ends.
	for event, err := range c.Watch(ctx, snapshot) {
		switch {
		case err != nil:
			log.Fatal(err)
		case event.Err != nil:
			fmt.Println("cannot be read:", event.Path, event.Err)
		case event.Deleted:
			fmt.Println("deleted:", event.Path)
			return
		default:
			fmt.Println("put:", event.Object.(*calico.Pool).CIDR)
		}
	}
	// Output:
	// put: 10.0.0.0/16
	// deleted: /calico/v1/ipam/v4/pool/10.0.0.0-16
}

package ipam_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
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
	c, end := connected()
	defer end()
	ctx := context.Background()
	for _, cidr := range []string{"10.0.0.0/24", "fd00::/120"} {
		p := netip.MustParsePrefix(cidr)
		if _, err := c.Create(ctx, calico.PoolKey{CIDR: p}, &calico.Pool{CIDR: p, IPAM: true}); err != nil {
			log.Fatal(err)
		}
	}
	addresses, err := ipam.New(c, ipam.Options{Host: "host-1"})
	if err != nil {
		log.Fatal(err)
	}

	// An address of each family for a workload; what it is for can be asked later.
	ipv4, ipv6, err := addresses.AutoAssign(ctx, ipam.Request{Num4: 1, Num6: 1, Handle: "workload-7", Attributes: map[string]string{"rack": "01"}})
	if err != nil {
		log.Fatal(err)
	}
	attributes, err := addresses.GetAssignmentAttributes(ctx, ipv4[0])
	fmt.Println(len(ipv4), len(ipv6), attributes, err)

	// When the workload goes, all it had is free again.
	fmt.Println(addresses.ReleaseByHandle(ctx, "workload-7"))
	problems, err := addresses.Check(ctx)
	fmt.Println(problems, err)
	// Output:
	// 1 1 map[rack:01] <nil>
	// <nil>
	// [] <nil>
}

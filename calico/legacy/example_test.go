package legacy_test

import (
	"context"
	"fmt"
	"log"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/legacy"
)

// A program of 2015 puts an endpoint and the profile it names; the profile's reference count
// follows.
func ExampleWriter() {
	c, err := client.New(client.Options{Endpoints: []string{"https://etcd.example:2379"}, CAFile: "ca.crt"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, w := context.Background(), legacy.NewWriter(c)
	web := &legacy.Profile{
		Tags:  calico.ProfileTags{"web"},
		Rules: calico.ProfileRules{InboundRules: []calico.Rule{{Action: calico.Allow, Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}}}}},
	}
	key := calico.WorkloadEndpointKey{Host: "h1", Orchestrator: "docker", Workload: "shop", Endpoint: "eth0"}
	faults, err := w.PutEndpoint(ctx, key, &calico.WorkloadEndpoint{State: calico.Active, Name: "cali1", ProfileIDs: []string{"web"}}, web)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range faults {
		log.Print(f) // a count that was wrong before, and is left
	}
	if _, err := w.DeleteEndpoint(ctx, key); err != nil { // and the profile goes with it
		log.Fatal(err)
	}
}

// Both trees as one, change by change.
func ExampleMerger() {
	m := legacy.NewMerger()
	show := func(key calico.Key, object any) {
		for _, c := range m.Update(key, object).Changes {
			fmt.Println(c.Key.(calico.ProfileTagsKey).Profile, c.Object)
		}
	}
	show(calico.ProfileTagsKey{Profile: "web", Legacy: true}, "old tags")
	show(calico.ProfileTagsKey{Profile: "web"}, "new tags")
	show(calico.ProfileTagsKey{Profile: "web"}, nil)
	// Output:
	// web old tags
	// web new tags
	// web old tags
}

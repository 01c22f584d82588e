package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/calico"
)

var update = flag.Bool("update", false, "write the golden files anew")

// input is the upper part of a golden file: the options and what lies in etcd.
type input struct {
	Options Options
	Etcd    map[string]json.RawMessage
}

func defaults() Options {
	return Options{Dir: "/run/dhcp", Device: "ns-calico", InterfacePrefixes: []string{"tap"}, LeaseSeconds: 86400, Domain: "example.org", Advertise: true}
}

func (in input) objects(t testing.TB) (map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint, map[calico.DHCPSubnetKey]*calico.DHCPSubnet) {
	endpoints, subnets := map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint{}, map[calico.DHCPSubnetKey]*calico.DHCPSubnet{}
	for path, value := range in.Etcd {
		key, ok := calico.ParseKey(path)
		if !ok {
			t.Fatalf("%s is no key", path)
		}
		object, _ := calico.Decode(key, value)
		switch key := key.(type) {
		case calico.WorkloadEndpointKey:
			endpoints[key], _ = object.(*calico.WorkloadEndpoint)
		case calico.DHCPSubnetKey:
			subnets[key], _ = object.(*calico.DHCPSubnet)
		}
	}
	return endpoints, subnets
}

// text shows a plan.
func text(p *Plan) string {
	var b strings.Builder
	for _, g := range p.Gateways {
		fmt.Fprintf(&b, "gateway %s\n", g)
	}
	for _, a := range p.Arguments {
		fmt.Fprintf(&b, "%s\n", a)
	}
	if len(p.Resolver) > 0 {
		fmt.Fprintf(&b, "resolver %s\n", strings.Join(p.Resolver, "\n  "))
	}
	for _, name := range slices.SortedFunc(maps.Keys(p.Files), byReading) {
		fmt.Fprintf(&b, "file %s\n", name)
		for line := range strings.Lines(p.Files[name]) {
			fmt.Fprintf(&b, "  %s", line)
		}
	}
	for _, port := range p.Ports {
		fmt.Fprintf(&b, "port %s %s %s %s %v\n", keyText(port.Key), port.Interface, port.MAC, port.Name, port.Addresses)
		if port.Advertisement != nil {
			fmt.Fprintf(&b, "  advertise %+v\n", *port.Advertisement)
		}
	}
	for _, w := range p.Waiting {
		fmt.Fprintf(&b, "waiting %s: %s\n", keyText(w.Key), w.Reason)
	}
	for _, w := range p.Problems {
		fmt.Fprintf(&b, "problem %s: %s\n", keyText(w.Key), w.Reason)
	}
	return b.String()
}

const line = "\n----\n"

// TestGolden compares the plans of testdata; -update writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			above, below, _ := strings.Cut(string(content), line)
			got := text(planOfGolden(t, above))
			if *update {
				if err := os.WriteFile(file, []byte(above+line+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != below {
				t.Errorf("got:\n%s\nwant:\n%s", got, below)
			}
		})
	}
}

// planOfGolden makes the plan of a golden file's upper part.
func planOfGolden(t testing.TB, above string) *Plan {
	t.Helper()
	in := input{Options: defaults()}
	decoder := json.NewDecoder(strings.NewReader(above))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		t.Fatal(err)
	}
	if err := in.Options.Check(); err != nil {
		t.Fatal(err)
	}
	endpoints, subnets := in.objects(t)
	return New(in.Options, endpoints, subnets)
}

func goldenPlans(t testing.TB) map[string]*Plan {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Plan{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		above, _, _ := strings.Cut(string(content), line)
		all[file] = planOfGolden(t, above)
	}
	return all
}

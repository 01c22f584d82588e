package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
)

// bindings measures the memory of a binding, a connection with its member (services §14, row 7): in
// the agent's table, which is filled here, and in the kernel's copy, which is that of the agent.
func (b *bench) bindings(ctx context.Context, x *balancing) error {
	b.logf("memory of bindings")
	inAgent, err := bindingMemory(b.pick(1<<19, 1<<14))
	if err != nil {
		return err
	}
	inKernel, err := x.keptBinding(ctx, b.pick(5000, 1000))
	if err != nil {
		return err
	}
	b.add(measure{Name: "memory of a binding: agent and kernel's copy", Got: inAgent + inKernel, Unit: "bytes", Goal: atMost(400),
		Beside: fmt.Sprintf("%.1f + %.1f, as the kernel counts", inAgent, inKernel)})
	return nil
}

// bindingMemory returns the bytes that each of n bindings takes in the agent's table.
func bindingMemory(n int) (float64, error) {
	const host, port, router = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b", "00000000-0000-4000-8000-00000000000c"
	hosts := []string{host}
	e := flow.NATEntry{
		NATKey:     flow.NATKey{Kind: flow.ForwardDNAT, Dst: netip.MustParseAddr("203.0.113.80"), DstPort: vipPort, Proto: 6, Device: router},
		NATBinding: flow.NATBinding{Addr: netip.MustParseAddr("10.0.2.1"), Port: vipPort},
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := flowstate.NewTranslations(flowstate.TranslationOptions{Max: 2 * n})
	for i := range n {
		e.Src, e.SrcPort = netip.AddrFrom4([4]byte{10, 1, byte(i >> 24), byte(i >> 16)}), uint16(i)
		table.Add([]flow.NATEntry{e}, port, hosts, 0)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := table.Stats().Entries; got != n {
		return 0, fmt.Errorf("the agent's table holds %d of %d bindings", got, n)
	}
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n), nil
}

// keptBinding returns the bytes that a binding takes in the first host's kernel, if its table is
// full: from what n more add to it. They are of a client that had none, since a connection from a
// port that had one before has the same binding.
func (x *balancing) keptBinding(ctx context.Context, n int) (float64, error) {
	client, err := x.outsider(ctx, "bound", x.external.ID, "192.0.2.103", x.group)
	if err != nil {
		return 0, err
	}
	fresh := x.v1
	fresh.Client = client.NS
	if err := connected(ctx, fresh); err != nil {
		return 0, err
	}
	before, err := x.keptTable(ctx)
	if err != nil {
		return 0, err
	}
	if _, _, err := fresh.Connects(n); err != nil {
		return 0, err
	}
	after, err := x.keptTable(ctx)
	if err != nil {
		return 0, err
	}
	if after.entries <= before.entries {
		return 0, fmt.Errorf("%d connections made %.0f bindings %.0f", n, before.entries, after.entries)
	}
	each := (after.bytes - before.bytes) / (after.entries - before.entries)
	return (after.bytes + each*(after.max-after.entries)) / after.max, nil
}

// keptTable is the kernel's table of bindings.
type keptTable struct{ entries, max, bytes float64 }

// keptTable reads the size of the table on the first host.
func (x *balancing) keptTable(ctx context.Context) (t keptTable, err error) {
	if t.entries, err = metric(ctx, x.h1.NS, "heddle_overlay_translations", ""); err != nil {
		return t, err
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", x.h1.Agent.PID()))
	if err != nil {
		return t, err
	}
	for _, f := range files {
		fields, err := fdFields(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return t, err
		}
		if fields["key_size"] == flowstate.TranslationSize && fields["value_size"] == 1 {
			t.max, t.bytes = float64(fields["max_entries"]), float64(fields["memlock"])
			return t, nil
		}
	}
	return t, fmt.Errorf("agent of %s has no table of bindings in the kernel", x.h1.Name)
}

// fdFields returns the decimal fields of a file in /proc/PID/fdinfo.
func fdFields(file string) (map[string]int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fields := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			fields[name] = n
		}
	}
	return fields, lines.Err()
}

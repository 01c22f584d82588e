package netlab

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Counters returns the kernel's protocol counters of the namespace by nstat's names:
// TcpInCsumErrors, IpInReceives…
func (n *Namespace) Counters(ctx context.Context) (map[string]int, error) {
	out, err := n.Output(ctx, "nstat", "-asz")
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "#kernel" {
			continue
		}
		v, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("in namespace %s: nstat printed %q", n.Name, strings.TrimSpace(line))
		}
		all[fields[0]] = v
	}
	return all, nil
}

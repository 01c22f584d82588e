package hostnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Filters returns the names of the classic tc filters on the frames of a link, in words; those
// without a name by their kind.
func (l *Linux) Filters(link Link) (found []string, err error) {
	on, err := l.find(link.Name)
	if err != nil {
		return nil, err
	}
	for _, hook := range []struct {
		name   string
		parent uint32
	}{{"ingress", netlink.HANDLE_MIN_INGRESS}, {"egress", netlink.HANDLE_MIN_EGRESS}} {
		all, err := listWhole(func() ([]netlink.Filter, error) { return l.handle.FilterList(on, hook.parent) })
		if err != nil {
			return nil, wrap(err, "tc filters of link %s", link.Name)
		}
		for _, f := range all {
			name := f.Type()
			if program, ok := f.(*netlink.BpfFilter); ok && program.Name != "" {
				name = program.Name
			}
			found = append(found, fmt.Sprintf("tc filter %s at %s", name, hook.name))
		}
	}
	return found, nil
}

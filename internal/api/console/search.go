package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// mostFound bounds what a search answers with.
const mostFound = 20

// foundView is an object that a search has found.
type foundView struct {
	Kind   string `json:"kind"` // as in names of traces: port, network, router, security group, host
	ID     string `json:"id"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// searchAnswer is a list of what a search has found.
type searchAnswer struct {
	Found []foundView `json:"found"` // the first of them
	Total int         `json:"total"`
}

// search answers with objects whose name, id or address begins with the parameter q, those with
// the shortest name first.
func (c *console) search(r *http.Request) (*searchAnswer, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	found := find(snap, strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q"))))
	return &searchAnswer{found[:min(len(found), mostFound)], len(found)}, nil
}

func find(snap *records.Snap, text string) []foundView {
	found := []foundView{}
	if text == "" {
		return found
	}
	add := func(kind, id, name, detail string, more ...string) {
		if slices.ContainsFunc(append(more, id, name), func(s string) bool { return strings.HasPrefix(strings.ToLower(s), text) }) {
			found = append(found, foundView{kind, id, name, detail})
		}
	}
	for h := range schema.Hosts.All(snap) {
		add("host", h.ID, h.Name, "")
	}
	for n := range schema.Networks.All(snap) {
		add("network", n.ID, n.Name, strings.Join(ranges(snap, n.ID), ", "))
	}
	for r := range schema.Routers.All(snap) {
		add("router", r.ID, r.Name, "")
	}
	for g := range schema.SecurityGroups.All(snap) {
		add("security group", g.ID, g.Name, "")
	}
	for p := range schema.Ports.All(snap) {
		if !ofMachine(p) {
			continue
		}
		keys := []string{p.MACAddress.String()}
		for _, ip := range p.FixedIPs {
			keys = append(keys, ip.IPAddress.String())
		}
		add("port", p.ID, portName(p), addressesOf(p), keys...)
	}
	for f := range schema.FloatingIPs.All(snap) {
		if f.PortID != "" {
			add("port", f.PortID, f.FloatingIPAddress.String(), "floating IP")
		}
	}
	slices.SortFunc(found, func(a, b foundView) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return found
}

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"heddle/internal/api"
	"heddle/internal/api/hosts"
	"heddle/internal/bgp"
	"heddle/internal/dhcp"
	"heddle/internal/hostnet"
	"heddle/internal/overlay"
	"heddle/internal/policy"
	xenagent "heddle/internal/xen/agent"
)

// agentRecord holds the settings of agents that ran on this host, for a cleanup without their configuration.
type agentRecord struct {
	Names []string `json:"names"` // of datapaths
	Roles []string `json:"roles"`
	OVSDB string   `json:"ovsdb,omitempty"`
}

func (c *agentConfig) recordFile() string { return filepath.Join(c.state, "agent.json") }

func (c *agentConfig) readRecord() (r agentRecord, known bool) {
	raw, err := os.ReadFile(c.recordFile())
	return r, err == nil && json.Unmarshal(raw, &r) == nil
}

// announcement is the name of a socket that says which process is an agent in this network namespace. What follows is its id.
const announcement = "agent-"

// announce records what this agent is, and lets a cleanup see that it runs until the result is closed. Without a record, as
// on a full disk, the agent works, and a cleanup looks for everything.
func (c *agentConfig) announce(log *slog.Logger) (io.Closer, error) {
	if err := c.record(); err != nil {
		log.Warn("cannot record what this agent is; agent --cleanup may need --name", "file", c.recordFile(), "err", err)
	}
	return hostnet.Alone(fmt.Sprint(announcement, os.Getpid()))
}

// record writes what this agent is beside what is recorded, if that is not in there yet.
func (c *agentConfig) record() error {
	r, _ := c.readRecord()
	r.Names = with(r.Names, c.name)
	for _, role := range c.roles() {
		r.Roles = with(r.Roles, role)
	}
	if c.xen.on {
		r.OVSDB = c.xen.ovsdb
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if before, err := os.ReadFile(c.recordFile()); err == nil && bytes.Equal(before, raw) {
		return nil
	}
	return api.WriteFile(c.recordFile(), raw)
}

func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

var announced = regexp.MustCompile(`@heddle-` + announcement + `(\d+)\b`)

// runningAgents returns the process ids of the agents in this network namespace.
func runningAgents() ([]string, error) {
	raw, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return nil, err
	}
	var pids []string
	for _, m := range announced.FindAllStringSubmatch(string(raw), -1) {
		pids = with(pids, m[1])
	}
	return pids, nil
}

// cleanUp takes away what the agents have made in this host's kernel, and prints what that was. It needs no configuration:
// what an agent was called and did is in the state directory, and without that everything that is recognisable goes.
func (c *agentConfig) cleanUp(out io.Writer) error {
	pids, err := runningAgents()
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("an agent runs here, process %s: stop it first (systemctl stop heddle-agent), or it makes all anew", strings.Join(pids, ", "))
	}
	record, known := c.readRecord()
	roles := record.Roles
	if !known {
		roles = []string{"overlay", "policy", "bgp", "dhcp", "xen"}
	}
	for _, role := range c.others() {
		roles = with(roles, role)
	}
	if c.overlayAsked && !c.overlay {
		roles = slices.DeleteFunc(roles, func(role string) bool { return role == "overlay" })
	} else {
		roles = with(roles, "overlay")
	}
	names := c.datapaths(record)
	before, err := findLeftovers(names)
	if err != nil {
		return err
	}
	var errs []error
	for _, role := range roles {
		errs = append(errs, c.cleanRole(role, names, record))
	}
	after, err := findLeftovers(names)
	removed := 0
	for _, what := range before {
		if !slices.Contains(after, what) {
			fmt.Fprintln(out, "removed", what)
			removed++
		}
	}
	if removed == 0 {
		fmt.Fprintf(out, "nothing of an agent found (%s)\n", strings.Join(roles, ", "))
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if err := os.Remove(c.recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// datapaths are the names under which agents may have kept programs and maps.
func (c *agentConfig) datapaths(record agentRecord) []string {
	if c.named {
		return []string{c.name}
	}
	names := record.Names
	if joined, err := hosts.Load(c.state); err == nil {
		names = with(names, joined.Name)
	}
	if c.name != "" {
		names = with(names, c.name)
	}
	return names
}

func (c *agentConfig) cleanRole(role string, names []string, record agentRecord) error {
	switch role {
	case "overlay":
		var errs []error
		for _, name := range names {
			errs = append(errs, overlay.Cleanup(overlay.Options{Datapath: name}))
		}
		return errors.Join(errs...)
	case "policy":
		return policy.Cleanup(nil)
	case "bgp":
		return bgp.Cleanup()
	case "dhcp":
		o, err := c.dhcp.options(c.name, c.state)
		if err != nil {
			return err
		}
		return dhcp.Cleanup(o)
	case "xen":
		ovsdb := c.xen.ovsdb
		if !c.xen.on {
			ovsdb = cmp.Or(record.OVSDB, ovsdb)
		}
		return xenagent.Cleanup(xenagent.Options{OVSDB: ovsdb})
	}
	return nil
}

// findLeftovers lists what there is that an agent may have made: each line is removed when it is not found after a cleanup.
func findLeftovers(names []string) ([]string, error) {
	var found []string
	for _, name := range names {
		dir := filepath.Join("/sys/fs/bpf/heddle", name)
		if _, err := os.Stat(dir); err == nil {
			found = append(found, "programs, maps and flows in "+dir)
		}
	}
	ns, err := hostnet.CurrentNamespace()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		return nil, err
	}
	defer net.Close()
	links, err := net.Links()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		found = append(found, "device "+l.Name)
	}
	routes, err := net.Routes()
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if !r.Kernel {
			found = append(found, fmt.Sprintf("route %v on %s", r.Dst, cmp.Or(r.Link, "no device")))
		}
	}
	tables, err := policy.Tables(ns)
	if err != nil {
		return nil, err
	}
	for _, name := range tables {
		found = append(found, "nftables table "+name)
	}
	return found, nil
}

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
	"heddle/internal/hostnet"
	"heddle/internal/overlay"
	"heddle/internal/policy"
	"heddle/internal/services/plan"
	"heddle/internal/terminal"
	"heddle/internal/topology"
)

// agentRecord holds settings of agents that ran on this host, for a cleanup without flags.
type agentRecord struct {
	Names []string `json:"names"` // of datapaths
	Roles []string `json:"roles"`
	OVSDB string   `json:"ovsdb,omitempty"`
}

// recordName is the name of the record's file in the state directory.
const recordName = "agent.json"

func (c *agentConfig) recordFile() string { return filepath.Join(c.state, recordName) }

func (c *agentConfig) readRecord() (r agentRecord, known bool) {
	raw, err := os.ReadFile(c.recordFile())
	return r, err == nil && json.Unmarshal(raw, &r) == nil
}

// announcement begins the name of a socket by which an agent shows itself in this network
// namespace. The process id follows.
const announcement = "agent-"

// announce records this agent's settings and, until closed is called, shows that it runs. It fails
// while another agent runs in one of its roles. If the settings cannot be recorded, as on a full
// disk, the agent still starts, and a cleanup tries every role.
func (c *agentConfig) announce(log *slog.Logger) (closed func(), err error) {
	free, err := holdRoles(c.roles())
	if err != nil {
		return nil, err
	}
	if err := c.record(); err != nil {
		log.Warn("cannot record this agent's settings; agent --cleanup may need --name", "file", c.recordFile(), "err", err)
	}
	name, err := hostnet.Alone(fmt.Sprint(announcement, os.Getpid()))
	if err != nil {
		free()
		return nil, err
	}
	return func() {
		_ = name.Close()
		free()
	}, nil
}

// holdRoles keeps agents out of roles until free is called. It fails while one runs in one of them.
func holdRoles(roles []string) (free func(), err error) {
	var names []io.Closer
	free = func() {
		for _, name := range names {
			_ = name.Close()
		}
	}
	for _, role := range roles {
		name, err := hostnet.Alone("role-" + role)
		if err != nil {
			free()
			return nil, secondAgent(role, err)
		}
		names = append(names, name)
	}
	return free, nil
}

// secondAgent returns the error of an agent that cannot run beside another one.
func secondAgent(role string, err error) error {
	pids, _ := runningAgents()
	if len(pids) == 0 { // it has ended, or begins
		return err
	}
	return fmt.Errorf("another agent with the role %s runs on this host, process %s: stop it first (systemctl stop heddle-agent)", role, strings.Join(pids, ", "))
}

// record adds this agent's settings to the record, if they are not in it yet.
func (c *agentConfig) record() error {
	r, _ := c.readRecord()
	r.Names = addOnce(r.Names, c.name)
	for _, role := range c.roles() {
		r.Roles = addOnce(r.Roles, role)
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

func addOnce(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

var announced = regexp.MustCompile(`@heddle-` + announcement + `(\d+)\b`)

// runningAgents returns the process ids of the agents in this network namespace. It may miss one
// while other sockets come and go: whether an agent runs, its roles' names tell.
func runningAgents() ([]string, error) {
	raw, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return nil, err
	}
	var pids []string
	for _, m := range announced.FindAllStringSubmatch(string(raw), -1) {
		if ours, err := hostnet.Held(announcement + m[1]); ours && err == nil { // other users may have such sockets
			pids = addOnce(pids, m[1])
		}
	}
	return pids, nil
}

// cleanUp removes and prints what the agents have made in this host's kernel, and what it leaves of
// datapaths with other names. It follows the record in the state directory; without one it tries
// every role.
func (c *agentConfig) cleanUp(out io.Writer) error {
	var all []string
	for _, r := range c.allRoles() {
		all = append(all, r.name)
	}
	free, err := holdRoles(all) // nor does an agent begin meanwhile
	if err != nil {
		return fmt.Errorf("it would restore everything: %w", err)
	}
	defer free()
	record, known := c.readRecord()
	var roles []role
	var roleNames []string
	for _, r := range c.allRoles() {
		if r.isCleaned(c.overlayAsked, record, known) {
			roles, roleNames = append(roles, r), append(roleNames, r.name)
		}
	}
	names := c.datapaths(record)
	before, err := findLeftovers(names)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range roles {
		errs = append(errs, r.clean(names, record))
	}
	after, err := findLeftovers(names)
	removed := 0
	for _, what := range before {
		if !slices.Contains(after, what) {
			terminal.Fprintln(out, "removed", what)
			removed++
		}
	}
	if removed == 0 {
		terminal.Fprintf(out, "nothing of an agent found (%s)\n", strings.Join(roleNames, ", "))
	}
	for _, name := range otherDatapaths(names) {
		terminal.Fprintf(out, "left programs, maps and flows in %s, of another name than %s: --name %s removes them\n", filepath.Join(pinRoot, name), strings.Join(names, ", "), name)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if err := os.Remove(c.recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// isCleaned reports whether a cleanup removes what a role made: a role in the record, any without
// one, and those that flags ask for.
func (r role) isCleaned(overlayAsked bool, record agentRecord, known bool) bool {
	if r.name == "overlay" && overlayAsked {
		return r.on
	}
	asked := r.on && r.name != "overlay" // which is on by default
	return asked || !known || slices.Contains(record.Roles, r.name)
}

// hadAgent reports whether a directory has been the state directory of an agent. A cleanup removes
// the record, and leaves the id or the credentials.
func hadAgent(dir string) bool {
	for _, file := range []string{filepath.Join(dir, recordName), filepath.Join(dir, hostIDName)} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	for _, joined := range []string{dir, poolState(dir)} {
		if _, err := hosts.Load(joined); !errors.Is(err, hosts.ErrNotJoined) {
			return true
		}
	}
	return false
}

// pinRoot is the directory of what datapaths have pinned, in directories with their names.
const pinRoot = "/sys/fs/bpf/heddle"

// otherDatapaths returns the names of datapaths that have pinned something, but for these.
func otherDatapaths(names []string) (others []string) {
	entries, _ := os.ReadDir(pinRoot) // without it there are none
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			others = append(others, e.Name())
		}
	}
	return others
}

// datapaths returns the names under which agents may have pinned programs and maps.
func (c *agentConfig) datapaths(record agentRecord) []string {
	if c.named {
		return []string{c.name}
	}
	names := record.Names
	if joined, err := hosts.Load(c.state); err == nil {
		names = addOnce(names, joined.Name)
	}
	if c.name != "" {
		names = addOnce(names, c.name)
	}
	return names
}

// findLeftovers lists what agents may have made. What a second call after the cleanup does not list
// was removed.
func findLeftovers(names []string) ([]string, error) {
	var found []string
	for _, name := range names {
		dir := filepath.Join(pinRoot, name)
		if _, err := os.Stat(dir); err == nil {
			found = append(found, "programs, maps and flows in "+dir)
		}
	}
	net, err := hostnet.Here()
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
	for _, kind := range []string{topology.ContainerHAProxy, topology.ContainerBGP} {
		names, err := hostnet.NamedNamespaces(plan.NamespacePrefix(kind))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found = append(found, "service container in namespace "+name)
		}
	}
	services, err := hostnet.NamedNamespaces(overlay.MetadataNamespacePrefix)
	if err != nil {
		return nil, err
	}
	for _, name := range services {
		found = append(found, "metadata service in namespace "+name)
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
	tables, err := policy.Tables(net.Namespace())
	if err != nil {
		return nil, err
	}
	for _, name := range tables {
		found = append(found, "nftables table "+name)
	}
	return found, nil
}

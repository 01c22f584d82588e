package plan

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
)

// Urgency is the urgency of a restart of dnsmasq.
type Urgency int

const (
	Never Urgency = iota // it need not
	Soon                 // within a short while, in which more reasons may gather: no machine waits for it
	Now                  // a machine waits
)

func (u Urgency) String() string { return [...]string{"never", "soon", "now"}[u] }

// Step is the least that turns the running state into a plan: each file of Write is written
// elsewhere and moved in, in this order; those of Remove are removed; then dnsmasq is restarted as
// Restart demands, with [Plan.Leases] in between.
type Step struct {
	Write   []File
	Remove  []string // paths below Options.Dir
	Restart Urgency
	Reasons []string // for the restart, for people
	Stop    bool     // no port is served any longer: dnsmasq ends, and the device goes
}

// File is a file of dnsmasq: its path below Options.Dir, and its content.
type File struct{ Path, Content string }

// Nothing reports whether there is nothing to do.
func (s Step) Nothing() bool {
	return len(s.Write) == 0 && len(s.Remove) == 0 && s.Restart == Never && !s.Stop
}

// Running is the state of a running dnsmasq. It reads a file that is moved in, but until a restart
// it forgets nothing: neither the lines of a file that has changed or gone, nor that a machine had
// an IPv4 address, which no second line may then have. So the step to a plan depends on all that it
// has read.
type Running struct {
	arguments []string
	files     map[string]string // as they lie there
	hosts     hosts
	parsed    parsedFiles
	options   map[string]string // newest value by tag and option
}

// Started returns the state of a dnsmasq just started with a plan.
func Started(p *Plan) *Running { return Found(p.Arguments, p.Files) }

// Found returns the state of a dnsmasq found running, with its arguments and the files that are
// there. Without arguments, none runs.
func Found(arguments []string, files map[string]string) *Running {
	r := &Running{arguments: slices.Clone(arguments), files: maps.Clone(files), hosts: newHosts(), parsed: parsedFiles{}, options: readOptions(files)}
	if r.files == nil {
		r.files = map[string]string{}
	}
	for mac, h := range r.parsed.read(files) {
		r.hosts.take(mac, h)
	}
	return r
}

// Step returns the step from the running state to the plan, and counts the files as written and
// removed. It demands a restart again until one has taken place, after which [Started] goes on.
func (r *Running) Step(p *Plan) Step {
	s := Step{}
	for name := range r.files {
		if _, wanted := p.Files[name]; !wanted {
			s.Remove = append(s.Remove, name)
		}
	}
	for name, content := range p.Files {
		if before, there := r.files[name]; !there || content != before {
			s.Write = append(s.Write, File{name, content})
		}
	}
	slices.SortFunc(s.Remove, byReading)
	slices.SortFunc(s.Write, func(a, b File) int { return byReading(a.Path, b.Path) })
	r.files = maps.Clone(p.Files)
	if len(p.Arguments) == 0 {
		s.Stop = len(r.arguments) > 0
		*r = *Found(nil, nil)
		return s
	}
	s.because(changedArguments(r.arguments, p.Arguments))
	s.because(r.changedHosts(p))
	s.because(r.changedOptions(p))
	return s
}

// because adds reasons for a restart.
func (s *Step) because(list []reason) {
	for _, r := range list {
		s.Restart = max(s.Restart, r.urgency)
		s.Reasons = append(s.Reasons, r.text)
	}
}

type reason struct {
	urgency Urgency
	text    string
}

// byReading orders files so that a machine's options and names come before its host line.
func byReading(a, b string) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func rank(name string) int {
	return slices.Index([]string{OptionsDir, NamesDir, HostsDir}, path.Dir(name))
}

// changedArguments returns the differences. A range that is no longer needed, the number of leases,
// and options of a subnet, which machines receive with their next lease, can wait.
func changedArguments(before, after []string) []reason {
	if slices.Equal(before, after) {
		return nil
	}
	if len(before) == 0 {
		return []reason{{Now, "is not running"}}
	}
	urgency, text := Soon, []string(nil)
	for _, a := range before {
		if !slices.Contains(after, a) {
			urgency = max(urgency, urgencyOf(a, "--dhcp-range="))
			text = append(text, "without "+a)
		}
	}
	for _, a := range after {
		if !slices.Contains(before, a) {
			urgency = max(urgency, urgencyOf(a))
			text = append(text, "with "+a)
		}
	}
	return []reason{{urgency, "arguments: " + cmp.Or(strings.Join(text, ", "), "in another order")}}
}

func urgencyOf(argument string, canWait ...string) Urgency {
	for _, head := range append(canWait, "--dhcp-lease-max=", forcedOption+"tag:") {
		if strings.HasPrefix(argument, head) {
			return Soon
		}
	}
	return Now
}

// changedOptions takes in the options of the plan. The last line of an option counts, so only a
// removed option demands a restart.
func (r *Running) changedOptions(p *Plan) (list []reason) {
	wanted := readOptions(p.Files)
	for _, option := range slices.Sorted(maps.Keys(r.options)) {
		if _, ok := wanted[option]; !ok {
			list = append(list, reason{Soon, "option " + option + " is gone"})
		}
	}
	maps.Copy(r.options, wanted)
	return list
}

// readOptions returns the value of each option by its tag and name.
func readOptions(files map[string]string) map[string]string {
	all := map[string]string{}
	for name, content := range files {
		if !strings.HasPrefix(name, OptionsDir+"/") {
			continue
		}
		for line := range strings.Lines(content) {
			tag, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ",")
			option, value, _ := strings.Cut(rest, ",")
			all[tag+","+option] = value
		}
	}
	return all
}

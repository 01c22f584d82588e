package plan

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
)

// Urgency says how soon dnsmasq has to start again.
type Urgency int

// The urgencies.
const (
	Never Urgency = iota // it need not
	Soon                 // within a short while, in which more reasons may gather: no machine waits for it
	Now                  // a machine waits
)

func (u Urgency) String() string { return [...]string{"never", "soon", "now"}[u] }

// Step is the least that turns what runs into a plan: each file of Write written elsewhere and moved in, in this order;
// those of Remove removed; then dnsmasq started again as Restart says, with [Plan.Leases] in between.
type Step struct {
	Write   []File
	Remove  []string // paths below Options.Dir
	Restart Urgency
	Reasons []string // for the restart, for people
	Stop    bool     // nobody is served any longer: dnsmasq ends, and the device goes
}

// File is a file of dnsmasq: its path below Options.Dir, and its content.
type File struct{ Path, Content string }

// Nothing says that there is nothing to do.
func (s Step) Nothing() bool {
	return len(s.Write) == 0 && len(s.Remove) == 0 && s.Restart == Never && !s.Stop
}

// Running is what a running dnsmasq knows. It reads a file that is moved in, but forgets nothing of what it has read until
// it is started again: neither the lines of a file that has changed or gone, nor that a machine had an IPv4 address, which
// no second line may then have. So what a change asks for depends on all that it has read.
type Running struct {
	arguments []string
	files     map[string]string // as they lie there
	hosts     hosts
	parsed    parsedFiles
	options   map[string]string // newest value by tag and option
}

// Started is a dnsmasq that has just been started with the arguments and files of a plan.
func Started(p *Plan) *Running { return Found(p.Arguments, p.Files) }

// Found is a dnsmasq that was found running, with its arguments and the files that lie there. Without arguments, none runs.
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

// Step says what turns what runs into the plan, and counts the files as written and removed. A restart that it asks for it
// asks for again until one has been, after which [Started] goes on.
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

// byReading orders files so that what a machine is told lies there before the machine is served.
func byReading(a, b string) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func rank(name string) int {
	return slices.Index([]string{OptionsDir, NamesDir, HostsDir}, path.Dir(name))
}

// changedArguments finds the difference. A range that is no longer needed, the number of leases, and options of a subnet,
// which machines are told with their next lease, can wait.
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

// changedOptions takes the options of the plan. The newest line of an option counts, so only one that is gone asks for a
// restart.
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

// readOptions finds the value of each option by its tag and name.
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

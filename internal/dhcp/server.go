package dhcp

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heddle/calico"
	"heddle/internal/dhcp/plan"
)

// gather delays a restart that no machine waits for, so that more reasons may come in.
const gather = time.Second

var addresses = kind{subject: "dnsmasq", adopted: "adopted the dnsmasq that runs", argument: leaseArgument,
	pidFile: pidFile, logFile: logFile, probeFile: filepath.Join(plan.HostsDir, probeFile), level: line.level, overlap: true}

// server keeps the dnsmasq that gives addresses by the plan: its files, its leases and, by its
// runner, its instances.
type server struct {
	*runner
	retiring sync.WaitGroup // instances that another one has taken over from

	running *plan.Running             // what the newest instance has read
	holders map[netip.Addr]calico.MAC // of addresses, by the files that the newest instance first read
	inUse   map[string]*process       // by lease file
	missed  string                    // leases that instances gave too late for the serving one to have them
	starts  int                       // of instances, in all
}

func newServer(o Options) *server {
	s := &server{runner: newRunner(addresses, o), inUse: map[string]*process{}}
	s.owner = s
	return s
}

// open makes the state directory and finds what an earlier agent has left.
func (s *server) open() error {
	if err := makeDirectories(s.dir, s.user.gid, s.log); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := s.runner.open(); err != nil {
		return err
	}
	files, err := readFiles(s.dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	s.holders, s.running = plan.Holders(files), plan.Found(nil, files)
	if s.serving == nil {
		return nil
	}
	s.inUse[s.serving.file] = s.serving
	s.running = plan.Found(s.serving.args, files)
	if s.foreign() {
		theirs, err := readFiles(s.serving.stateDir())
		s.note(err, "read who has which address")
		s.holders = plan.Holders(theirs)
		return nil
	}
	if _, err := os.Stat(s.path(changing)); !errors.Is(err, fs.ErrNotExist) {
		s.restart(time.Now()) // which an earlier agent has not finished
	}
	return nil
}

// ready reports whether the plan is served.
func (s *server) ready() bool {
	return s.plan != nil && (len(s.plan.Arguments) == 0 || s.serving != nil && s.next == nil && !s.stale)
}

// apply has the plan served, with the least disruption.
func (s *server) apply() error {
	s.wanted = len(s.plan.Arguments) > 0
	step := s.running.Step(s.plan)
	if step.Nothing() {
		return nil
	}
	fresh := make(map[string]string, len(step.Write)) // the holders of earlier files are known
	for _, f := range step.Write {
		fresh[f.Path] = f.Content
	}
	learn(s.holders, plan.Holders(fresh))
	if s.serving != nil && s.next != nil { // the one that serves reads the new files too
		s.keepFrom(s.serving, s.serving.holders)
		learn(s.serving.holders, plan.Holders(fresh))
	}
	var errs []error
	if step.Restart != plan.Never {
		errs = append(errs, os.WriteFile(s.path(changing), nil, 0o644))
	}
	for _, f := range step.Write {
		errs = append(errs, write(s.dir, f.Path, f.Content))
	}
	for _, f := range step.Remove {
		errs = append(errs, remove(s.path(f)))
	}
	switch {
	case step.Stop:
		errs = append(errs, s.stop(), remove(s.path(changing)))
		s.log.Info("no endpoint is served: dnsmasq ends")
	case step.Restart == plan.Now:
		s.log.Debug("restarting dnsmasq", "reasons", step.Reasons)
		s.restart(time.Now())
	case step.Restart == plan.Soon:
		s.restart(time.Now().Add(gather))
	}
	return errors.Join(errs...)
}

// start starts an instance that is to take over, with a lease file of its own.
func (s *server) start() (*process, error) {
	names := leaseFiles()
	free := slices.IndexFunc(names[:], func(name string) bool { return s.inUse[s.path(name)] == nil })
	if free < 0 {
		return nil, errors.New("those before it have not ended")
	}
	if err := write(s.dir, names[free], s.plan.Leases(s.lastLeases()+s.missed, s.holders, time.Now())); err != nil {
		return nil, err
	}
	if err := os.Chown(s.path(names[free]), int(s.user.uid), int(s.user.gid)); err != nil {
		return nil, err
	}
	if s.serving != nil {
		s.keepFrom(s.serving, s.holders)
	}
	p, err := s.spawn(names[free], s.plan.Arguments)
	if err != nil {
		return nil, err
	}
	s.starts++
	s.inUse[p.file] = p
	if s.serving != nil {
		s.serving.holders = s.holders
	}
	s.holders, s.running = plan.Holders(s.plan.Files), plan.Started(s.plan)
	return p, nil
}

// keepFrom keeps from an instance, which another will take over from, the requests of machines that
// have addresses which it knows to be held by others.
func (s *server) keepFrom(before *process, holders map[netip.Addr]calico.MAC) {
	if err := ignore(before, moved(holders, plan.Holders(s.plan.Files))); err != nil {
		s.log.Debug("cannot keep requests from the dnsmasq before", "pid", before.pid, "err", err)
	}
}

// learn adds holders of addresses whose holders are not known.
func learn(holders, fresh map[netip.Addr]calico.MAC) {
	for address, mac := range fresh {
		if _, known := holders[address]; !known {
			holders[address] = mac
		}
	}
}

// moved returns the machines that have an IPv4 address which another machine had.
func moved(before, now map[netip.Addr]calico.MAC) (machines []calico.MAC) {
	for address, mac := range now {
		if had, ok := before[address]; ok && had != mac && address.Is4() {
			machines = append(machines, mac)
		}
	}
	return machines
}

// lastLeases reads the lease file in use: that of the serving instance, else the newest.
func (s *server) lastLeases() string {
	if s.serving != nil {
		return s.leasesOf(s.serving)
	}
	var newest time.Time
	var text string
	for _, name := range leaseFiles() {
		info, err := os.Stat(s.path(name))
		if err != nil || info.ModTime().Before(newest) {
			continue
		}
		if raw, err := os.ReadFile(s.path(name)); err == nil && len(raw) > 0 {
			newest, text = info.ModTime(), string(raw)
		}
	}
	return text
}

func (s *server) leasesOf(p *process) string {
	raw, err := os.ReadFile(p.file)
	s.note(err, "read the leases")
	return string(raw)
}

// serves ends the instance before the one that now listens.
func (s *server) serves(before *process) {
	if err := makeRoom(s.serving); err != nil {
		s.log.Debug("cannot give dnsmasq room for many requests at once", "err", err)
	}
	if before != nil {
		s.retire(before)
	}
	s.keepPID(s.serving)
	s.log.Info("dnsmasq serves", "pid", s.serving.pid, "endpoints", len(s.plan.Ports))
	if s.missed = ""; !s.stale {
		s.note(remove(s.path(changing)), "note that the restart is over")
	}
}

// afterEnd finds the IPv6 leases that an instance gave after the lease file of its successor was
// written. The successor lacks them, and machines would lose them when they renew: another restart,
// which no machine waits for, brings them in.
func (s *server) afterEnd(p *process) {
	if p.holders == nil || s.serving == nil {
		return
	}
	s.missed += plan.MissingLeases(s.plan.Leases(s.leasesOf(p), p.holders, time.Now()), s.lastLeases()+s.missed)
	if s.missed != "" {
		s.log.Debug("restarting dnsmasq with leases that the one before gave last", "leases", s.missed)
		s.restart(time.Now().Add(gather))
	}
}

// handleExit takes the end of a process.
func (s *server) handleExit(e exit) {
	if s.inUse[e.p.file] == e.p {
		delete(s.inUse, e.p.file)
	}
	s.runner.handleExit(e)
}

// close leaves the serving instance running, and ends those before it.
func (s *server) close() {
	s.retiring.Wait()
	s.runner.close()
}

// A separate dnsmasq answers DNS, since of two instances that overlap only one
// could listen for TCP. It need not overlap: its arguments depend on the operator's options alone,
// and it notices addresses of the device, and files with names, as they come and go.
var dns = kind{subject: "the dnsmasq that answers DNS", adopted: "adopted the dnsmasq that answers DNS", argument: namesArgument,
	pidFile: resolverPID, logFile: resolverLog, probeFile: filepath.Join(plan.NamesDir, probeFile), level: line.resolverLevel}

// resolver keeps the dnsmasq that answers DNS at the gateways' addresses.
type resolver struct {
	*runner
	arguments []string // of the instance that runs or is about to
}

func newResolver(o Options) *resolver {
	r := &resolver{runner: newRunner(dns, o)}
	r.owner = r
	return r
}

// open finds what an earlier agent has left. The state directory is there.
func (r *resolver) open() error {
	err := r.runner.open()
	if r.serving != nil {
		r.arguments, r.wanted = r.serving.args, !r.foreign()
		if r.foreign() {
			r.arguments = append([]string{r.serving.file}, r.arguments...) // those of no plan
		}
	}
	return err
}

// apply has an instance run with the plan's arguments.
func (r *resolver) apply() error {
	if slices.Equal(r.plan.Resolver, r.arguments) {
		return nil
	}
	r.arguments, r.wanted = r.plan.Resolver, len(r.plan.Resolver) > 0
	if !r.wanted {
		return r.stop()
	}
	r.restart(time.Now())
	return nil
}

// start starts an instance once those before it have ended: a child of one, which answers a machine
// by TCP, may still hold the port.
func (r *resolver) start() (*process, error) {
	if err := endStrays(namesArgument, r.device); err != nil {
		return nil, err
	}
	p, err := r.spawn(plan.NamesDir, r.arguments)
	if err == nil {
		r.keepPID(p)
	}
	return p, err
}

func (r *resolver) serves(*process) { r.log.Info("dnsmasq answers DNS", "pid", r.serving.pid) }

func (r *resolver) afterEnd(*process) {}

// ready reports whether an instance seems to answer.
func (r *resolver) ready() bool { return r.serving != nil && r.problem == "" }

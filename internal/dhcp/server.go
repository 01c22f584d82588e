package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"heddle/calico"
	"heddle/internal/dhcp/plan"
)

const (
	// startTimeout is how long an instance may take to listen.
	startTimeout = 10 * time.Second
	// gather is how long a restart that nobody waits for waits for more reasons.
	gather = time.Second
)

// server runs one dnsmasq and keeps it as the plan says. All its methods belong to one goroutine, which also hands it
// what comes from its channels and timers.
//
//	serving   answers
//	next      has been started and will take over when it says that it listens; until then serving goes on
type server struct {
	dir, device, program string
	gid                  int // of dnsmasq's group
	probeEvery           time.Duration
	log                  *slog.Logger
	said                 *os.File // where the instances log to
	reader               *logReader

	retiring                       sync.WaitGroup // instances that another has taken over from
	lines                          chan line
	ends                           chan exit
	restartDue, startDue, probeDue *time.Timer

	plan          *plan.Plan                // nil before the first
	running       *plan.Running             // what the newest instance has read
	holders       map[netip.Addr]calico.MAC // of addresses, as the newest instance came to know them first
	interfaces    map[string]string         // see interfacesOf
	serving, next *process
	inUse         map[string]*process // by lease file
	missed        string              // leases that the instance that serves does not know, as those before it gave them late
	stale         bool                // the newest instance does not serve the plan until it is started again
	dueAt         time.Time           // of restartDue; zero: it does not run
	retry         backoff
	probe         probe
	started       int    // instances, in all
	problem       string // why the plan is not served; "": it is, or will be in a moment
}

func newServer(o Options) *server {
	return &server{dir: o.Plan.Dir, device: o.Plan.Device, program: o.Program, probeEvery: o.ProbeEvery, log: o.Log,
		lines: make(chan line, 64), ends: make(chan exit, 4),
		restartDue: stopped(), startDue: stopped(), probeDue: stopped(),
		inUse: map[string]*process{}, probe: probe{dir: o.Plan.Dir, file: filepath.Join(plan.HostsDir, probeFile)}}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// open makes the state directory and finds what an earlier agent left.
func (s *server) open() (err error) {
	if err := makeDirectories(s.dir, s.gid, s.log); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if s.said, s.reader, err = openLog(filepath.Join(s.dir, logFile)); err != nil {
		return err
	}
	files, err := readFiles(s.dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	s.holders, s.running = plan.Holders(files), plan.Found(nil, files)
	if s.serving, err = adopt(s.dir, pidFile, leaseArgument, s.device, s.ends); err != nil || s.serving == nil {
		return err
	}
	s.inUse[s.serving.file] = s.serving
	s.running = plan.Found(s.serving.args, files)
	if s.foreign() {
		s.log.Info("adopted the dnsmasq of another state directory; one of this directory takes over", "pid", s.serving.pid, "directory", s.serving.stateDir())
		theirs, err := readFiles(s.serving.stateDir())
		s.note(err, "read who has which address")
		s.holders = plan.Holders(theirs)
		return nil
	}
	s.log.Info("adopted the dnsmasq that runs", "pid", s.serving.pid)
	s.serves()
	// An earlier agent may have changed files for a restart that has not been.
	if _, err := os.Stat(filepath.Join(s.dir, changing)); !errors.Is(err, fs.ErrNotExist) {
		s.restartIn(0)
	}
	return nil
}

// foreign says that what serves has its files in another state directory: the first plan ends that.
func (s *server) foreign() bool { return s.serving.stateDir() != s.dir }

// close lets go of what serves: it goes on.
func (s *server) close() {
	if s.next != nil { // nobody would hear when it listens
		s.note(s.next.kill(), "end an instance that was starting")
	}
	s.retiring.Wait()
	if s.said != nil {
		s.said.Close()
	}
}

// ready says that the plan is served.
func (s *server) ready() bool {
	return s.plan != nil && (len(s.plan.Arguments) == 0 || s.serving != nil && s.next == nil && !s.stale)
}

// apply makes a plan the one that is served, with the least disruption.
func (s *server) apply(p *plan.Plan) error {
	s.plan = p
	step := s.running.Step(p)
	if step.Nothing() {
		return nil
	}
	fresh := make(map[string]string, len(step.Write)) // those before are known
	for _, f := range step.Write {
		fresh[f.Path] = f.Content
	}
	for address, mac := range plan.Holders(fresh) {
		if _, known := s.holders[address]; !known {
			s.holders[address] = mac
		}
	}
	var errs []error
	if step.Restart != plan.Never {
		errs = append(errs, os.WriteFile(filepath.Join(s.dir, changing), nil, 0o644))
	}
	for _, f := range step.Write {
		errs = append(errs, write(s.dir, f.Path, f.Content))
	}
	for _, f := range step.Remove {
		errs = append(errs, remove(filepath.Join(s.dir, f)))
	}
	switch {
	case step.Stop:
		errs = append(errs, s.stop())
	case step.Restart == plan.Now:
		s.log.Debug("dnsmasq starts again", "reasons", step.Reasons)
		s.restartIn(0)
	case step.Restart == plan.Soon:
		s.restartIn(gather)
	}
	return errors.Join(errs...)
}

// stop ends the server where nobody is served.
func (s *server) stop() error {
	s.restartDue.Stop()
	s.startDue.Stop()
	s.probeDue.Stop()
	s.stale, s.dueAt, s.problem = false, time.Time{}, ""
	var errs []error
	for _, p := range []*process{s.serving, s.next} {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	s.serving, s.next = nil, nil
	for _, f := range []string{pidFile, changing, filepath.Join(plan.HostsDir, probeFile)} {
		errs = append(errs, remove(filepath.Join(s.dir, f)))
	}
	s.log.Info("no endpoint is served: dnsmasq ends")
	return errors.Join(errs...)
}

// restartIn has a new instance take over after a while, or sooner if it was to be so.
func (s *server) restartIn(d time.Duration) {
	s.stale = true
	at := time.Now().Add(d)
	if s.next != nil || !s.dueAt.IsZero() && s.dueAt.Before(at) {
		return
	}
	s.dueAt = at
	s.restartDue.Reset(d)
}

// restart starts an instance that is to take over; restartDue has fired.
func (s *server) restart() {
	s.dueAt = time.Time{}
	if s.plan == nil || len(s.plan.Arguments) == 0 || s.next != nil {
		return
	}
	if err := s.startNext(); err != nil {
		s.failed(err.Error())
	}
}

func (s *server) startNext() error {
	names := leaseFiles()
	free := slices.IndexFunc(names[:], func(name string) bool { return s.inUse[filepath.Join(s.dir, name)] == nil })
	if free < 0 {
		return errors.New("those before it have not ended")
	}
	name := names[free]
	leases := s.plan.Leases(s.lastLeases()+s.missed, s.holders, time.Now())
	if err := write(s.dir, name, leases); err != nil {
		return err
	}
	holders := plan.Holders(s.plan.Files)
	if s.serving != nil {
		if err := ignore(s.serving, moved(s.holders, holders)); err != nil {
			s.log.Debug("cannot keep requests from the dnsmasq before", "pid", s.serving.pid, "err", err)
		}
	}
	p, err := start(s.program, leaseArgument+filepath.Join(s.dir, name), s.plan.Arguments, s.said, s.ends)
	if err != nil {
		return err
	}
	s.started++
	s.inUse[p.file] = p
	if s.serving != nil {
		s.serving.held = s.holders
	}
	s.next, s.stale = p, false
	s.holders = holders
	s.running = plan.Started(s.plan)
	s.startDue.Reset(startTimeout)
	return nil
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

// lastLeases reads the lease file that was in use last: that of the instance that serves, else the newest.
func (s *server) lastLeases() string {
	if s.serving != nil {
		raw, err := os.ReadFile(s.serving.file)
		s.note(err, "read the leases")
		return string(raw)
	}
	var newest time.Time
	var text string
	for _, name := range leaseFiles() {
		file := filepath.Join(s.dir, name)
		info, err := os.Stat(file)
		if err != nil || info.ModTime().Before(newest) {
			continue
		}
		if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 {
			newest, text = info.ModTime(), string(raw)
		}
	}
	return text
}

// hear takes a line that a dnsmasq has said.
func (s *server) hear(l line) {
	switch {
	case s.next != nil && l.pid == s.next.pid && l.started():
		s.takeOver()
		return
	case l.probed():
		if s.serving != nil && l.pid == s.serving.pid {
			s.probe.waiting = false
		}
		return
	case l.pid == 0:
		s.problem = l.text // the last words of one that cannot go on
	}
	attributes := l.attributes(s.interfaces)
	if s.plan != nil {
		if name := l.optionOf(s.plan.Files); name != "" {
			attributes = append(attributes, slog.String("interface", name))
		}
	}
	s.log.LogAttrs(context.Background(), l.level(), "dnsmasq", attributes...)
}

// takeOver ends the instance before the one that now listens.
func (s *server) takeOver() {
	before := s.serving
	s.serving, s.next = s.next, nil
	s.startDue.Stop()
	if err := makeRoom(s.serving); err != nil {
		s.log.Debug("cannot give dnsmasq room for many requests at once", "err", err)
	}
	if before != nil {
		s.retire(before)
		s.retry = backoff{} // that one did not fail
	}
	s.note(write(s.dir, pidFile, strconv.Itoa(s.serving.pid)+"\n"), "keep the number of the process")
	s.log.Info("dnsmasq serves", "pid", s.serving.pid, "endpoints", len(s.plan.Ports))
	s.problem, s.missed = "", ""
	s.serves()
	if s.stale {
		s.restartIn(0)
		return
	}
	s.note(remove(filepath.Join(s.dir, changing)), "note that the restart is over")
}

// serves begins to watch an instance.
func (s *server) serves() {
	s.retry.began, s.probe.waiting = time.Now(), false
	s.probeDue.Reset(s.probeEvery)
}

// ended takes the end of a process.
func (s *server) ended(e exit) {
	e.p.close()
	if s.inUse[e.p.file] == e.p {
		delete(s.inUse, e.p.file)
	}
	switch e.p {
	case s.next:
		s.next = nil
		s.startDue.Stop()
		s.failed(e.why)
	case s.serving:
		s.serving = nil
		s.probeDue.Stop()
		if s.next != nil {
			return // it takes over in any case
		}
		s.failed(e.why)
	default:
		s.recover(e.p)
	}
}

// recover finds the IPv6 leases that an instance has given after the lease file of the one that took over was written, which
// therefore does not know them: machines would lose them when they renew. Another restart, which nobody waits for, tells
// it.
func (s *server) recover(before *process) {
	if before.held == nil || s.serving == nil {
		return
	}
	raw, err := os.ReadFile(before.file)
	s.note(err, "read the leases")
	s.missed += plan.MissingLeases(s.plan.Leases(string(raw), before.held, time.Now()), s.lastLeases()+s.missed)
	if s.missed != "" {
		s.log.Debug("dnsmasq starts again to know leases that the one before gave last", "leases", s.missed)
		s.restartIn(gather)
	}
}

// failed says what happened, and tries again after a pause; the first time at once.
func (s *server) failed(why string) {
	pause := s.retry.next()
	s.log.Error("dnsmasq has failed and is started again", "why", why, "in", pause)
	s.problem = why
	s.restartIn(pause)
}

// slow ends an instance that does not listen; startDue has fired.
func (s *server) slow() {
	if s.next != nil {
		s.log.Error("dnsmasq does not begin to listen: ending it", "pid", s.next.pid, "after", startTimeout)
		s.note(s.next.kill(), "end it")
	}
}

// look asks the instance that serves for a sign of life, and ends it when it has not answered the last time; probeDue has
// fired.
func (s *server) look() {
	if s.serving == nil {
		return
	}
	s.probeDue.Reset(s.probeEvery)
	if s.probe.waiting && s.next == nil {
		s.log.Error("dnsmasq hangs: ending it", "pid", s.serving.pid, "silent", s.probeEvery)
		s.note(s.serving.kill(), "end it")
		return
	}
	s.note(s.probe.ask(), "ask dnsmasq for a sign of life")
}

// note says what went wrong beside the point.
func (s *server) note(err error, what string) {
	if err != nil {
		s.log.Error("cannot "+what, "err", err)
	}
}

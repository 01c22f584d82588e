package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"heddle/internal/dhcp/plan"
)

// resolver runs the dnsmasq that answers DNS at the gateways' addresses. It is one of its own, since of two instances that
// overlap only one could listen for TCP; and it need not overlap, since what it is told depends on the operator's options
// alone: it takes notice of addresses of the device, and of files with names, as they come and go. So it is started
// anew only after it has ended, or when an agent with other options adopts it.
//
// All its methods belong to the goroutine of the server.
type resolver struct {
	dir, device, program string
	probeEvery           time.Duration
	log                  *slog.Logger
	said                 *os.File // where it logs to
	reader               *logReader

	lines              chan line
	ends               chan exit
	startDue, probeDue *time.Timer

	arguments  []string          // wanted; none: nobody is served
	interfaces map[string]string // see interfacesOf
	running    *process          // until its end has been seen
	retry      backoff
	probe      probe
	problem    string // why it does not answer; "": it does, or will in a moment
}

func newResolver(o Options) *resolver {
	return &resolver{dir: o.Plan.Dir, device: o.Plan.Device, program: o.Program, probeEvery: o.ProbeEvery, log: o.Log,
		lines: make(chan line, 64), ends: make(chan exit, 4), startDue: stopped(), probeDue: stopped(),
		probe: probe{dir: o.Plan.Dir, file: filepath.Join(plan.NamesDir, probeFile)}}
}

// open finds what an earlier agent left. The state directory is there.
func (r *resolver) open() (err error) {
	if r.said, r.reader, err = openLog(filepath.Join(r.dir, resolverLog)); err != nil {
		return err
	}
	if r.running, err = adopt(r.dir, resolverPID, namesArgument, r.device, r.ends); err != nil || r.running == nil {
		return err
	}
	if r.running.stateDir() != r.dir { // the first plan ends it
		r.log.Info("adopted the dnsmasq for DNS of another state directory", "pid", r.running.pid, "directory", r.running.stateDir())
		r.arguments = append([]string{namesArgument + r.running.file}, r.running.args...) // those of no plan
		return nil
	}
	r.log.Info("adopted the dnsmasq that answers DNS", "pid", r.running.pid)
	r.arguments = r.running.args
	r.serves()
	return nil
}

// close lets go of what runs: it goes on.
func (r *resolver) close() {
	if r.said != nil {
		r.said.Close()
	}
}

// apply makes the plan's arguments those that it runs with.
func (r *resolver) apply(p *plan.Plan) error {
	if slices.Equal(p.Resolver, r.arguments) {
		return nil
	}
	r.arguments = p.Resolver
	if r.running != nil {
		return r.running.kill() // when it has ended it starts again, if it is to
	}
	if len(r.arguments) > 0 {
		r.startDue.Reset(0)
	}
	return nil
}

// start runs it; startDue has fired.
func (r *resolver) start() {
	if r.running != nil || len(r.arguments) == 0 {
		return
	}
	if err := r.run(); err != nil {
		r.failed(err.Error())
	}
}

// run starts it. A child that one before left, which answers a machine by TCP, still holds the port.
func (r *resolver) run() error {
	if err := endStrays(namesArgument, r.device); err != nil {
		return err
	}
	p, err := start(r.program, namesArgument+filepath.Join(r.dir, plan.NamesDir), r.arguments, r.said, r.ends)
	if err != nil {
		return err
	}
	r.running = p
	r.serves()
	if err := write(r.dir, resolverPID, strconv.Itoa(p.pid)+"\n"); err != nil {
		r.log.Error("cannot keep the number of the process", "err", err)
	}
	return nil
}

// serves begins to watch what runs.
func (r *resolver) serves() {
	r.retry.began = time.Now()
	r.probe.waiting = false
	r.probeDue.Reset(r.probeEvery)
}

// hear takes a line that it has said.
func (r *resolver) hear(l line) {
	switch {
	case l.started():
		r.problem = ""
		r.log.Info("dnsmasq answers DNS", "pid", l.pid)
		return
	case l.probed():
		r.probe.waiting = r.probe.waiting && (r.running == nil || l.pid != r.running.pid)
		return
	case l.pid == 0 && l.text != "":
		r.problem = l.text // the last words of one that cannot go on
	}
	r.log.LogAttrs(context.Background(), l.resolverLevel(), "dnsmasq", l.attributes(r.interfaces)...)
}

// ended takes the end of a process.
func (r *resolver) ended(e exit) {
	e.p.close()
	if e.p != r.running {
		return
	}
	r.running = nil
	r.probeDue.Stop()
	switch {
	case len(r.arguments) == 0:
		r.problem = ""
		if err := errors.Join(remove(filepath.Join(r.dir, resolverPID)), remove(filepath.Join(r.dir, r.probe.file))); err != nil {
			r.log.Error("cannot take away what the dnsmasq for DNS had", "err", err)
		}
	case e.p.killed:
		r.startDue.Reset(0)
	default:
		r.failed(e.why)
	}
}

// failed says what happened, and tries again after a pause; the first time at once.
func (r *resolver) failed(why string) {
	pause := r.retry.next()
	if r.problem == "" {
		r.problem = why
	}
	r.log.Error("the dnsmasq that answers DNS has failed and is started again", "why", why, "said", r.problem, "in", pause)
	r.startDue.Reset(pause)
}

// look asks for a sign of life, and ends what has not answered the last time; probeDue has fired.
func (r *resolver) look() {
	if r.running == nil {
		return
	}
	r.probeDue.Reset(r.probeEvery)
	if r.probe.waiting {
		r.log.Error("the dnsmasq that answers DNS hangs: ending it", "pid", r.running.pid, "silent", r.probeEvery)
		if err := r.running.kill(); err != nil {
			r.log.Error("cannot end it", "err", err)
		}
		return
	}
	if err := r.probe.ask(); err != nil {
		r.log.Error("cannot ask dnsmasq for a sign of life", "err", err)
	}
}

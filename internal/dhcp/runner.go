package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"heddle/internal/dhcp/plan"
	"heddle/internal/task"
)

// kind describes one of the two dnsmasq of a host.
type kind struct {
	subject, adopted string // in log messages
	argument         string // begins the first argument of its instances, by which agents find them
	pidFile          string // names the process that serves
	logFile          string
	probeFile        string // an instance logs that it has read it
	level            func(line) slog.Level
	overlap          bool
}

// runner runs the instances of one dnsmasq as its lifecycle decides. Its methods are called from
// one goroutine, which also passes on what comes from lines, ends and alarm.
type runner struct {
	kind
	lifecycle
	dir, device, program string
	user                 credentials // of instances
	log                  *slog.Logger
	owner                owner
	output               *os.File // that instances log to
	reader               *logReader
	lines                chan line
	ends                 chan exit
	alarm                *task.Alarm
	plan                 *plan.Plan        // nil before the first
	interfaces           map[string]string // see interfacesOf
	probes               int
}

// owner is the part of a dnsmasq that is not the same for both.
type owner interface {
	start() (*process, error)
	// serves is called when the serving instance has begun to, in place of another one or nil.
	serves(before *process)
	// afterEnd is called at the end of an instance that another one has replaced.
	afterEnd(p *process)
}

func newRunner(k kind, o Options) *runner {
	return &runner{kind: k, lifecycle: newLifecycle(k.overlap, o.ProbeEvery), dir: o.Plan.Dir, device: o.Plan.Device, program: o.Program,
		log: o.Log, lines: make(chan line, 64), ends: make(chan exit, 4), alarm: task.NewAlarm()}
}

// open opens the log, and adopts the instance that an earlier agent has left.
func (r *runner) open() (err error) {
	if r.output, r.reader, err = openLog(r.path(r.logFile)); err != nil {
		return err
	}
	p, err := adopt(r.dir, r.pidFile, r.argument, r.device, r.ends)
	if err != nil || p == nil {
		return err
	}
	message := r.kind.adopted
	if p.stateDir() != r.dir {
		message = "adopted the dnsmasq of another state directory; one of this directory takes over"
	}
	r.log.Info(message, "pid", p.pid, "directory", p.stateDir())
	r.lifecycle.adopted(p, p.stateDir() == r.dir, time.Now())
	return nil
}

// foreign reports whether the files of the serving instance are in another state directory. The
// first plan replaces such an instance.
func (r *runner) foreign() bool { return r.serving.stateDir() != r.dir }

// close leaves the serving instance running.
func (r *runner) close() {
	if r.next != nil { // without an agent it would never take over
		r.note(r.next.kill(), "end an instance that was starting")
	}
	if r.output != nil {
		r.output.Close()
	}
}

func (r *runner) path(name string) string { return filepath.Join(r.dir, name) }

// spawn starts an instance; file completes its first argument.
func (r *runner) spawn(file string, arguments []string) (*process, error) {
	return start(r.program, r.user, r.argument+r.path(file), arguments, r.output, r.ends)
}

// stop ends all instances, and removes the files that belong to a running one.
func (r *runner) stop() error {
	var errs []error
	for _, a := range r.lifecycle.stop() {
		errs = append(errs, a.instance.kill())
	}
	return errors.Join(append(errs, remove(r.path(r.pidFile)), remove(r.path(r.probeFile)))...)
}

// tick is called when the alarm goes off.
func (r *runner) tick() { r.do(r.lifecycle.tick(time.Now())) }

// arm sets the alarm for what is due next.
func (r *runner) arm() { r.alarm.Set(r.due()) }

// do carries out what the lifecycle has decided.
func (r *runner) do(todo []action) {
	for _, a := range todo {
		switch a.verb {
		case startOne:
			if p, err := r.owner.start(); err != nil {
				r.do(r.failed(err.Error(), time.Now()))
			} else {
				r.started(p, time.Now())
			}
		case beginServe:
			r.owner.serves(a.instance)
		case probeIt:
			r.probes++
			r.note(write(r.dir, r.probeFile, fmt.Sprintf("# %d\n", r.probes)), "probe dnsmasq")
		case endIt:
			r.log.Error(r.subject+" "+a.reason+": ending it", "pid", a.instance.pid)
			r.note(a.instance.kill(), "end it")
		case logFailure:
			r.log.Error(r.subject+" has failed and is started again", "why", a.reason, "output", r.problem, "in", a.pause)
		}
	}
}

// handleLine takes a line that an instance has logged.
func (r *runner) handleLine(l line) {
	switch {
	case l.started():
		r.do(r.listens(l.pid, time.Now()))
		return
	case l.probed():
		r.answered(l.pid)
		return
	case l.pid == 0 && l.text != "":
		r.problem = l.text // the last line of an instance that cannot go on
	}
	attributes := l.attributes(r.interfaces)
	if r.plan != nil {
		if name := l.optionOf(r.plan.Files); name != "" {
			attributes = append(attributes, slog.String("interface", name))
		}
	}
	r.log.LogAttrs(context.Background(), r.level(l), "dnsmasq", attributes...)
}

// handleExit takes the end of a process.
func (r *runner) handleExit(e exit) {
	e.p.close()
	replaced := e.p != r.serving && e.p != r.next
	r.do(r.ended(e.p, e.why, time.Now()))
	if replaced {
		r.owner.afterEnd(e.p)
	}
}

// keepPID notes which process serves, for later agents.
func (r *runner) keepPID(p *process) {
	r.note(write(r.dir, r.pidFile, strconv.Itoa(p.pid)+"\n"), "keep the number of the process")
}

// note logs a failure that does not keep dnsmasq from serving.
func (r *runner) note(err error, what string) {
	if err != nil {
		r.log.Error("cannot "+what, "err", err)
	}
}

package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

const (
	// toldEvery is the interval of telling the service manager what has changed.
	toldEvery = time.Second
	// patience is the time that the manager is asked to wait for more, while parts are waited for:
	// a store that is away for hours is no reason to start again.
	patience = 30 * time.Second
)

// tellManager tells the service manager of a unit of Type=notify (sd_notify(3)) what the process
// waits for, once that nothing is, and that it ends. Without such a manager it does nothing.
func tellManager(ctx context.Context, waiting func() []string) {
	tell := func(lines ...string) bool {
		// A manager that does not take a message is told the next; without one nothing is sent.
		sent, err := daemon.SdNotify(false, strings.Join(lines, "\n"))
		return sent || err != nil
	}
	if !tell("STATUS=starting") {
		return
	}
	tick := time.NewTicker(toldEvery)
	defer tick.Stop()
	told, ready := "", false
	for {
		status, more := "ready", ""
		if names := waiting(); len(names) > 0 {
			status = "waiting for " + strings.Join(names, ", ")
			if !ready {
				more = fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", patience.Microseconds())
			}
		} else if !ready {
			ready, more = true, "READY=1"
		}
		if status != told || more != "" {
			tell("STATUS="+oneLine(status), more)
			told = status
		}
		select {
		case <-ctx.Done():
			tell("STOPPING=1", "STATUS=stopping")
			return
		case <-tick.C:
		}
	}
}

// TellWaiting tells a service manager what the process waits for before its Server runs.
func TellWaiting(what string) {
	_, _ = daemon.SdNotify(false, "STATUS="+oneLine("waiting for "+what)) // a message that is lost harms nothing
}

// oneLine replaces what would begin another line of a message, such as in an error of the store.
func oneLine(text string) string { return strings.Join(strings.FieldsFunc(text, isLineBreak), " ") }

func isLineBreak(r rune) bool { return r == '\n' || r == '\r' }

// watchdogDefault is the time within which a process without a manager finds that a loop hangs.
const watchdogDefault = 30 * time.Second

// feedWatchdog looks for loops of the process that hang, which it logs and counts. It tells a
// service manager that asks for it, by WatchdogSec=, that the process is alive as long as none
// does. A loop that has hung for that long ends the process: the manager has it print its
// goroutines, and starts it again.
func (s *Server) feedWatchdog(ctx context.Context) {
	log := s.opts.Log
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot tell the service manager that this process is alive", "err", err)
	}
	tick := time.NewTicker(cmp.Or(within, watchdogDefault) / 3)
	defer tick.Stop()
	for {
		names := s.opts.Hung()
		s.opts.Metrics.hung.Set(float64(len(names)))
		switch {
		case len(names) > 0:
			log.Error("parts of this process hang", "parts", names)
		case within > 0:
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // of a lost word the next makes up
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Reloading tells the service manager that the process, which is ready, reads its settings again,
// and returns a function that tells it that this is done.
func Reloading() (done func()) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for no clock that there is
	_, _ = daemon.SdNotify(false, fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\nSTATUS=reloading", now.Nano()/1000))
	return func() { _, _ = daemon.SdNotify(false, "READY=1\nSTATUS=ready") } // a lost word stops nothing: ExecReload= waits for the command
}

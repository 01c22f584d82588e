package services

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/topology/routerbgp"
)

// SpeakerCommand is the subcommand of Heddle's own program that speaks BGP for a router, with the
// socket of its agents as its file 3.
const SpeakerCommand = "speaker"

// Files of a container that speaks BGP.
const (
	speakerSocket = "speaker.sock"
	speakerPID    = "speaker.pid"
	speakerOutput = "speaker.log"
)

const (
	// speakerStop bounds the time in which a speaker ends its sessions.
	speakerStop = 2 * time.Second
	// speakerWrite bounds the time in which a speaker takes a plan.
	speakerWrite = 5 * time.Second
	// A speaker reports at least every routerbgp.ReportEvery. It hangs if the agent has looked so
	// many times, at this interval, without a report in between: in ticks, since time in which the
	// machine was suspended, or too busy for the agent itself, says nothing about the speaker. One
	// that works but waits for a processor gets it long before.
	silentTicks, silentTick = 10, time.Second
)

// errSilent reports a speaker that hangs.
var errSilent = fmt.Errorf("the BGP speaker hangs: no report in %s", silentTicks*silentTick)

// speakerProcess is the process that speaks BGP in a container, and this agent's connection to it.
// It outlives the agent.
type speakerProcess struct {
	dir string
	at  *os.File // dir, opened: names of sockets must be short
	ns  *hostnet.Namespace

	pid     int
	adopted bool          // an earlier agent has started it
	over    chan struct{} // is closed when the process has ended
	exit    chan error    // of a process that this agent has started, once it has ended
	conn    net.Conn
	reports chan *routerbgp.Report
	tick    *time.Ticker // of silentTick
	silent  int          // ticks since the last report
	lost    chan error   // the connection has ended
	done    chan struct{}
}

// openSpeaker returns the speaker of a container: the one of an earlier agent if that runs, else a
// new one.
func openSpeaker(ctx context.Context, dir string, ns *hostnet.Namespace) (*speakerProcess, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	p := &speakerProcess{dir: dir, at: at, ns: ns, over: make(chan struct{}), exit: make(chan error, 1),
		reports: make(chan *routerbgp.Report), tick: time.NewTicker(silentTick), lost: make(chan error, 1), done: make(chan struct{})}
	if err = p.adopt(); err != nil {
		if err = p.start(); err == nil {
			err = p.connect(ctx)
		}
	}
	if err != nil {
		p.close()
		return nil, err
	}
	go p.read()
	return p, nil
}

// close lets the process go on without the agent.
func (p *speakerProcess) close() {
	close(p.done)
	p.tick.Stop()
	if p.conn != nil {
		p.conn.Close()
	}
	p.at.Close()
}

func (p *speakerProcess) file(name string) string { return filepath.Join(p.dir, name) }

// socket returns a short path of the socket.
func (p *speakerProcess) socket() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.at.Fd(), speakerSocket)
}

// adopt takes over the process of an earlier agent, or returns an error after ending what runs in
// the namespace.
func (p *speakerProcess) adopt() error {
	pids, err := p.ns.Processes()
	if err != nil {
		return err
	}
	raw, _ := os.ReadFile(p.file(speakerPID)) // without it there is none
	pid, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if slices.Contains(pids, pid) && bytes.Contains(command, []byte(SpeakerCommand)) {
		if p.conn, err = net.DialTimeout("unix", p.socket(), speakerWrite); err == nil {
			if err = p.watch(pid); err == nil {
				p.pid, p.adopted = pid, true
				return nil
			}
			p.conn.Close()
			p.conn = nil
		}
	}
	return errors.Join(errors.New("no speaker runs"), err, endProcesses(p.ns))
}

// watch closes over when the process has ended.
func (p *speakerProcess) watch(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	go func() {
		hostnet.AwaitEnd(fd)
		unix.Close(fd)
		close(p.over)
	}()
	return nil
}

// start starts a speaker. Its socket is there before, so that it can be connected to at once.
func (p *speakerProcess) start() error {
	if err := os.Remove(p.file(speakerSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.socket(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("socket of the BGP speaker: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	inherited, err := listener.File()
	if err != nil {
		return fmt.Errorf("socket of the BGP speaker: %w", err)
	}
	defer inherited.Close()
	out, err := os.OpenFile(p.file(speakerOutput), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// Its settings are in its plans; the agent's environment may hold secrets.
	cmd := &exec.Cmd{Args: []string{"heddle", SpeakerCommand}, Env: []string{}, Stdout: out, Stderr: out, ExtraFiles: []*os.File{inherited}}
	// Of what it does, listening on port 179 alone takes a right.
	if err := p.ns.StartUnprivileged(cmd, unix.CAP_NET_BIND_SERVICE); err != nil {
		return fmt.Errorf("start the BGP speaker: %w", err)
	}
	p.pid = cmd.Process.Pid
	if err := p.watch(p.pid); err != nil {
		return err
	}
	go func() { p.exit <- cmd.Wait() }()
	return os.WriteFile(p.file(speakerPID), []byte(strconv.Itoa(p.pid)), 0o600)
}

func (p *speakerProcess) connect(ctx context.Context) (err error) {
	var d net.Dialer
	if p.conn, err = d.DialContext(ctx, "unix", p.socket()); err != nil {
		return fmt.Errorf("connect to the BGP speaker: %w", err)
	}
	return nil
}

// read passes on reports until the connection ends.
func (p *speakerProcess) read() {
	err := p.readReports()
	select {
	case <-p.over:
		err = errors.New("the BGP speaker has ended" + p.exitText() + p.lastWords())
	case <-time.After(speakerStop): // it has closed the connection, but runs
		err = fmt.Errorf("the connection to the BGP speaker has ended: %w%s", err, p.lastWords())
	case <-p.done:
	}
	p.lost <- err
}

func (p *speakerProcess) readReports() error {
	lines := bufio.NewScanner(p.conn)
	lines.Buffer(nil, routerbgp.MaxLine)
	for lines.Scan() {
		r, err := routerbgp.ParseReport(lines.Bytes())
		if err != nil {
			return err
		}
		select {
		case p.reports <- r:
		case <-p.done:
			return nil
		}
	}
	return errors.Join(lines.Err(), errors.New("end of file"))
}

// ticked shows the speaker that this agent works, and counts a tick. It returns errSilent after too
// many without a report.
func (p *speakerProcess) ticked() error {
	if p.silent++; p.silent > silentTicks {
		return errSilent
	}
	_ = p.write(nil) // the end of the connection is its reader's to report, with the reason
	return nil
}

// apply gives the speaker a plan.
func (p *speakerProcess) apply(plan *routerbgp.Plan) error {
	if err := plan.Check(); err != nil {
		return err
	}
	line, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	if err := p.write(line); err != nil {
		return fmt.Errorf("the BGP speaker takes no plan: %w", err)
	}
	return nil
}

// write writes a line.
func (p *speakerProcess) write(line []byte) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(speakerWrite)); err != nil {
		return err
	}
	_, err := p.conn.Write(append(line, '\n'))
	return err
}

// exitText returns how the process has ended, after a colon, if this agent has started it.
func (p *speakerProcess) exitText() string {
	if p.adopted {
		return ""
	}
	if err := <-p.exit; err != nil {
		return ": " + err.Error()
	}
	return ""
}

// lastWords returns the last line that the speaker has printed, after a colon, unless it is about
// its usual work.
func (p *speakerProcess) lastWords() string {
	raw, err := os.ReadFile(p.file(speakerOutput))
	if line := lastLine(raw); err == nil && line != "" && !strings.Contains(line, "level=INFO") {
		return ": " + line
	}
	return ""
}

// endSpeaker ends the speaker of a container's directory, if one runs in the namespace, in order:
// its peers withdraw what they have learned from it at once.
func endSpeaker(dir, namespace string) error {
	ns, err := hostnet.OpenNamespace(namespace)
	if errors.Is(err, hostnet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	pids, err := ns.Processes()
	if err != nil {
		return err
	}
	raw, _ := os.ReadFile(filepath.Join(dir, speakerPID)) // without it there is none
	pid, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	if slices.Contains(pids, pid) {
		endInOrder(pid)
	}
	return endProcesses(ns)
}

// endInOrder has a process end, and waits for that a short while.
func endInOrder(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(speakerStop.Milliseconds())) // else it is killed
}

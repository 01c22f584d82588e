package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// Files in a container's directory beside those of package plan.
const (
	pidFile    = "haproxy.pid"
	loadedFile = "haproxy.loaded" // the configuration that haproxy has read
	outputFile = "haproxy.log"
)

// answerTimeout bounds a question to haproxy, and its start.
const answerTimeout = 5 * time.Second

// haproxy is the process that checks the members of a container, or none while there is nothing to
// check. It outlives the agent. All but the channels is of one goroutine.
type haproxy struct {
	program string
	dir     string
	at      *os.File // dir, opened: names of sockets must be short
	ns      *hostnet.Namespace
	lines   *net.UnixConn

	verdicts chan plan.Verdict // as haproxy reaches them
	ended    chan string       // why it has ended

	pid    int // of the master; 0 = it does not run
	text   string
	loaded *plan.Container // that text is for; nil if an earlier agent has loaded it

	refused map[string]refusal // by the configuration of a single pool

	workerAdmitted bool // to the socket of the log

	read  time.Time                  // when its statistics were read last, or it was loaded
	known func(member string) string // the last verdict about a member, "" for none
	sight *sight
	sound time.Time // start of the agent's sight before which no failure counts any more
}

// openHAProxy returns the haproxy of a container, with the process of an earlier agent if that
// runs.
func openHAProxy(o *Options, dir string, ns *hostnet.Namespace, known func(string) string, sight *sight) (*haproxy, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	h := &haproxy{program: o.HAProxy, dir: dir, at: at, ns: ns, known: known, sight: sight, refused: map[string]refusal{}, verdicts: make(chan plan.Verdict, 64), ended: make(chan string, 1)}
	if err := h.listen(); err != nil {
		at.Close()
		return nil, err
	}
	if err := h.adopt(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// close lets the process go on without the agent.
func (h *haproxy) close() {
	h.lines.Close()
	h.at.Close()
}

func (h *haproxy) runs() bool { return h.pid != 0 }

func (h *haproxy) file(name string) string { return filepath.Join(h.dir, name) }

// socket returns a short path of a socket in the directory.
func (h *haproxy) socket(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", h.at.Fd(), name)
}

// listen opens the socket to which haproxy logs, and sends verdicts from it.
func (h *haproxy) listen() (err error) {
	if err := os.Remove(h.file(plan.HealthSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if h.lines, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.socket(plan.HealthSocket), Net: "unixgram"}); err != nil {
		return fmt.Errorf("socket of haproxy's log: %w", err)
	}
	lines, verdicts := h.lines, h.verdicts
	go func() { // ends with the socket; what it sends after that, nobody waits for
		buffer := make([]byte, 8192)
		for {
			n, err := lines.Read(buffer)
			if err != nil {
				return
			}
			if v, ok := plan.ParseHealthLine(string(buffer[:n])); ok {
				select {
				case verdicts <- v:
				default: // the statistics have it
				}
			}
		}
	}()
	return nil
}

// adopt takes over the process of an earlier agent. Others in the namespace are ended.
func (h *haproxy) adopt() error {
	pids, err := h.ns.Processes()
	if err != nil || len(pids) == 0 {
		return err
	}
	raw, _ := os.ReadFile(h.file(pidFile)) // without it there is none
	pid, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if !slices.Contains(pids, pid) || !bytes.Contains(command, []byte(plan.ConfigFile)) {
		return endProcesses(h.ns)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return endProcesses(h.ns)
	}
	loaded, _ := os.ReadFile(h.file(loadedFile)) // without it, it is loaded again
	h.pid, h.text = pid, string(loaded)
	go func() {
		hostnet.AwaitEnd(fd)
		unix.Close(fd)
		h.ended <- "haproxy has ended" + h.lastWords()
	}()
	return nil
}

// apply makes haproxy check what a container's pools ask for. It reports whether a running one has
// taken over a change.
func (h *haproxy) apply(ctx context.Context, c *plan.Container) (reloaded bool, err error) {
	text := plan.Render(c)
	if text == "" {
		return false, h.stop()
	}
	if err := h.admitWorker(); err != nil {
		return false, err
	}
	if h.runs() && text == h.text {
		h.loaded = c
		return false, nil
	}
	if err := h.write(ctx, text); err != nil {
		return false, err
	}
	if h.runs() {
		err = h.reload(ctx, c)
	} else {
		err = h.start(ctx, c)
	}
	if err != nil {
		return false, err
	}
	reloaded = h.text != ""
	h.text, h.loaded = text, c
	return reloaded, os.WriteFile(h.file(loadedFile), []byte(text), 0o600)
}

// admitWorker lets the process that checks, which has no rights of root, reach the socket of the
// log, once. The other files are opened by its master before.
func (h *haproxy) admitWorker() error {
	if h.workerAdmitted {
		return nil
	}
	u, err := user.Lookup(plan.User)
	if _, lacks := exec.LookPath(h.program); err != nil && lacks != nil {
		return errNoHAProxy
	} else if err != nil {
		return fmt.Errorf("haproxy cannot check without its user (apt install haproxy makes it): %w", err)
	}
	uid, _ := strconv.Atoi(u.Uid) // numbers on Linux
	gid, _ := strconv.Atoi(u.Gid)
	socket := h.file(plan.HealthSocket)
	// The owner is changed last: without CAP_FOWNER the agent cannot change the mode of its file.
	if err := errors.Join(os.Chown(h.dir, 0, gid), os.Chmod(h.dir, 0o710), os.Chmod(socket, 0o600), os.Chown(socket, uid, gid)); err != nil {
		return err
	}
	h.workerAdmitted = true
	return nil
}

// refusal is the reason for which haproxy refuses a configuration.
type refusal string

func (r refusal) Error() string { return "haproxy refuses its configuration: " + string(r) }

// nextFile is a configuration that haproxy has not accepted yet.
const nextFile = plan.ConfigFile + ".next"

// write puts a configuration in place that haproxy accepts.
func (h *haproxy) write(ctx context.Context, text string) error {
	if err := h.check(ctx, text); err != nil {
		return err
	}
	return os.Rename(h.file(nextFile), h.file(plan.ConfigFile))
}

// check returns a refusal if haproxy does not accept a configuration.
func (h *haproxy) check(ctx context.Context, text string) error {
	if err := os.WriteFile(h.file(nextFile), []byte(text), 0o600); err != nil {
		return err
	}
	check := exec.CommandContext(ctx, h.program, "-c", "-f", nextFile) // with -q it would not say why
	check.Dir = h.dir
	out, err := check.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return refusal(firstAlert(out))
	}
	return missing(err)
}

// accepted returns a container without the pools that haproxy is known to refuse, and why it
// refuses them, by the pool's id.
func (h *haproxy) accepted(c plan.Container) (rest plan.Container, refused map[string]string) {
	if len(h.refused) == 0 {
		return c, nil
	}
	still := map[string]refusal{}
	refused = map[string]string{}
	rest = c
	rest.Pools = nil
	for _, p := range c.Pools {
		text := plan.Render(&plan.Container{Pools: []plan.Pool{p}})
		if why, ok := h.refused[text]; ok {
			still[text], refused[p.ID] = why, why.Error()
		} else {
			rest.Pools = append(rest.Pools, p)
		}
	}
	h.refused = still
	return rest, refused
}

// findRefused looks for the pools of a refused configuration that haproxy refuses, such as one with
// a monitor of an earlier version, so that others are checked all the same. It reports whether it
// has found any.
func (h *haproxy) findRefused(ctx context.Context, c *plan.Container) (found bool, err error) {
	for _, p := range c.Pools {
		text := plan.Render(&plan.Container{Pools: []plan.Pool{p}})
		if text == "" {
			continue
		}
		err := h.check(ctx, text)
		if why := refusal(""); errors.As(err, &why) {
			h.refused[text], found = why, true
		} else if err != nil {
			return false, err
		}
	}
	return found, nil
}

// start starts haproxy with what is known of the members, and waits until it answers.
func (h *haproxy) start(ctx context.Context, c *plan.Container) error {
	if err := endProcesses(h.ns); err != nil { // workers that have lost their master
		return err
	}
	if err := h.writeState(plan.NoState, c); err != nil {
		return err
	}
	out, err := os.OpenFile(h.file(outputFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(h.program, "-W", "-f", plan.ConfigFile)
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C for the agent is not for it
	if err := h.ns.Do(cmd.Start); err != nil {
		return missing(err)
	}
	h.text, h.pid = "", cmd.Process.Pid
	over := make(chan struct{})
	go func() {
		err := cmd.Wait()
		why := "haproxy has ended"
		if err != nil {
			why += ": " + err.Error()
		}
		h.ended <- why + h.lastWords()
		close(over)
	}()
	if err := os.WriteFile(h.file(pidFile), []byte(strconv.Itoa(h.pid)), 0o600); err != nil {
		return err
	}
	return h.awaitAnswer(ctx, over)
}

// writeState writes the state with which haproxy is to begin: a saved one, and the last verdicts
// about other members.
func (h *haproxy) writeState(saved string, c *plan.Container) error {
	return os.WriteFile(h.file(plan.StateFile), []byte(plan.Begin(saved, c, h.known)), 0o600)
}

// trusted reports whether a member counts as down when haproxy says so: haproxy goes on while the
// agent does not run, and finds all members down.
func (h *haproxy) trusted() bool {
	begun, ok := h.sight.since()
	return ok && h.sound.Equal(begun)
}

// raiseAtOnce bounds the members of one command.
const raiseAtOnce = 50

// regainTrust has haproxy take up again the members that it has found down while the agent did not
// run, once all checks of that time are over.
func (h *haproxy) regainTrust(ctx context.Context, c *plan.Container) error {
	begun, ok := h.sight.since()
	if !ok || time.Since(begun) < c.LongestCheck() {
		return nil
	}
	up := func(member string) bool { return h.known(member) == topology.MemberActive }
	for part := range slices.Chunk(plan.Raise(c, up), raiseAtOnce) {
		if _, err := h.ask(ctx, strings.Join(part, ";")); err != nil {
			return err
		}
	}
	h.sound = begun
	return nil
}

// awaitAnswer waits until haproxy answers, or has ended.
func (h *haproxy) awaitAnswer(ctx context.Context, over chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		_, err := h.ask(ctx, "show info")
		if err == nil {
			return nil
		}
		select {
		case <-over:
			return errors.New(<-h.ended)
		case <-ctx.Done():
			return fmt.Errorf("haproxy does not answer: %w", err)
		case <-look.C:
		}
	}
}

// reload has haproxy read its configuration again, with the state of the members that stay and what
// is known of others.
func (h *haproxy) reload(ctx context.Context, c *plan.Container) error {
	state, err := h.ask(ctx, "show servers state")
	if err != nil {
		return h.endHung(ctx, err)
	}
	if err := h.writeState(plan.Kept(state, h.loaded, c), c); err != nil {
		return err
	}
	before, err := h.worker(ctx)
	if err == nil {
		err = h.awaitWorker(ctx, before)
	}
	if err != nil {
		return h.endHung(ctx, err)
	}
	return nil
}

// endHung ends a haproxy that has answered with an error or not at all, so that the next attempt
// starts another one; one that has ended by itself has said why. If ctx has ended, so has the
// attempt alone.
func (h *haproxy) endHung(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	select {
	case why := <-h.ended:
		err = errors.New(why)
	default:
		err = fmt.Errorf("haproxy hangs: %w", err)
	}
	return errors.Join(err, endProcesses(h.ns))
}

// signalAgain is the pause after which haproxy is asked to reload again: it misses the signal while
// it starts.
const signalAgain = 500 * time.Millisecond

// awaitWorker has haproxy reload until another worker answers.
func (h *haproxy) awaitWorker(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for signalled := (time.Time{}); ; {
		if time.Since(signalled) > signalAgain {
			if err := unix.Kill(h.pid, unix.SIGUSR2); err != nil {
				return fmt.Errorf("reload haproxy: %w", err)
			}
			signalled = time.Now()
		}
		if now, err := h.worker(ctx); err == nil && now != before {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("haproxy does not reload")
		case <-look.C:
		}
	}
}

// worker returns the process id of the worker that answers.
func (h *haproxy) worker(ctx context.Context) (string, error) {
	info, err := h.ask(ctx, "show info")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if pid, ok := strings.CutPrefix(line, "Pid: "); ok {
			return strings.TrimSpace(pid), nil
		}
	}
	return "", errors.New("haproxy's information has no process id")
}

// stop ends haproxy: there is nothing to check.
func (h *haproxy) stop() error {
	if !h.runs() {
		return nil
	}
	if err := endProcesses(h.ns); err != nil {
		return err
	}
	<-h.ended
	h.pid, h.text, h.loaded = 0, "", nil
	return os.Remove(h.file(pidFile))
}

// stats returns the verdicts that haproxy has reached.
func (h *haproxy) stats(ctx context.Context) ([]plan.Verdict, error) {
	text, err := h.ask(ctx, "show stat -1 4 -1")
	if err != nil {
		return nil, err
	}
	return plan.ParseStats(text)
}

// maxAnswer bounds an answer of haproxy, bytes.
const maxAnswer = 64 << 20

// ask asks haproxy by its socket.
func (h *haproxy) ask(ctx context.Context, question string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", h.socket(plan.AdminSocket))
	if err != nil {
		return "", fmt.Errorf("haproxy's socket: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, question+"\n"); err != nil {
		return "", fmt.Errorf("haproxy's socket: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(c, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("haproxy's socket: %w", err)
	}
	return strings.TrimLeft(string(answer), "\n"), nil
}

// lastWords returns the last line that haproxy has printed, after a colon.
func (h *haproxy) lastWords() string {
	raw, err := os.ReadFile(h.file(outputFile))
	if line := lastLine(raw); err == nil && line != "" {
		return ": " + line
	}
	return ""
}

// firstAlert returns the first error that haproxy has printed, such as
//
//	[ALERT]    (123) : config : parsing [haproxy.cfg:20] : invalid range of status codes.
//
// without its level and process id. Later ones follow from it. Without any it is the last line.
func firstAlert(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if alert, ok := strings.CutPrefix(line, "[ALERT]"); ok {
			_, message, _ := strings.Cut(alert, " : ")
			return strings.TrimSpace(message)
		}
	}
	return lastLine(text)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/netlab/guest"
)

// TestGuidesFromNothing follows each guide on fresh machines, as a reader who pastes every block
// would.
func TestGuidesFromNothing(t *testing.T) {
	t.Parallel()
	for at, g := range guides {
		t.Run(filepath.Base(at), func(t *testing.T) {
			t.Parallel()
			follow(t, at, g)
		})
	}
}

// TestGuideBlocks requires every guide with commands to be followed, and every step to match a
// block.
func TestGuideBlocks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(pagePath("*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for at := range guides {
		page, _, _ := strings.Cut(at, "#")
		if path := pagePath(page); !slices.Contains(pages, path) {
			pages = append(pages, path)
		}
	}
	for _, path := range pages {
		page, err := filepath.Rel(pagePath("."), path)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, b := range blocks(t, page) {
			names[b.name] = true
		}
		if _, followed := guides[page]; !followed && len(names) > 0 {
			t.Errorf("docs/guides/%s has commands, and no test follows it: add it to guides", page)
		}
		for at, g := range guides {
			if of, _, _ := strings.Cut(at, "#"); of != page {
				continue
			}
			for name := range g.blocks {
				if !names[name] {
					t.Errorf("docs/guides/%s has no block that begins with %q", at, name)
				}
			}
		}
	}
}

// block is a run of indented lines of a page.
type block struct {
	page, section string
	before        string // the paragraph before it
	name          string // the first line; of the second block with the same one " (2)" follows
	text          string
	line          int
}

var heading = regexp.MustCompile("^#+ (.*)")

// blocks returns the indented blocks of a page. A blank line ends a block.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	raw, err := os.ReadFile(pagePath(page))
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	var section string
	seen := map[string]int{}
	next := 0 // where the next paragraph begins
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\n\n", "\n\x00\n"), "\x00\n") {
		at := next
		next += len(paragraph) + len("\n")
		if m := heading.FindStringSubmatch(paragraph); m != nil {
			section = m[1]
		}
		lines := strings.Split(strings.TrimRight(paragraph, "\n"), "\n")
		indent := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
		if indent < 4 {
			continue
		}
		var text strings.Builder
		for _, line := range lines {
			text.WriteString(strings.TrimPrefix(line, strings.Repeat(" ", indent)) + "\n")
		}
		before := strings.TrimRight(string(raw)[:at], "\n")
		before = before[strings.LastIndex(before, "\n\n")+1:]
		name := strings.TrimSpace(lines[0])
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" (%d)", seen[name])
		}
		all = append(all, block{page: page, section: section, before: before, name: name, text: text.String(), line: 1 + strings.Count(string(raw)[:at], "\n")})
	}
	return all
}

// pagePath returns the path of a page, given its path relative to the guides.
func pagePath(page string) string {
	return filepath.Join("..", "..", "docs", "guides", page)
}

var (
	contentOfFile = regexp.MustCompile(`^(?:[a-z-]+:(?: |$)|\[\w+\]$|[A-Z_]+=\S+$)`)
	quoted        = regexp.MustCompile("`([^`\\s]*[./][^`\\s]*)`")
	joinToken     = regexp.MustCompile(`heddle-(?:join|server)-1\.[\w.-]+`)
	// staysRunning lists commands that run until Ctrl-C.
	staysRunning = regexp.MustCompile(`^(?:runuser .* -- (?:env \S+ )?)?(?:heddle|calico-dhcp-agent)(?: (?:agent|serve|xapi|tunnel-controller)(?: -|$)|.* watch| --config-file)[^|&]*$`)
)

// follower runs the blocks of a guide.
type follower struct {
	t        *testing.T
	lab      *netlab.Lab
	wire     *netlab.Namespace
	guide    guide
	machines map[string]*machine
	shared   string // /opt/heddle-shared of all machines
	token    string // the last join token that was printed
}

// machine is a shell on one of the guide's machines.
type machine struct {
	name  string
	shell *exec.Cmd
	in    *os.File
	lines chan string
	tmp   string
	count int
	log   strings.Builder
}

// follow runs all blocks of a page, or of its section: PAGE#SECTION.
func follow(t *testing.T, at string, g guide) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes machines of namespaces: run it as root")
	}
	f := &follower{t: t, lab: netlab.ForTest(t), guide: g, machines: map[string]*machine{}, shared: t.TempDir()}
	if g.guests {
		f.shareGuest()
	}
	f.wire = f.lab.MustNamespace(t, "wire")
	f.wire.MustIP(t, "link add underlay type bridge", "link set underlay up")
	for i, m := range g.machines {
		f.machines[m.name] = f.boot(m, i > 0)
	}
	for _, at := range g.after {
		page, section, _ := strings.Cut(at, "#")
		other := guides[page]
		found := false
		for _, b := range blocks(t, page) {
			if b.section == section {
				found = true
				f.run(b, other.blocks[b.name])
			}
		}
		if !found {
			t.Fatalf("%s has no blocks in a section %q", page, section)
		}
	}
	page, section, _ := strings.Cut(at, "#")
	for _, b := range blocks(t, page) {
		if section == "" || b.section == section {
			f.run(b, g.blocks[b.name])
		}
	}
}

// shareGuest puts what guests boot, and a busybox that needs no libraries, where all machines see
// it.
func (f *follower) shareGuest() {
	f.t.Helper()
	image, err := guest.Build(f.shared)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"vmlinuz", "busybox"} {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(image.Kernel), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(f.shared, name), raw, 0o755)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// boot creates a machine from namespaces: see testdata/guides/machine.
func (f *follower) boot(at machineAt, installed bool) *machine {
	t := f.t
	t.Helper()
	ns := f.lab.MustNamespace(t, at.name)
	f.lab.MustVeth(t, f.wire, at.name, ns, "eth0")
	f.wire.MustIP(t, "link set "+at.name+" master underlay")
	ns.MustIP(t, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", at.last))
	binary, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{name: at.name, tmp: t.TempDir(), lines: make(chan string)}
	m.shell = exec.Command("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL",
		"bash", filepath.Join("testdata", "guides", "machine"), at.name, m.tmp, binary, source, f.shared)
	if installed {
		m.shell.Env = append(os.Environ(), "INSTALLED=yes")
	}
	for _, folder := range []string{"machine", "blocks"} {
		if err := os.Mkdir(filepath.Join(m.tmp, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.shell.Stdout, m.shell.Stderr = write, write
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.shell.Stdin, m.in = commands, in
	if err := ns.Start(m.shell); err != nil {
		t.Fatal(err)
	}
	write.Close()
	commands.Close()
	go func() {
		defer close(m.lines)
		for s := bufio.NewScanner(read); s.Scan(); {
			m.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		_ = m.shell.Process.Kill() // and with it all that runs on the machine
		for range m.lines {
		}
		_ = m.shell.Wait()
		if t.Failed() || testing.Verbose() {
			t.Logf("on %s:\n%s", m.name, m.log.String())
		}
	})
	return m
}

// run follows one block.
func (f *follower) run(b block, s blockStep) {
	f.t.Helper()
	if s.notRun != "" {
		return
	}
	on := s.on
	if len(on) == 0 {
		on = []string{f.guide.machines[0].name}
	}
	var waits sync.WaitGroup
	failed := make([]error, len(on))
	for i, name := range on {
		m := f.machines[name]
		if m == nil {
			f.t.Fatalf("docs/guides/%s:%d: no machine %s", b.page, b.line, name)
		}
		if s.token != "" {
			kind := "host"
			if strings.Contains(b.text, "heddle-server-1.") {
				kind = "cluster"
			}
			if err := f.execute(f.machines[f.guide.machines[0].name], "heddle "+kind+" token "+strings.ReplaceAll(s.token, "{machine}", name), ""); err != nil {
				f.t.Fatal(err)
			}
		}
		script := f.script(b, s, name)
		waits.Go(func() {
			begin := time.Now()
			fmt.Fprintf(&m.log, "# %s:%d %s\n", b.page, b.line, b.name)
			if failed[i] = f.execute(m, script, s.until); failed[i] == nil && s.then != "" {
				failed[i] = f.execute(m, s.then, "")
			}
			fmt.Fprintf(&m.log, "# took %s\n", time.Since(begin).Round(time.Millisecond))
		})
	}
	waits.Wait()
	for i, err := range failed {
		if err != nil {
			f.t.Fatalf("docs/guides/%s:%d, on %s: %v\n%s", b.page, b.line, on[i], err, b.text)
		}
	}
}

// script returns the shell script of a block for a machine.
func (f *follower) script(b block, s blockStep, on string) string {
	f.t.Helper()
	text := b.text
	for from, to := range s.change {
		if !strings.Contains(text, from) {
			f.t.Fatalf("docs/guides/%s:%d: there is no %q in the block", b.page, b.line, from)
		}
		text = strings.ReplaceAll(text, from, strings.ReplaceAll(to, "{machine}", on))
	}
	for _, kind := range []string{"join", "server"} {
		text = strings.ReplaceAll(text, "heddle-"+kind+"-1.eyJz…", f.token)
	}
	text = strings.ReplaceAll(text, "--join TOKEN", "--join "+f.token)
	text = strings.ReplaceAll(text, "ADDRESS-OF-THIS-HOST", "192.0.2.1")
	if s.file != "" || contentOfFile.MatchString(strings.TrimSuffix(b.name, " (2)")) {
		file := s.file
		if file == "" {
			names := quoted.FindAllStringSubmatch(b.before, -1)
			if len(names) == 0 {
				f.t.Fatalf("docs/guides/%s:%d: the paragraph before this file does not name it:\n%s", b.page, b.line, b.before)
			}
			file = names[len(names)-1][1]
		}
		return "cat > " + file + " <<'END-OF-FILE'\n" + text + "END-OF-FILE\n"
	}
	var script strings.Builder
	for line := range strings.Lines(text) {
		if staysRunning.MatchString(strings.TrimSpace(line)) && !strings.Contains(line, "--cleanup") {
			line = "until_ctrl_c " + line
		}
		script.WriteString(line)
	}
	return untilCtrlC + s.first + "\n" + script.String()
}

// untilCtrlC defines a shell function that runs a command until it is ready, then interrupts it.
const untilCtrlC = `until_ctrl_c() {
    set -m # a process group of its own
    "$@" & running=$!
    set +m
    case " $* " in
    *" serve "*) port=9697 ;;
    *" agent "*) port=9699 ;;
    *" watch "*) port=; sleep 1 ;;
    *) echo "when is $* ready?"; return 1 ;;
    esac
    if [ -n "$port" ]; then
        for n in $(seq 300); do
            ! curl -sf http://127.0.0.1:$port/readyz || break
            kill -0 $running || return 1
            sleep 0.2
        done
    fi
    kill -INT -- -$running
    wait $running || [ $? = 130 ] # of runuser itself
}
`

// execute runs a script in the machine's shell and waits for its end.
func (f *follower) execute(m *machine, script, until string) error {
	end := time.Now().Add(2 * time.Minute)
	for {
		out, err := m.execute(script, end)
		if token := joinToken.FindString(out); token != "" && err == nil {
			f.token = token
		}
		if err != nil {
			return err
		}
		if strings.Contains(out, until) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the output lacks %q:\n%s", until, out)
		}
	}
}

func (m *machine) execute(script string, end time.Time) (string, error) {
	m.count++
	name := fmt.Sprintf("block%d", m.count)
	if err := os.WriteFile(filepath.Join(m.tmp, "blocks", name), []byte(script), 0o600); err != nil {
		return "", err
	}
	file := "/opt/heddle-blocks/" + name
	if _, err := fmt.Fprintln(m.in, file); err != nil {
		return "", err
	}
	var out strings.Builder
	timeout := time.After(time.Until(end))
	for {
		select {
		case line, more := <-m.lines:
			if !more {
				return out.String(), fmt.Errorf("the shell ended:\n%s", out.String())
			}
			if line == "done "+file {
				return out.String(), nil
			}
			out.WriteString(line + "\n")
			m.log.WriteString(line + "\n")
		case <-timeout:
			return out.String(), fmt.Errorf("no end within two minutes:\n%s", out.String())
		}
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"heddle/internal/dhcp/oslo"
)

// commandLine finds calls of heddle, by one of its names, in guides and unit files: at the begin of
// a line or after another command.
var commandLine = regexp.MustCompile(`(?m)(?:^    |^ExecStart=|exec |-- |=… )(?:/usr/local/bin/)?(heddle|` + calicoDHCPAgent + `) ([a-z-].*)$`)

// TestGuides holds the commands in the guides and units against the commands there are: names,
// flags and arguments.
func TestGuides(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"*.md", "files/*.service", "../runbooks/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "docs", "guides", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	count := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commandLine.FindAllStringSubmatch(string(raw), -1) {
			count++
			if err := parse(commandArgs(append([]string{m[1]}, shellWords(m[2])...))); err != nil {
				t.Errorf("%s: %s %s: %v", file, m[1], m[2], err)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d commands found in %v", count, files)
	}
}

// TestGuidesStopSockets: who stops a server by a guide stops heddle.socket with it, since the next
// client would start it again.
func TestGuidesStopSockets(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(pagePath("*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	alone := regexp.MustCompile(`systemctl (?:stop|disable --now)(?: heddle-[a-z-]+)* heddle(?:\.service)?[^\w.-]`)
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if found := alone.FindString(string(raw)); found != "" {
			t.Errorf("%s: %q: want heddle.socket before heddle", page, found)
		}
	}
}

// TestSosPlugin: the plug-in of sos is Python, and calls commands that there are.
func TestSosPlugin(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "python3", "testdata/sos_commands.py", filepath.Join("..", "..", "docs", "guides", "files", "sos_heddle.py")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(commands) != 4 {
		t.Errorf("want four commands:\n%s", out)
	}
	for _, line := range commands {
		program, args, _ := strings.Cut(line, " ")
		if err := parse(strings.Fields(args)); err != nil || program != "heddle" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestUnitsLeaveDnsmasq: a DHCP agent that is restarted by systemd leaves its dnsmasq to the next
// one.
func TestUnitsLeaveDnsmasq(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"heddle-agent", calicoDHCPAgent} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "files", unit+".service"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "\nKillMode=process\n") {
			t.Errorf("%s.service: want KillMode=process, so that leases go on", unit)
		}
	}
}

// TestBackupsOfOperatorsStay: the unit of nightly backups removes old ones of its own alone.
func TestBackupsOfOperatorsStay(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "files", "heddle-backup.service"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	old := time.Now().Add(-20 * 24 * time.Hour)
	for _, name := range []string{"2026-01-02-0304.db", "today.db", "before-upgrade.db", "2026-01-02-0304-mine.db"} {
		file := filepath.Join(dir, name)
		writeFile(t, file, "")
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, old.Format("2006-01-02-1504")+".db"), "")
	find := regexp.MustCompile(`(?m)^ExecStart=(/usr/bin/find .*)$`).FindSubmatch(raw)
	if find == nil {
		t.Fatal("the unit removes no old backups")
	}
	line := strings.ReplaceAll(string(find[1]), "/var/backups/heddle", dir)
	if out, err := exec.CommandContext(t.Context(), "sh", "-fc", line).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(left) != 4 || strings.Contains(strings.Join(left, " "), "2026-01-02-0304.db") {
		t.Errorf("%v left: %v; want all but 2026-01-02-0304.db", left, err)
	}
}

// TestUnitsStartAgain: systemd never gives a part up that runs on and is started again when it
// ends, and knows when it is ready, for which it waits without limit.
func TestUnitsStartAgain(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob(filepath.Join("..", "..", "docs", "guides", "files", "*.service"))
	if err != nil || len(units) < 6 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		raw, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if strings.Contains(text, "\nType=oneshot\n") {
			continue
		}
		for _, setting := range []string{"Restart=always", "StartLimitIntervalSec=0", "Type=notify", "TimeoutStartSec=infinity"} {
			if !strings.Contains(text, "\n"+setting+"\n") {
				t.Errorf("%s: want %s", unit, setting)
			}
		}
	}
}

// TestUnitsReadVariables: each unit takes variables from the file that the guides name.
func TestUnitsReadVariables(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob(filepath.Join("..", "..", "docs", "guides", "files", "*.service"))
	if err != nil || len(units) < 6 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		raw, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "\nEnvironmentFile=-/etc/default/heddle\n") {
			t.Errorf("%s: want EnvironmentFile=-/etc/default/heddle", unit)
		}
	}
}

// TestUnitsAreHardened: systemd's own measure of what is left to attack is at most 1.5 of what runs
// without root, 5.5 of the agent, and 5.0 of the DHCP agent.
func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	for unit, most := range map[string]string{"heddle": "15", "heddle-xapi": "15", "heddle-tunnel-controller": "15", "heddle-agent": "55", calicoDHCPAgent: "50"} {
		file := filepath.Join("..", "..", "docs", "guides", "files", unit+".service")
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+most, file).CombinedOutput()
		if err != nil {
			t.Errorf("%v: more than a tenth of %s:\n%s", err, most, out)
		}
	}
}

// parse does what a command line makes before the command begins its work.
func parse(args []string) error {
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// shellWords splits a command as a shell does, as far as the guides need: quotes, and the end at a
// comment, a pipe or the quote of a surrounding command.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	inside, depth := false, 0
	flush := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, r := range line {
		switch {
		case quote == 0 && depth == 0 && (r == ' ' || r == '\t'):
			flush()
			continue
		case quote == 0 && depth == 0 && (r == '#' && !inside || r == '|' || r == ';'):
			flush()
			return words
		case quote != 0 && r == quote:
			quote = 0
			continue
		case quote == 0 && depth == 0 && (r == '"' || r == '\''):
			quote, inside = r, true
			continue
		case r == '(' && strings.HasSuffix(word.String(), "$"), r == '(' && depth > 0:
			depth++
		case r == ')' && depth > 0:
			depth--
		}
		word.WriteRune(r)
		inside = true
	}
	if quote != 0 && len(words) > 0 { // the quote around the whole command has ended
		word.WriteRune(quote)
	}
	flush()
	return words
}

// TestNeutronOptions reads the group calico as a guide shows it.
func TestNeutronOptions(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "dhcp.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)^    \[calico\]\n(?:    .*\n)+`).FindString(string(raw))
	file := filepath.Join(t.TempDir(), "ml2_conf.ini")
	writeFile(t, file, strings.ReplaceAll(block, "    ", ""))
	s, err := (&dhcpAgentConfig{files: []string{file}}).settings()
	if err != nil {
		t.Fatal(err)
	}
	want := oslo.Etcd{Endpoint: "https://192.0.2.1:2379", CACertFile: "/etc/neutron/etcd/ca.crt", CertFile: "/etc/neutron/etcd/client.crt", KeyFile: "/etc/neutron/etcd/client.key"}
	if s.Etcd != want {
		t.Errorf("%+v, want %+v", s.Etcd, want)
	}
}

// TestConfigurations parses the file that the guides start from, and the settings in them.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	guides := filepath.Join("..", "..", "docs", "guides")
	files := []string{filepath.Join(guides, "files", "heddle.yaml")}
	pages, err := filepath.Glob(filepath.Join(guides, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile(`(?m)^    (?:serve|agent|xapi|tunnel-controller):\n(?:      .*\n)+`).FindAllString(string(raw), -1) {
			file := filepath.Join(t.TempDir(), filepath.Base(page))
			writeFile(t, file, block)
			files = append(files, file)
		}
	}
	if len(files) < 4 {
		t.Errorf("only %d configurations found", len(files))
	}
	for _, file := range files {
		for _, cmd := range newRoot().Commands() {
			err := configure(cmd, file, func(string) (string, bool) { return "", false })
			if err != nil {
				t.Error(err)
			}
		}
	}
}

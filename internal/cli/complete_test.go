package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"heddle/internal/admin"
	"heddle/internal/cloud"
	"heddle/internal/telemetry"
)

// completing returns the words and the directive that a shell gets for the last of the arguments.
func completing(t *testing.T, cmd *cobra.Command, args ...string) (words []string, directive string) {
	t.Helper()
	root := &cobra.Command{Use: "heddle"}
	root.AddCommand(cmd)
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd, cmd.Name()}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	words = strings.Split(strings.TrimSpace(out.String()), "\n")
	return words[:len(words)-1], words[len(words)-1]
}

// startRole serves the socket of a role that has parts which log.
func startRole(t *testing.T, dir, role string, parts ...string) {
	t.Helper()
	levels := telemetry.NewLevels(slog.LevelInfo)
	for _, part := range parts {
		levels.Handler(slog.DiscardHandler).WithAttrs([]slog.Attr{slog.String("part", part)})
	}
	s := admin.NewServer(admin.Options{Dir: dir, Role: role, Levels: levels, Metrics: telemetry.NewMetrics("v1"), Log: slog.New(slog.DiscardHandler), Waiting: func() []string { return nil }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
}

// TestCompleteLogLevel: levels and parts are completed, those of roles that answer even while
// another role hangs.
func TestCompleteLogLevel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startRole(t, dir, "agent", "overlay", "store")
	startRole(t, dir, "serve", "neutron", "store")
	hung, err := net.Listen("unix", admin.Path(dir, "xapi")) // takes calls, and answers none
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })
	levels := []string{"debug", "info", "warn", "error", "default"}
	const noFile, noFileNoSpace = ":4", ":6"
	for _, c := range []struct {
		args      []string
		want      []string
		directive string
	}{
		{[]string{""}, append(slices.Clone(levels), "neutron=", "overlay=", "store="), noFileNoSpace},
		{[]string{"--role", "agent", ""}, append(slices.Clone(levels), "overlay=", "store="), noFileNoSpace},
		{[]string{"overlay="}, []string{"overlay=debug", "overlay=info", "overlay=warn", "overlay=error", "overlay=default"}, noFile},
		{[]string{"debug", ""}, nil, noFile},
	} {
		words, directive := completing(t, logLevelCommand(), append([]string{"--run-dir", dir}, c.args...)...)
		if !slices.Equal(words, c.want) || directive != c.directive {
			t.Errorf("%q is completed as %q, %s, want %q, %s", c.args, words, directive, c.want, c.directive)
		}
	}
}

// TestCompletionTimeout: completions give up on an API that takes calls and answers none.
func TestCompletionTimeout(t *testing.T) {
	t.Setenv("OS_CLOUD", "")
	t.Setenv("OS_AUTH_URL", "")
	gaveUp := make(chan error, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body) // from here on the server sees the client go
		<-r.Context().Done()
		gaveUp <- err
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	login := "clouds:\n  heddle:\n    auth: {auth_url: " + api.URL + "/v3, username: u, password: p, project_name: p, user_domain_id: default, project_domain_id: default}\n"
	if err := os.WriteFile(filepath.Join(dir, "clouds.yaml"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cmd  *cobra.Command
		args string
	}{{plugCommand(), "--tap"}, {unplugCommand(), ""}, {hostCommand(), "remove"}} {
		words, directive := completing(t, c.cmd, append(strings.Fields(c.args), "--data", dir, "")...)
		if len(words) > 0 || directive != ":1" {
			t.Errorf("%s %s is completed as %q, %s, want an error", c.cmd.Name(), c.args, words, directive)
		}
		if err := <-gaveUp; err != nil {
			t.Error(err)
		}
	}
}

// TestPlainWords: bash takes each plain word for itself, wherever punctuation is in it, and words
// that a shell or cobra would read as something else are not plain.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	var words []string
	for a := rune(1); a < 256; a++ {
		for b := rune(1); b < 256; b++ {
			for _, word := range []string{string(a) + string(b), "x" + string(a) + string(b) + "y"} {
				if isPlainWord(word) {
					words = append(words, word)
				}
			}
		}
	}
	if len(words) < 2*62*62 {
		t.Fatalf("%d words are plain, want all of letters and digits at least", len(words))
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", `while IFS= read -r word; do eval "set -- $word"; echo "$# $1"; done`)
	bash.Dir, bash.Stdin = t.TempDir(), strings.NewReader(strings.Join(words, "\n")+"\n")
	out, err := bash.CombinedOutput()
	if got, want := string(out), "1 "+strings.Join(words, "\n1 ")+"\n"; err != nil || got != want {
		t.Errorf("bash does not take all words as they are: %v\n%s", err, got[:min(len(got), 1000)])
	}
	for _, word := range []string{"", "-", "--help", "a b", "a\tb", "a\nb", "web$(reboot)1", "`reboot`", "a;b", "a|b", "a&b", "<a", "a>b", "(a)", "{a,b}", "*", "a?", "[a]", "~", "!a", "#a", "^a",
		"=ls", "a=b", `a\b`, `"a`, "'a", "$a", "größe", "\u3000", "a\x00", "a\xff", "\u202e", "_activeHelp_ x"} {
		if isPlainWord(word) {
			t.Errorf("%q is a plain word", word)
		}
	}
}

// TestCallable: what shells would evaluate is never offered: ids or nothing in place of names,
// and no term about such labels.
func TestCallable(t *testing.T) {
	t.Parallel()
	const evil = "web$(reboot)"
	hosts := []cloud.Object{{"name": "h2", "id": "2"}, {"name": "h1", "id": "1"}, {"name": evil, "id": "3"}, {"name": "", "id": "4"}, {"name": "h1", "id": "5"}, {"name": evil, "id": evil}, {"name": "--force"}}
	if got, want := callable(hosts, "", []string{"name", "id"}), []string{"1\th1", "3\t" + evil, "4", "5\th1", "h2"}; !slices.Equal(got, want) {
		t.Errorf("hosts by name or id: %q, want %q", got, want)
	}
	if got, want := callable(hosts, "", []string{"name"}), []string{"h1", "h2"}; !slices.Equal(got, want) {
		t.Errorf("hosts by name: %q, want %q", got, want)
	}
	objects := []cloud.Object{{"name": "own", "id": "1", "project_id": "p"}, {"name": "own", "id": "2", "project_id": "q"}, {"name": "a\nb", "id": "3", "project_id": "p"}}
	if got, want := callable(objects, "p", []string{"name", "id"}), []string{"2\town", "3\ta\\nb", "own"}; !slices.Equal(got, want) {
		t.Errorf("objects by name or id: %q, want %q", got, want)
	}
	complete := others(cobra.FixedCompletions([]cobra.Completion{"1\town", "2\town", "plain"}, cobra.ShellCompDirectiveNoFileComp))
	if got, _ := complete(&cobra.Command{}, []string{"plain", "1"}, ""); !slices.Equal(got, []string{"2\town"}) {
		t.Errorf("beside arguments that are there: %q", got)
	}
	terms := selectorTerms("(", map[string]string{"role": "web", "env": evil, evil: "x", "bare": ""})
	slices.Sort(terms)
	if want := []string{`(bare == ""`, "(has(bare)", "(has(env)", "(has(role)", `(role == "web"`}; !slices.Equal(terms, want) {
		t.Errorf("terms: %q, want %q", terms, want)
	}
}

package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"heddle/internal/admin"
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

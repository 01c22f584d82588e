package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"heddle/internal/admin"
	"heddle/internal/cloud"
	"heddle/internal/command"
	"heddle/internal/terminal"
)

const (
	// profileSeconds is the length of a CPU profile. The minute of a bundle has to do for those of
	// all roles, one after the other, and for all else: two of 30 s would take it all.
	profileSeconds = 5

	profile = ".pb.gz" // end of the names of profiles

	// lowPriority takes a tenth of a processor that others want, too. The lowest takes a hundredth:
	// no command of a bundle would end on a machine that is busy, where bundles are wanted most.
	lowPriority = 10
)

// Source is a file of a support bundle, and how it is made.
type Source struct {
	Name string
	Read func(context.Context) ([]byte, error)
}

// SupportCommand returns the command that collects what helps to find a fault of this machine's
// roles. settings returns the path of the machine's settings, "" if it has none, and the secrets in
// them, which are struck out everywhere. kernel are the files of other packages about the kernel.
func SupportCommand(settings func(*cobra.Command) (path string, secrets []string), kernel ...Source) *cobra.Command {
	var out, data, state string
	var hosts []string
	var hours int
	var longest time.Duration
	var anonymise bool
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect what helps to find a fault into one file, without secrets",
		Long: "Collects versions, settings, units, logs, metrics, goroutines and profiles of this machine's roles, what heddle status, doctor\n" +
			"and store status say, the number of keys in each table of the store and its last changes without values, and links, addresses, routes, rules and the sizes of eBPF maps\n" +
			"of the kernel into a tar.gz with a manifest.\n" +
			"Passwords, tokens and keys are struck out, and packets and user data are not read. What --timeout leaves no time for is missing and named.\n" +
			"Settings are those of Heddle's units, /etc/heddle/heddle.yaml, unless --config names others.\n" +
			"With --hosts the agents of these hosts do the same, and each host has a file. This takes an administrator's credentials and can be run anywhere.",
		Args: cobra.NoArgs,
	}
	s := socketFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&out, "output-file", "f", "", "`file` to write, with --hosts their directory (default heddle-support-HOST-TIME.tar.gz here)")
	f.StringSliceVar(&hosts, "hosts", nil, "`names` of the hosts, joined by commas, or all: those with virtual networks")
	f.IntVar(&hours, "hours", 24, "hours of the logs that are collected")
	f.DurationVar(&longest, "timeout", time.Minute, "longest time to collect; no file takes more than a third of it")
	f.BoolVar(&anonymise, "anonymise", false, "replace addresses and the names of machines and ports, the same everywhere")
	DataFlag(f, &data, "data `directory` of heddle serve, if this machine has one")
	f.StringVar(&state, "state", "/var/lib/heddle-agent", "state `directory` of heddle agent, if this machine has one")
	ofSections(f, "state", "agent")
	cmd.MarkFlagsMutuallyExclusive("hosts", "timeout")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if hours < 1 {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--hours %d: want 1 or more", hours)}
		}
		if len(hosts) > 0 {
			login := cloud.Config{TokenDir: cloud.UserTokenDir(), DataDir: data}
			return gatherBundles(cmd, &login, hosts, gathered{dir: out, hours: hours, anonymise: anonymise})
		}
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		out = cmp.Or(out, bundleName(host, time.Now()))
		config, secrets := settings(cmd)
		strike := newStrikeOut(append(secrets, secretsIn(data, state)...))
		if anonymise {
			strike.anonymise(host)
		}
		// Without it only the machine's other programs wait longer.
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, lowPriority)
		m, err := writeBundle(cmd.Context(), longest, out, s.sources(config, data, hours, kernel), strike)
		if err != nil {
			return err
		}
		for _, f := range m.Files {
			if f.Error != "" {
				terminal.Fprintf(cmd.ErrOrStderr(), "not collected: %s: %s\n", f.Name, f.Error)
			}
		}
		_, err = terminal.Fprintf(cmd.OutOrStdout(), "%s: %d files; look through it before you hand it on\n", out, len(m.Files))
		return err
	}
	return cmd
}

// bundleName returns the name of the file with a bundle of a host.
func bundleName(host string, at time.Time) string {
	return "heddle-support-" + host + "-" + at.UTC().Format("20060102-150405") + ".tar.gz"
}

// sources returns what a bundle holds. What takes longest comes last.
func (s *sockets) sources(config, data string, hours int, kernel []Source) []Source {
	own := func(name string, args ...string) Source {
		if config != "" {
			args = append(args, "--config", config)
		}
		return ownOutput(name, args...)
	}
	all := []Source{
		own("version.txt", "version"),
		file("kernel.txt", "/proc/version"),
		file("system.txt", "/etc/os-release"),
		own("status.json", "status", "-o", "json", "--data", data),
		own("doctor.json", "doctor", "-o", "json", "--data", data),
		own("store.json", "store", "status", "-o", "json", "--data", data),
		own("store-tables.json", "store", "tables", "-o", "json", "--data", data),
		own("store-changes.json", "store", "changes", "-o", "json", "--data", data),
		own("upgrade.json", "upgrade", "status", "-o", "json", "--data", data),
	}
	for _, role := range roleNames {
		all = append(all, own("settings/"+role+".txt", "config", "show", role))
	}
	roles, _ := admin.Roles(s.dir) // without the directory no role runs
	for _, role := range roles {
		all = append(all, s.page(role, "status.json", "/v1/status"), s.page(role, "log-level.json", "/v1/log-level"),
			s.page(role, "metrics.txt", "/metrics"), s.page(role, "goroutines.txt", "/debug/pprof/goroutine?debug=2"))
	}
	all = append(all,
		units("units.txt", "cat"),
		units("units-state.txt", "show"),
		outputOf("log.txt", exec.Command("journalctl", "--no-pager", "--output", "short-iso", "--unit", "heddle*", "--unit", "calico-dhcp-agent*", "--since", fmt.Sprintf("-%dh", hours))),
		outputOf("kernel/links.txt", exec.Command("ip", "-d", "-s", "link")),
		outputOf("kernel/addresses.txt", exec.Command("ip", "addr")),
		outputOf("kernel/routes.txt", exec.Command("ip", "route", "show", "table", "all")),
		outputOf("kernel/rules.txt", exec.Command("ip", "rule")),
		outputOf("kernel/nft.txt", exec.Command("nft", "list", "ruleset")),
	)
	all = append(all, kernel...)
	for _, role := range roles {
		all = append(all, s.page(role, "heap"+profile, "/debug/pprof/heap"), s.page(role, "cpu"+profile, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds)))
	}
	return all
}

// page returns what a running role serves at a path.
func (s *sockets) page(role, name, path string) Source {
	c := admin.Dial(s.dir, role)
	return Source{role + "/" + name, func(ctx context.Context) ([]byte, error) { return c.Get(ctx, path) }}
}

// units returns what systemctl prints of Heddle's units, and of a slice that is named after it.
func units(name, verb string) Source {
	s := outputOf(name, exec.Command("systemctl", "--no-pager", verb, "heddle*", "calico-dhcp-agent*", "system-heddle*"))
	return Source{name, func(ctx context.Context) ([]byte, error) {
		text, err := s.Read(ctx)
		return withoutUnitSecrets(text), err
	}}
}

func file(name, path string) Source {
	return Source{name, func(context.Context) ([]byte, error) { return os.ReadFile(path) }}
}

// ownOutput returns what a command of this program prints. One that finds something wrong ends with
// an error, but has printed it.
func ownOutput(name string, args ...string) Source {
	executable, err := os.Executable()
	if err != nil {
		return Source{name, func(context.Context) ([]byte, error) { return nil, err }}
	}
	return outputOf(name, exec.Command(executable, args...))
}

// outputOf returns what a program prints.
func outputOf(name string, cmd *exec.Cmd) Source {
	return Source{name, func(ctx context.Context) ([]byte, error) {
		var text, errs limited
		cmd.Stdout, cmd.Stderr = &text, &errs
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var err error
		select {
		case err = <-ended:
		case <-ctx.Done():
			_ = cmd.Process.Kill() // it may have ended by itself
			<-ended
			err = ctx.Err()
		}
		if err != nil && len(text.kept) == 0 {
			return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(string(errs.kept)))
		}
		return text.kept, nil
	}}
}

// limited keeps the beginning of what is written to it.
type limited struct{ kept []byte }

func (l *limited) Write(b []byte) (int, error) {
	l.kept = append(l.kept, b[:min(len(b), maxFile-len(l.kept))]...)
	return len(b), nil
}

// contents is the manifest of a bundle, which lists its files.
type contents struct {
	Made  time.Time   `json:"made"`
	Files []collected `json:"files"`
}

type collected struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Cut   bool   `json:"cut,omitempty"`   // its end is missing
	Error string `json:"error,omitempty"` // why it is missing
}

func (m *contents) json() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // errors say where something was <struck out>
	e.SetIndent("", "  ")
	err := e.Encode(m)
	return b.Bytes(), err
}

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// stage lays out in tree what a package installs.
func (r *release) stage(tree, binary string) error {
	s := &stage{tree: tree}
	s.copy(binary, "usr/bin/heddle", 0o755)
	// Not on PATH: other packages have the first two names, and programs call the others.
	for _, name := range []string{"xe", "calico-dhcp-agent", "heddle-cni", "heddle-libvirt-hook"} {
		s.link("../../../bin/heddle", "usr/lib/heddle/bin/"+name)
	}
	r.stageUnits(s)
	own := filepath.Join(r.source, "scripts", "package", "debian")
	s.copy(filepath.Join(own, "sysusers"), "usr/lib/sysusers.d/heddle.conf", 0o644)
	s.copy(filepath.Join(own, "tmpfiles"), "usr/lib/tmpfiles.d/heddle.conf", 0o644)
	s.copy(filepath.Join(own, "heddle.yaml"), "usr/share/heddle/heddle.yaml", 0o644)
	s.directory("etc/heddle/conf.d")
	r.stageManual(s)
	r.stageMonitoring(s)
	r.stageCompletions(s)
	r.stageDocs(s)
	return s.err
}

// stageUnits adds systemd's units, which the guides install by hand with another path.
func (r *release) stageUnits(s *stage) {
	dir := filepath.Join(r.source, "docs", "guides", "files")
	for _, pattern := range []string{"*.service", "*.socket", "*.target", "*.timer"} {
		units, err := filepath.Glob(filepath.Join(dir, pattern))
		s.fail(err)
		for _, unit := range units {
			text, err := os.ReadFile(unit)
			s.fail(err)
			s.write("lib/systemd/system/"+filepath.Base(unit), bytes.ReplaceAll(text, []byte("/usr/local/bin/heddle"), []byte("/usr/bin/heddle")), 0o644)
		}
	}
}

// stageManual adds the manual pages, which heddle writes itself.
func (r *release) stageManual(s *stage) {
	dir, err := os.MkdirTemp("", "heddle-manual")
	s.fail(err)
	defer os.RemoveAll(dir)
	r.run(s, "manual", dir)
	pages, err := os.ReadDir(dir)
	s.fail(err)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(dir, page.Name()))
		s.fail(err)
		section := strings.TrimPrefix(filepath.Ext(page.Name()), ".")
		s.write("usr/share/man/man"+section+"/"+page.Name()+".gz", s.gzip(text), 0o644)
	}
}

// stageMonitoring adds the alert rules and dashboards, which heddle writes itself.
func (r *release) stageMonitoring(s *stage) {
	dir, err := os.MkdirTemp("", "heddle-monitoring")
	s.fail(err)
	defer os.RemoveAll(dir)
	r.run(s, "monitoring", dir)
	s.fail(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			s.copy(path, "usr/share/heddle"+strings.TrimPrefix(path, dir), 0o644)
		}
		return err
	}))
}

func (r *release) stageCompletions(s *stage) {
	for shell, path := range map[string]string{
		"bash": "usr/share/bash-completion/completions/heddle",
		"zsh":  "usr/share/zsh/vendor-completions/_heddle",
		"fish": "usr/share/fish/vendor_completions.d/heddle.fish",
	} {
		s.write(path, r.run(s, "completion", shell), 0o644)
	}
}

// run runs heddle and returns what it prints.
func (r *release) run(s *stage, args ...string) []byte {
	cmd := exec.Command(r.native, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		s.fail(fmt.Errorf("%s: %w", cmd, err))
	}
	return out
}

// stageDocs adds the documentation, the licence and the lists of changes: ours, and one in the form
// that Debian's tools read.
func (r *release) stageDocs(s *stage) {
	const to = "usr/share/doc/heddle/"
	s.copy(filepath.Join(r.source, "scripts", "package", "debian", "copyright"), to+"copyright", 0o644)
	s.copy(filepath.Join(r.source, "README.md"), to+"README.md", 0o644)
	s.copy(filepath.Join(r.source, "CHANGELOG.md"), to+"CHANGELOG.md", 0o644)
	version, err := debianVersion(r.version, r.time)
	s.fail(err)
	s.write(to+"changelog.gz", s.gzip(fmt.Appendf(nil, "heddle (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n",
		version, maintainer, r.time.Format(time.RFC1123Z))), 0o644)
	s.copy(filepath.Join(r.source, "scripts", "package", "debian", "lintian-overrides"), "usr/share/lintian/overrides/heddle", 0o644)
	docs := filepath.Join(r.source, "docs")
	s.fail(filepath.WalkDir(docs, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			s.copy(path, to+"docs/"+strings.TrimPrefix(path, docs+"/"), 0o644)
		}
		return err
	}))
}

// stage is a tree that is filled. After an error it is left as it is.
type stage struct {
	tree string
	err  error
}

func (s *stage) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// write writes a file of the tree. Its mode does not depend on the caller's umask.
func (s *stage) write(path string, text []byte, mode fs.FileMode) {
	if s.err != nil {
		return
	}
	to := filepath.Join(s.tree, path)
	s.fail(os.MkdirAll(filepath.Dir(to), 0o755))
	s.fail(os.WriteFile(to, text, mode))
	s.fail(os.Chmod(to, mode))
}

func (s *stage) copy(from, path string, mode fs.FileMode) {
	text, err := os.ReadFile(from)
	s.fail(err)
	s.write(path, text, mode)
}

func (s *stage) directory(path string) {
	s.fail(os.MkdirAll(filepath.Join(s.tree, path), 0o755))
}

func (s *stage) link(target, path string) {
	to := filepath.Join(s.tree, path)
	s.fail(os.MkdirAll(filepath.Dir(to), 0o755))
	s.fail(os.Symlink(target, to))
}

// gzip compresses without a name or time, so that the same text gives the same bytes.
func (s *stage) gzip(text []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	s.fail(err)
	_, err = w.Write(text)
	s.fail(err)
	s.fail(w.Close())
	return b.Bytes()
}
